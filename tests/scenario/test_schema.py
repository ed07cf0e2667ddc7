"""The models of a scenario file, one section at a time, and the JSON Schema made of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from bpusim.scenario.schema import EngineOptions, HostOptions, ModelSpec, RunOptions, ScenarioSpec, json_schema
from bpusim.scenario.streams import ChatSpec, FramesSpec, StreamSpec

STREAM: TypeAdapter[ChatSpec | FramesSpec] = TypeAdapter(StreamSpec)
CHAT = {"chat": "m", "prompt": 32, "output": 16}
FRAMES = {"frames": "m", "rate": "30 Hz"}


def refusal(kind: type[Any] | TypeAdapter[Any], data: object) -> str:
    """The first message about ``data``, without pydantic's prefix."""
    adapter = kind if isinstance(kind, TypeAdapter) else TypeAdapter(kind)
    with pytest.raises(ValidationError) as caught:
        adapter.validate_json(json.dumps(data))
    return caught.value.errors()[0]["msg"].removeprefix("Value error, ")


def test_one_core_may_be_written_bare() -> None:
    assert ModelSpec(trace="a", cores="bpu0").cores == ("bpu0",)  # type: ignore[arg-type]


def test_cores_keep_their_order() -> None:
    model = ModelSpec.model_validate({"trace": "a", "cores": ["bpu1", "bpu0"], "split": "even"})
    assert model.cores == ("bpu1", "bpu0")


def test_a_split_may_count_layers() -> None:
    model = ModelSpec.model_validate({"trace": "a", "cores": ["bpu0", "bpu1"], "split": [20, 16]})
    assert model.split == (20, 16)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cores": ["bpu0", "bpu1"]}, "2 cores need a split of the layers; add split: even"),
        ({"split": "even"}, "a split needs more than one core; remove it, or list several cores"),
        (
            {"cores": ["bpu0", "bpu1"], "split": [1, 2, 3]},
            "3 entries for 2 cores; write one entry per core",
        ),
        (
            {"cores": ["bpu0", "bpu1"], "split": [0, 36]},
            "not a split; write even, layers per core such as [14, 14], or tensor",
        ),
        (
            {"cores": ["bpu0", "bpu1"], "split": "odd"},
            "not a split; write even, layers per core such as [14, 14], or tensor",
        ),
        (
            {"cores": []},
            "not the name of a core or a list of them; write cores: bpu0 or cores: [bpu0, bpu1]",
        ),
        (
            {"cores": [0]},
            "not the name of a core or a list of them; write cores: bpu0 or cores: [bpu0, bpu1]",
        ),
        ({"trace": ""}, "String should have at least 1 character"),
        ({"context": 0}, "Input should be greater than or equal to 1"),
    ],
)
def test_a_model_refuses(change: dict[str, Any], message: str) -> None:
    assert refusal(ModelSpec, {"trace": "a", "cores": "bpu0"} | change) == message


def test_the_key_chat_makes_a_chat() -> None:
    assert STREAM.validate_python(CHAT) == ChatSpec(chat="m", prompt=32, output=16)


def test_the_key_frames_makes_a_camera() -> None:
    stream = STREAM.validate_python(FRAMES)
    assert isinstance(stream, FramesSpec)
    assert stream.rate == 30.0


def test_a_frame_rate_may_be_fractional() -> None:
    stream = STREAM.validate_python(FRAMES | {"rate": "12.5 Hz"})
    assert isinstance(stream, FramesSpec)
    assert stream.rate == 12.5


def test_durations_are_picoseconds() -> None:
    stream = STREAM.validate_python(FRAMES | {"before": {"camera": "33 ms"}, "after": {"cpu": "35 ms"}, "start": "1 s"})
    assert isinstance(stream, FramesSpec)
    assert (stream.before, stream.after, stream.start) == (
        {"camera": 33 * 10**9},
        {"cpu": 35 * 10**9},
        10**12,
    )


def test_a_chat_may_go_on_forever() -> None:
    stream = STREAM.validate_python(CHAT | {"requests": "forever"})
    assert isinstance(stream, ChatSpec)
    assert stream.requests == "forever"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "has neither chat nor frames; add chat: MODEL, frames: MODEL or pipeline: STAGES"),
        (CHAT | FRAMES, "has both chat and frames; a stream is one of them, so remove the other"),
        ([1], "not a stream; write a mapping with a key chat, frames or pipeline"),
        (None, "not a stream; write a mapping with a key chat, frames or pipeline"),
        (CHAT | {"requests": 0}, "not a number of requests; write a whole number of 1 or more, or forever"),
        (
            CHAT | {"requests": True},
            "not a number of requests; write a whole number of 1 or more, or forever",
        ),
        (CHAT | {"prompt": True}, "Input should be a valid integer"),
        (CHAT | {"prompt": "32"}, "Input should be a valid integer"),
        (CHAT | {"prompt": 10**10}, "Input should be less than or equal to 1000000000"),
        (FRAMES | {"rate": "0 Hz"}, "Input should be greater than 0"),
        (FRAMES | {"before": {"gpu": "1 ms"}}, "Input should be 'camera' or 'cpu'"),
        (FRAMES | {"prompt": 3}, "Extra inputs are not permitted"),
    ],
)
def test_a_stream_refuses(data: object, message: str) -> None:
    assert refusal(STREAM, data) == message


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (HostOptions, {"logging": False}),
        (HostOptions, {"memory_pool": True}),
        (EngineOptions, {"dram": "cycle"}),
        (EngineOptions, {"seed": -1}),
        (RunOptions, {"until": "0 s"}),
        (RunOptions, {"until": 3}),
    ],
)
def test_options_refuse(kind: type[Any], data: object) -> None:
    assert refusal(kind, data)


@pytest.mark.parametrize("dram", ["flow", "bank"])
def test_the_channel_has_two_fidelities(dram: str) -> None:
    assert TypeAdapter(EngineOptions).validate_python({"dram": dram}).dram == dram


def test_the_channel_is_a_fluid_by_default() -> None:
    assert EngineOptions().dram == "flow"


def test_a_spec_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        HostOptions().logging = "per_op"  # type: ignore[misc]


def test_top_level_keys_are_the_documented_ones_in_order() -> None:
    keys = "extends, about, machine, models, streams, host, policy, engine, run"
    assert ", ".join(ScenarioSpec.model_fields) == keys


def fields_of(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for part in ("ModelSpec", "ChatSpec", "FramesSpec", "HostOptions", "EngineOptions", "RunOptions"):
        for name, field in schema["$defs"][part]["properties"].items():
            yield f"{part}.{name}", field
    yield from schema["properties"].items()


@pytest.mark.parametrize(("name", "field"), list(fields_of(json_schema())))
def test_every_field_is_described_in_one_line(name: str, field: dict[str, Any]) -> None:
    description = field["description"]
    assert description
    assert "\n" not in description
    assert len(description) < 90


def test_the_schema_of_a_file_takes_a_preset_name_or_changes() -> None:
    machine = json_schema()["properties"]["machine"]["anyOf"]
    assert machine == [{"type": "string"}, {"$ref": "#/$defs/MachineSpec"}]
    assert "preset" in json_schema()["$defs"]["MachineSpec"]["properties"]


def test_the_schema_of_a_file_requires_only_what_no_parent_can_give() -> None:
    text = json.dumps(json_schema())
    assert text.count('"required"') == 2
    assert json_schema()["anyOf"] == [
        {"required": ["extends"]},
        {"required": ["machine", "models", "streams"]},
    ]


def test_the_schema_of_a_file_keeps_unknown_keys_out() -> None:
    assert json_schema()["additionalProperties"] is False
