"""Loading scenarios: what a good one becomes, presets, parents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from scenario_desk import GOOD, Desk

from bpusim.errors import Place, ScenarioError
from bpusim.hardware.presets import machine_preset
from bpusim.scenario import ChatSpec, FramesSpec, load_scenario


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_scenario_is_named_after_its_file(desk: Desk) -> None:
    scenario = desk.load()
    assert scenario.name == "good"
    assert scenario.file == desk.folder / "good.yaml"
    assert scenario.files == (desk.folder / "good.yaml",)


def test_streams_are_of_their_kind(desk: Desk) -> None:
    streams = desk.load().streams
    assert streams["alice"] == ChatSpec(chat="left", prompt=32, output=16, requests=4)
    assert isinstance(streams["cam"], FramesSpec)


def test_a_bare_machine_is_the_preset(desk: Desk) -> None:
    assert desk.load().machine == machine_preset("bpu80")


def test_changes_are_merged_into_the_preset(desk: Desk) -> None:
    desk.write("a.yaml", GOOD.replace("bpu80", "{preset: bpu80, cores: {dma: {window: 4 KiB}}}"))
    machine = desk.load("a.yaml").machine
    assert machine.cores.dma.window == 4096
    assert machine.cores.dma.port == machine_preset("bpu80").cores.dma.port


def test_a_machine_may_be_a_file_that_changes_another(desk: Desk) -> None:
    """Each is found from the file that names it; all of them are inputs of the run."""
    (desk.folder / "boards").mkdir()
    desk.write("boards/mine.yaml", "preset: base.yaml\ncores: {dma: {window: 4 KiB}}\n")
    desk.write("boards/base.yaml", "preset: bpu80\nname: base\n")
    desk.write("a.yaml", GOOD.replace("bpu80", "{preset: boards/mine.yaml, cores: {count: 2}}"))
    scenario = desk.load("a.yaml")
    assert scenario.machine.name == "base"
    assert scenario.machine.cores.dma.window == 4096
    assert [f.name for f in scenario.files] == ["a.yaml", "mine.yaml", "base.yaml"]


def test_machine_files_in_a_circle(desk: Desk) -> None:
    desk.write("one.yaml", "preset: two.yaml\n")
    desk.write("two.yaml", "preset: one.yaml\n")
    desk.write("a.yaml", GOOD.replace("bpu80", "one.yaml"))
    with pytest.raises(ScenarioError, match=r"two\.yaml:1:9: error: preset goes in a circle: 'one\.yaml'"):
        desk.load("a.yaml")


def test_changes_do_not_stay_in_the_preset(desk: Desk) -> None:
    """A preset is read once; what scenarios change of it is theirs."""
    cooled = ("machine.cooling=passive_heatsink",)
    before = desk.load("good.yaml", *cooled).machine
    changes = (
        "machine.cores.dma.window=4 KiB",
        "machine.cooling.nodes.die.capacity=9 J/K",
        "machine.dram.capacity=9 GB",
    )
    assert desk.load("good.yaml", *cooled, *changes).machine != before
    assert desk.load("good.yaml", *cooled).machine == before


def test_a_trace_is_found_from_its_file(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    (desk.folder / "elsewhere").mkdir()
    monkeypatch.chdir(desk.folder / "elsewhere")
    assert load_scenario("../good.yaml").trace_path("left") == desk.folder / "t" / "a.trace"


def test_later_errors_find_their_place(desk: Desk) -> None:
    scenario = desk.load()
    assert scenario.where("models", "left", "trace") == Place(str(desk.folder / "good.yaml"), 4, 17)


@pytest.mark.parametrize("change", [lambda t: "\ufeff" + t, lambda t: t.replace("\n", "\r\n")], ids=["bom", "crlf"])
def test_files_of_other_editors_load(desk: Desk, change: Callable[[str], str]) -> None:
    (desk.folder / "a.yaml").write_bytes(change(GOOD).encode())
    assert desk.load("a.yaml").streams == desk.load().streams


def test_a_child_changes_single_keys(desk: Desk) -> None:
    alice = desk.child("streams: {alice: {output: 99}}\n").streams["alice"]
    assert alice == ChatSpec(chat="left", prompt=32, output=99, requests=4)


def test_a_child_replaces_lists(desk: Desk) -> None:
    assert desk.child("models: {right: {cores: [bpu1, bpu0]}}\n").models["right"].cores == ("bpu1", "bpu0")


def test_a_child_may_change_the_parents_bare_machine(desk: Desk) -> None:
    scenario = desk.child("machine: {dram: {arbitration: equal}}\n")
    assert scenario.machine.dram.arbitration == "equal"
    assert scenario.machine.name == "bpu80"


def test_a_childs_bare_machine_keeps_the_parents_changes(desk: Desk) -> None:
    desk.write("mid.yaml", "extends: good.yaml\nmachine: {dram: {arbitration: equal}}\n")
    desk.write("low.yaml", "extends: mid.yaml\nmachine: bpu80\n")
    assert desk.load("low.yaml").machine.dram.arbitration == "equal"


def test_a_child_turns_frames_into_a_chat(desk: Desk) -> None:
    cam = desk.child("streams: {cam: {chat: right, prompt: 1, output: 2}}\n").streams["cam"]
    assert cam == ChatSpec(chat="right", prompt=1, output=2)


def test_a_child_turns_a_chat_into_frames(desk: Desk) -> None:
    alice = desk.child("streams: {alice: {frames: left, rate: 1 Hz, count: 3}}\n").streams["alice"]
    assert alice == FramesSpec.model_validate({"frames": "left", "rate": "1 Hz", "count": 3})


def test_the_chain_is_listed_from_the_child_up(desk: Desk) -> None:
    desk.write("mid.yaml", "extends: good.yaml\n")
    desk.write("sub/low.yaml", "extends: ../mid.yaml\n")
    names = [file.name for file in desk.load("sub/low.yaml").files]
    assert names == ["low.yaml", "mid.yaml", "good.yaml"]


def test_a_trace_named_by_a_parent_starts_from_the_parent(desk: Desk) -> None:
    desk.write("sub/low.yaml", "extends: ../good.yaml\n")
    assert desk.load("sub/low.yaml").trace_path("left") == desk.folder / "t" / "a.trace"


def test_a_trace_named_by_a_child_starts_from_the_child(desk: Desk) -> None:
    desk.write("sub/b.trace", "")
    desk.write("sub/low.yaml", "extends: ../good.yaml\nmodels: {left: {trace: b.trace}}\n")
    assert desk.load("sub/low.yaml").trace_path("left") == desk.folder / "sub" / "b.trace"


def test_an_error_in_a_parent_is_placed_in_the_parent(desk: Desk) -> None:
    desk.write("base.yaml", GOOD.replace("output: 16", "output: lots"))
    desk.write("child.yaml", "extends: base.yaml\nabout: x\n")
    message = "base.yaml:7:43: error: streams.alice.output: 'lots' is not a whole number; write one such as 32"
    assert desk.refusal("child.yaml") == message


def test_a_circle_is_named(desk: Desk) -> None:
    desk.write("a.yaml", "extends: b.yaml\n")
    desk.write("b.yaml", "about: b\nextends: a.yaml\n")
    message = "b.yaml:2:10: error: extends goes in a circle: a.yaml -> b.yaml -> a.yaml; remove one of them"
    assert desk.refusal("a.yaml") == message


@pytest.mark.parametrize(
    ("extends", "message"),
    [
        (
            "goood.yaml",
            "a.yaml:1:10: error: cannot read 'goood.yaml': no such file; did you mean 'good.yaml'?",
        ),
        ("t", "a.yaml:1:10: error: cannot read 't': it is a folder; name a file in it"),
        ("3", "a.yaml:1:10: error: extends: not a path; name one parent file"),
        ("[a, b]", "a.yaml:1:10: error: extends: not a path; name one parent file"),
        ("''", "a.yaml:1:10: error: extends: not a path; name one parent file"),
    ],
)
def test_a_wrong_parent_is_reported_where_it_is_named(desk: Desk, extends: str, message: str) -> None:
    desk.write("a.yaml", f"extends: {extends}\n")
    assert desk.refusal("a.yaml") == message
