"""Every problem of a scenario at its place, all at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenario_desk import GOOD, Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "machine: bpu80",
            "machine: 80",
            "a.yaml:2:10: error: machine: not the name of a preset or a mapping; "
            "write one of bpu80, rdk_s100p, rdk_s600, rk3588, a machine file, or {preset: NAME, ...changes}",
        ),
        (
            "machine: bpu80",
            "machine: bpu81",
            "a.yaml:2:10: error: unknown machine preset 'bpu81'; did you mean 'bpu80'?",
        ),
        (
            "machine: bpu80",
            "machine: {dram: {}}",
            "a.yaml:2:1: error: machine: 'preset' is missing; "
            "write one of bpu80, rdk_s100p, rdk_s600, rk3588, a machine file, or {preset: NAME, ...changes}",
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
            "a.yaml:5:3: error: models: 'a/b' cannot be a name; write one without '/' that can be printed",
        ),
        ("about: Two users", "about: 3", "a.yaml:1:8: error: about: 3 is not text; write it in quotes"),
        ("about:", "abuot:", "a.yaml:1:1: error: unknown key 'abuot'; did you mean 'about'?"),
        (
            "machine: bpu80\n",
            "",
            "a.yaml:1:1: error: 'machine' is missing; "
            "add machine: name of a preset, a machine file, or {preset: NAME, ...changes}",
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
