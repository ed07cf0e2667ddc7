"""Overrides of a scenario: by path, by mapping, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from scenario_desk import GOOD, Desk

from bpusim.errors import ScenarioError
from bpusim.scenario import ChatSpec, load_scenario


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_an_override_wins_over_the_file(desk: Desk) -> None:
    alice = desk.load("good.yaml", "streams.alice.output=99").streams["alice"]
    assert alice == ChatSpec(chat="left", prompt=32, output=99, requests=4)


def test_overrides_may_be_a_mapping_of_values(desk: Desk) -> None:
    changes: Mapping[str, object] = {"machine.dram.arbitration": "equal", "streams.alice.output": 99}
    scenario = load_scenario(desk.folder / "good.yaml", set=changes)
    assert scenario.machine.dram.arbitration == "equal"
    assert scenario.streams["alice"] == ChatSpec(chat="left", prompt=32, output=99, requests=4)


def test_an_override_may_make_sections(desk: Desk) -> None:
    assert desk.load("good.yaml", "run.until=3 s").run.until == 3 * 10**12


def test_an_override_may_be_a_mapping(desk: Desk) -> None:
    dram = desk.load("good.yaml", "machine.dram={arbitration: strict, order: [bpu0, cpu]}").machine.dram
    assert dram.order == ["bpu0", "cpu"]


def test_overrides_apply_in_order(desk: Desk) -> None:
    assert desk.load("good.yaml", "about=one", "about=two").about == "two"


def test_an_override_reaches_a_key_with_dots(desk: Desk) -> None:
    desk.write("a.yaml", GOOD.replace("right", "qwen2.5"))
    assert desk.load("a.yaml", "models.qwen2.5.context=64").models["qwen2.5"].context == 64


def test_a_trace_named_by_an_override_starts_from_the_working_directory(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(desk.folder / "t")
    assert desk.load("good.yaml", "models.left.trace=a.trace").trace_path("left") == desk.folder / "t" / "a.trace"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "machine.dram.arbitraton=equal",
            "--set machine.dram.arbitraton: error: machine.dram: unknown key 'arbitraton'; did you mean 'arbitration'?",
        ),
        (
            "streams.alice.output=abc",
            "--set streams.alice.output: error: 'abc' is not a whole number; write one such as 32",
        ),
        (
            "machine.cores.clock=3",
            "--set machine.cores.clock: error: 3 has no unit; write a frequency such as '1.2207 GHz'",
        ),
        (
            "machine={dram: {usable: 3}}",
            "--set machine: error: machine.dram.usable: 3 has no unit; write a size such as '4 MiB'",
        ),
        ("machine=bpu8", "--set machine: error: unknown machine preset 'bpu8'; did you mean 'bpu80'?"),
        (
            "machine.dram.arbitration=strict",
            "--set machine.dram.arbitration: error: machine.dram: strict arbitration needs an order; "
            "write order: [bpu0, bpu1]",
        ),
        ("=", "--set =: error: '=' sets nothing; write --set path=value"),
        ("about", "--set about: error: 'about' sets nothing; write --set path=value"),
        ("a..b=1", "--set a..b: error: 'a..b' is not a path; write keys joined by dots: machine.dram.preset"),
        ("extends=x.yaml", "--set extends: error: extends cannot be set; write it in the file"),
        (
            "about=[a",
            "--set about: error: the text ends while parsing a flow sequence; close the bracket or quote",
        ),
        ("run=3", "--set run: error: 3 is not a mapping; write 'key: value' entries"),
    ],
)
def test_a_wrong_override_is_named(desk: Desk, override: str, message: str) -> None:
    assert desk.refusal("good.yaml", override) == message


def test_what_an_overridden_entry_lacks_is_reported_in_the_file(desk: Desk) -> None:
    message = "good.yaml:7:3: error: streams.alice: 'rate' is missing; add rate: frames per second, such as 30 Hz"
    assert desk.refusal("good.yaml", "streams.alice.frames=left", "run.until=1 s") == message


def test_a_value_python_cannot_write_to_a_file_is_refused(desk: Desk) -> None:
    with pytest.raises(ScenarioError, match="a value cannot be used"):
        load_scenario(desk.folder / "good.yaml", set={"about": object()})
