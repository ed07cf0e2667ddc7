"""What a scenario file may say: one pydantic model per section, every field with its one-line description.

The same models check users' files, type the program, and give the JSON Schema for editors and docs.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, ValidationInfo, WithJsonSchema, field_validator

from bpusim.hardware.spec import MachineSpec
from bpusim.scenario.section import Affinity, Count, Name, Parts, Section, is_count
from bpusim.scenario.streams import StreamSpec
from bpusim.units import DIMENSIONS, Bandwidth, Duration, format_quantity

__all__ = ["EngineOptions", "HostOptions", "ModelSpec", "RunOptions", "ScenarioSpec", "json_schema"]


def _cores(value: Any) -> Any:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not all(isinstance(n, str) for n in names):
        raise ValueError("not the name of a core or a list of them; write cores: bpu0 or cores: [bpu0, bpu1]")
    return tuple(names)


def _split(value: Any) -> Any:
    if value in (None, "even", "tensor"):
        return value
    if not isinstance(value, list | tuple) or not value or not all(is_count(n) for n in value):
        raise ValueError("not a split; write even, layers per core such as [14, 14], or tensor")
    return tuple(value)


def _types(value: Any) -> Any:
    if value is not None and (not isinstance(value, list | tuple) or not all(isinstance(n, str) for n in value)):
        raise ValueError("not a list of op types; write such as unsplit: [Softmax], types of the trace, or [] for none")
    return value if value is None else tuple(value)


class LoadSpec(Section):
    """How a model's weights come from storage into memory; models go one after the other."""

    rate: Annotated[Bandwidth, Field(gt=0)] = Field(description="Bytes a second that the storage gives")
    fixed: Duration = Field(0, description="Work of a CPU core after that: making the session, compiling")
    when: Literal["first_use", "start"] = Field(
        "first_use", description="Whether it begins with the first step or frame, or with the run"
    )
    place: str | None = Field(
        None, description="Models of one place have it in turn: who is asked for is loaded, the other is gone"
    )


class ModelSpec(Section):
    """A compiled model, resident once, and the cores that run it."""

    trace: str = Field(min_length=1, description="Path of the compiled trace, from the file that names it")
    cores: Annotated[
        tuple[str, ...],
        BeforeValidator(_cores),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
    ] = Field(description="Core that runs it (bpu0), any for the least busy, or a list for a split")
    split: Annotated[
        Literal["even", "tensor"] | tuple[int, ...] | None,
        PlainValidator(_split),
        WithJsonSchema(
            {
                "anyOf": [
                    {"const": "even"},
                    {"const": "tensor"},
                    {"type": "array", "items": {"type": "integer", "minimum": 1}},
                    {"type": "null"},
                ]
            }
        ),
    ] = Field(
        None,
        validate_default=True,
        description="Layers per core (even, or a list such as [14, 14]), or each op over all cores: tensor",
    )
    sync: Annotated[Duration, Field(ge=0)] | None = Field(
        None, validate_default=True, description="split: tensor: what each barrier between the cores costs"
    )
    unsplit: Annotated[
        tuple[str, ...] | None,
        PlainValidator(_types),
        WithJsonSchema({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]}),
    ] = Field(
        None,
        validate_default=True,
        description="split: tensor: op types that stay on one core; the toolchain's if absent",
    )
    balance: Literal["load", "bandwidth"] = Field(
        "load", description="With cores: any, what makes a line long: calls in it, or bytes they have to move"
    )
    context: Count | None = Field(
        None, description="Limit of the KV cache in tokens; the trace's own capacity if absent"
    )
    priority: int = Field(
        0,
        ge=0,
        le=255,
        description="Of its calls, 0 to 255: 254 and 255 go before normal ones (policy: priority)",
    )
    sequences: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        None, description="Sequences that its KV cache has room for; one for each user if absent"
    )
    batch: Annotated[int, Field(ge=1, le=10_000)] = Field(
        1, description="Sequences that a decode step serves at most; it reads the weights once for all"
    )
    max_call: Annotated[Duration, Field(gt=0)] | None = Field(
        None, description="Longest piece of its calls, others may go between two; uncut if absent"
    )
    load: LoadSpec | None = Field(
        None, description="What its first run waits for; it is loaded before the run begins if absent"
    )
    heap: str | None = Field(
        None, description="Heap of machine.dram.heaps for all of it; the first with room if absent"
    )

    @field_validator("balance")
    @classmethod
    def _chooses(cls, balance: str, info: ValidationInfo) -> str:
        if info.data.get("cores", ("any",)) != ("any",):
            raise ValueError("balance chooses among cores: any; leave it out")
        return balance

    @field_validator("split")
    @classmethod
    def _fits_cores(cls, split: Any, info: ValidationInfo) -> Any:
        cores = info.data.get("cores")
        if cores is None:  # has an error of its own
            return split
        if cores == ("any",) and split == "tensor":
            raise ValueError("a tensor split needs cores of its own; name them, such as cores: [bpu0, bpu1]")
        if len(cores) == 1 and split is not None:
            raise ValueError("a split needs more than one core; remove it, or list several cores")
        if len(cores) > 1 and split is None:
            raise ValueError(f"{len(cores)} cores need a split of the layers; add split: even")
        if isinstance(split, tuple) and len(split) != len(cores):
            raise ValueError(f"{len(split)} entries for {len(cores)} cores; write one entry per core")
        return split

    @field_validator("sync", "unsplit")
    @classmethod
    def _of_a_tensor_split(cls, value: Any, info: ValidationInfo) -> Any:
        if "split" not in info.data:  # has an error of its own
            return value
        tensor = info.data["split"] == "tensor"
        if value is not None and not tensor:
            raise ValueError(f"{info.field_name} means nothing without a tensor split; add split: tensor or remove it")
        if value is None and tensor and info.field_name == "sync":
            raise ValueError("a tensor split needs sync, the cost of each barrier between cores; add sync: 20 us")
        return value


class HostOptions(Section):
    """Settings of the host's runtime."""

    logging: Literal["off", "per_op"] = Field("off", description="Whether the runtime logs every op")
    memory_pool: Literal["on", "off"] = Field("on", description="Whether a pool keeps tensors between calls")
    submit: Literal["async", "sync"] = Field("async", description="Whether dispatch overlaps the running call")
    affinity: Affinity = Field("any", description="CPU cores that host work may take; any: a fast one if one is free")
    fallback_parts: Parts = Field(1, description="Parts that CPU ops are cut into, each on a core; cores: one for each")


class EngineOptions(Section):
    """Settings of the simulator, not of what is simulated."""

    dram: Literal["flow", "bank"] = Field(
        "flow",
        description="DRAM channel as fluid shares (flow) or bank by bank (bank: slow)",
    )
    merge: Literal["on", "exact", "off"] = Field(
        "on",
        description="Tiles that move as one flow: all that may (on), what cannot stall (exact), none (off)",
    )
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of all random draws")


class RunOptions(Section):
    """When a run ends."""

    until: Annotated[Duration, Field(gt=0)] | None = Field(
        None, description="Simulated time at which the run ends; when all finite streams are done if absent"
    )


class ScenarioSpec(Section):
    """A whole scenario, its parents merged and its machine resolved."""

    extends: str | None = Field(None, description="One parent file, by its path from here, to merge with")
    about: str = Field("", description="What the scenario shows, in a sentence")
    machine: MachineSpec = Field(description="Name of a preset, a machine file, or {preset: NAME, ...changes}")
    models: dict[Name, ModelSpec] = Field(min_length=1, description="Compiled models by name")
    streams: dict[Name, StreamSpec] = Field(min_length=1, description="Sources of work by name")
    host: HostOptions = Field(HostOptions(), description="Settings of the host's runtime")
    policy: str = Field(
        "priority",
        min_length=1,
        description="Which ready call a core runs next: a name (see the guide), or module:Class",
    )
    engine: EngineOptions = Field(EngineOptions(), description="Settings of the simulator")
    run: RunOptions = Field(RunOptions(), description="When the run ends")


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a scenario file, for editors.

    Any part may be inherited by ``extends``, so only a file without it must have machine, models and streams.
    """
    schema: dict[str, Any] = _optional(ScenarioSpec.model_json_schema())
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "bpusim scenario"
    schema["anyOf"] = [{"required": ["extends"]}, {"required": ["machine", "models", "streams"]}]
    machine = schema["$defs"]["MachineSpec"]
    _named(schema, schema["properties"], "machine", "MachineSpec", "Name of the machine that is changed")
    _named(schema, machine["properties"], "cooling", "CoolingSpec", "Name of the heat path that is changed")
    return schema


def _named(schema: dict[str, Any], properties: dict[str, Any], key: str, spec: str, preset: str) -> None:
    """A part that may be the name of a preset, or a preset with changes."""
    schema["$defs"][spec]["properties"]["preset"] = {"type": "string", "description": preset}
    properties[key] = {
        "anyOf": [{"type": "string"}, {"$ref": f"#/$defs/{spec}"}],
        "description": properties[key]["description"],
    }


def _optional(node: Any) -> Any:
    """The schema without ``required``, ``anyOf`` for ``oneOf`` (part of a stream may be of either kind), and defaults
    with their units, as a file has them."""
    if isinstance(node, list):
        return [_optional(item) for item in node]
    if not isinstance(node, dict):
        return node
    plain = {k: _optional(v) for k, v in node.items() if not (k == "required" and isinstance(v, list))}
    if "oneOf" in plain:
        plain["anyOf"] = plain.pop("oneOf")
    default = plain.get("default")
    dimension = next((d for d in DIMENSIONS.values() if plain.get("examples") == [d.example]), None)
    if dimension is not None and isinstance(default, int | float):
        plain["default"] = format_quantity(default, dimension.name)
    return plain
