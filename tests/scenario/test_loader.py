"""Loading scenarios: parents, overrides, presets, and every problem at its place, all at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from bpusim.errors import Place, ScenarioError
from bpusim.hardware.presets import machine_preset
from bpusim.scenario import ChatSpec, FramesSpec, Scenario, load_scenario

GOOD = """\
about: Two users
machine: bpu80
models:
  left: {trace: t/a.trace, cores: bpu0}
  right: {trace: t/a.trace, cores: [bpu0, bpu1], split: even}
streams:
  alice: {chat: left, prompt: 32, output: 16, requests: 4}
  cam: {frames: right, rate: 12.5 Hz}
"""


class Desk:
    """A folder with a trace, in which scenario files are written and loaded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("t/a.trace", "")
        self.write("good.yaml", GOOD)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def load(self, name: str = "good.yaml", *sets: str) -> Scenario:
        return load_scenario(self.folder / name, set=sets)

    def refusal(self, name: str = "good.yaml", *sets: str) -> str:
        with pytest.raises(ScenarioError) as caught:
            self.load(name, *sets)
        return str(caught.value).replace(f"{self.folder}/", "")

    def refused(self, old: str, new: str) -> str:
        """The message for the good scenario with one text replaced."""
        assert old in GOOD
        self.write("a.yaml", GOOD.replace(old, new))
        return self.refusal("a.yaml")

    def child(self, text: str) -> Scenario:
        self.write("child.yaml", "extends: good.yaml\n" + text)
        return self.load("child.yaml")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


# --- what a good scenario becomes


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


# --- extends


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


# --- overrides


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


# --- problems


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "machine: bpu80",
            "machine: 80",
            "a.yaml:2:10: error: machine: not the name of a preset or a mapping; "
            "write one of bpu80, or {preset: NAME, ...changes}",
        ),
        (
            "machine: bpu80",
            "machine: bpu81",
            "a.yaml:2:10: error: unknown machine preset 'bpu81'; did you mean 'bpu80'?",
        ),
        (
            "machine: bpu80",
            "machine: {dram: {}}",
            "a.yaml:2:1: error: machine: 'preset' is missing; write one of bpu80, or {preset: NAME, ...changes}",
        ),
        (
            "machine: bpu80",
            "machine: {preset: bpu80, battery: big}",
            "a.yaml:2:26: error: machine: unknown key 'battery'; known: clocks, cooling, cores, dram, host, masters, "
            "name, power, preset",
        ),
        (
            "machine: bpu80",
            "machine: {preset: bpu80, cores: {mac: {rate: {int9: 1}}}}",
            "a.yaml:2:47: error: machine.cores.mac.rate: unknown key 'int9'; did you mean 'int8'?",
        ),
        (
            "machine: bpu80",
            "machine: {preset: bpu80, dram: {arbitration: strict, order: [bpu0, gpu]}}",
            "a.yaml:2:68: error: machine.dram.order.1: the machine has no DRAM master 'gpu'; did you mean 'cpu'?",
        ),
        (
            "output: 16",
            "output: 0",
            "a.yaml:7:43: error: streams.alice.output: 0 is out of range; write 1 or more",
        ),
        (
            "output: 16",
            "output: true",
            "a.yaml:7:43: error: streams.alice.output: true is not a whole number; write one such as 32",
        ),
        (
            "output: 16",
            "outptu: 16",
            "a.yaml:7:35: error: streams.alice: unknown key 'outptu'; did you mean 'output'?",
        ),
        (
            "output: 16, ",
            "",
            "a.yaml:7:10: error: streams.alice: 'output' is missing; add output: tokens of each answer, such as 32",
        ),
        (
            "requests: 4",
            "think: -3 ms",
            "a.yaml:7:54: error: streams.alice.think: '-3 ms' is negative; write a time of zero or more",
        ),
        (
            "requests: 4",
            "requests: never",
            "a.yaml:7:57: error: streams.alice.requests: not a number of requests; "
            "write a whole number of 1 or more, or forever",
        ),
        (
            "requests: 4",
            "requests: 99999999999999999999",
            "a.yaml:7:57: error: the number 99999999999999999999 is out of range; write a smaller one",
        ),
        (
            "frames: right, ",
            "",
            "a.yaml:8:8: error: streams.cam: "
            "has neither chat nor frames; add chat: MODEL, frames: MODEL or pipeline: STAGES",
        ),
        (
            "rate: 12.5 Hz",
            "rate: 30",
            "a.yaml:8:30: error: streams.cam.rate: 30 has no unit; write a frame rate such as '12.5 Hz'",
        ),
        (
            "rate: 12.5 Hz",
            "rate: 30 Hz, drop: oldst",
            "a.yaml:8:43: error: streams.cam.drop: 'oldst' is not one of oldest, newest, block; did you mean 'oldest'?",
        ),
        (
            "chat: left",
            "chat: lfet",
            "a.yaml:7:17: error: streams.alice.chat: no model is named 'lfet'; did you mean 'left'?",
        ),
        (
            "cores: bpu0}",
            "cores: bpu2}",
            "a.yaml:4:35: error: models.left.cores: the machine has no core 'bpu2'; did you mean 'bpu1'?",
        ),
        (
            "[bpu0, bpu1]",
            "[bpu0, bpu0]",
            "a.yaml:5:43: error: models.right.cores.1: core 'bpu0' is listed twice; name each core once",
        ),
        (
            "cores: bpu0}",
            "cores: bpu0, split: even}",
            "a.yaml:4:48: error: models.left.split: a split needs more than one core; remove it, or list several cores",
        ),
        (
            "left: {trace: t/a.trace",
            "left: {trace: t/b.trace",
            "a.yaml:4:17: error: models.left.trace: cannot read trace 't/b.trace': no such file; "
            "did you mean 'a.trace'?",
        ),
        (
            "left: {trace: t/a.trace, cores: bpu0}\n",
            "left: {trace: t/a.trace, cores: bpu0}\n  a/b: {trace: t/a.trace, cores: bpu0}\n",
            "a.yaml:5:3: error: models: 'a/b' cannot be a name; use letters, digits and '-', '_' or '.'",
        ),
        ("about: Two users", "about: 3", "a.yaml:1:8: error: about: 3 is not text; write it in quotes"),
        ("about:", "abuot:", "a.yaml:1:1: error: unknown key 'abuot'; did you mean 'about'?"),
        (
            "machine: bpu80\n",
            "",
            "a.yaml:1:1: error: 'machine' is missing; add machine: name of a preset, or {preset: NAME, ...changes}",
        ),
        (
            "about: Two users",
            "policy: lifo",
            "a.yaml:1:9: error: policy: no policy is named 'lifo'; "
            "did you mean 'fifo'? One of your own is module:Class",
        ),
        (
            "requests: 4",
            "requests: forever",
            "a.yaml:6:1: error: every stream is endless and nothing ends the run; "
            "add run: {until: 30 min}, or give a stream a number of requests or frames",
        ),
    ],
)
def test_one_mistake_is_one_problem_at_its_place(desk: Desk, old: str, new: str, message: str) -> None:
    assert desk.refused(old, new) == message


@pytest.mark.parametrize("section", ["models", "streams"])
@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[]", "a list is not a mapping; write 'key: value' entries"),
        ("", "null is not a mapping; write 'key: value' entries"),
        ("{}", "is empty; write at least one entry"),
        ("3", "3 is not a mapping; write 'key: value' entries"),
    ],
)
def test_a_section_must_have_entries(desk: Desk, section: str, text: str, what: str) -> None:
    other = "streams" if section == "models" else "models"
    entries = {
        "models": "{m: {trace: t/a.trace, cores: bpu0}}",
        "streams": "{s: {chat: m, prompt: 1, output: 1}}",
    }
    desk.write("a.yaml", f"machine: bpu80\n{other}: {entries[other]}\n{section}: {text}\n")
    message = desk.refusal("a.yaml")
    assert message.count("error:") == 1
    assert f"error: {section}: {what}" in message


def test_a_run_with_an_end_may_have_endless_streams(desk: Desk) -> None:
    scenario = desk.load("good.yaml", "streams.alice.requests=forever", "run.until=1 s")
    assert scenario.run.until == 10**12


def test_all_problems_come_at_once_in_the_order_of_the_file(desk: Desk) -> None:
    desk.write(
        "a.yaml",
        GOOD.replace("bpu80", "bpu81")
        .replace("32", "-1")
        .replace("frames: right", "frames: rihgt")
        .replace("t/a", "t/b"),
    )
    lines = [line.split(" error:")[0] for line in desk.refusal("a.yaml").splitlines()]
    assert lines == ["a.yaml:2:10:", "a.yaml:4:17:", "a.yaml:5:18:", "a.yaml:7:31:", "a.yaml:8:17:"]


def test_a_huge_exponent_is_a_scenario_error(desk: Desk) -> None:
    assert "out of range" in desk.refused("12.5 Hz", "1e9999999999999999999 Hz")


def test_a_trace_that_is_a_folder_is_refused(desk: Desk) -> None:
    assert "cannot read trace 't': is not a file" in desk.refused("left: {trace: t/a.trace", "left: {trace: t")


def test_a_trace_name_no_file_can_have_is_refused(desk: Desk) -> None:
    assert "cannot read trace" in desk.refused("left: {trace: t/a.trace", "left: {trace: " + "x" * 5000)


def test_a_name_with_a_line_break_stays_on_its_line(desk: Desk) -> None:
    message = desk.refused("alice: {chat: left, prompt: 32", '"a\\nb": {chat: left, prompt: 0')
    assert [line.split(":")[0] for line in message.splitlines()] == ["a.yaml", "a.yaml"]


def test_a_stream_named_like_a_tag_of_the_schema_is_a_stream(desk: Desk) -> None:
    message = desk.refused("alice: {chat: left, prompt", "ChatSpec: {chat: left, promt")
    assert message == "a.yaml:7:26: error: streams.ChatSpec: unknown key 'promt'; did you mean 'prompt'?"


def test_a_missing_scenario_suggests_its_sibling(desk: Desk) -> None:
    message = "god.yaml: error: cannot read 'god.yaml': no such file; did you mean 'good.yaml'?"
    assert desk.refusal("god.yaml") == message
