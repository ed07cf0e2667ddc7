"""Masters of the DRAM in a machine's file, and the arbitration that names them: each mistake at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpusim.errors import ScenarioError
from bpusim.hardware import MachineSpec, MasterSpec
from bpusim.scenario import load_scenario

REST = """
models: {m: {trace: a.trace, cores: bpu0}}
streams: {s: {chat: m, prompt: 1, output: 1}}
"""
CAM = "  masters: {cam: {rate: 2 GB/s, written: 1}}\n"
CLOSED = "  masters: {cam: {rate: 2 GB/s, written: 1, window: 4 KiB}}\n"


class Desk:
    """A folder in which machines are written and loaded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "a.trace").write_text("")

    def machine(self, text: str) -> MachineSpec:
        (self.folder / "a.yaml").write_text(f"machine:\n  preset: bpu80\n{text}{REST}", encoding="utf-8")
        return load_scenario(self.folder / "a.yaml").machine

    def refusal(self, text: str) -> str:
        with pytest.raises(ScenarioError) as caught:
            self.machine(text)
        return str(caught.value).replace(f"{self.folder}/", "")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


# What a good file becomes


def test_a_machine_has_no_masters_unless_it_names_them(desk: Desk) -> None:
    assert desk.machine("").masters == {}


def test_an_open_loop_master_has_a_buffer_and_no_break(desk: Desk) -> None:
    assert desk.machine(CAM).masters == {"cam": MasterSpec(rate="2 GB/s", written=1.0)}
    cam = desk.machine(CAM).masters["cam"]
    assert (cam.rate, cam.written, cam.on, cam.period, cam.buffer) == (2 * 10**9, 1.0, None, None, 32768)
    assert (cam.window, cam.latency) == (None, 0)


def test_a_master_may_have_bursts_a_buffer_a_window_and_a_path(desk: Desk) -> None:
    masters = desk.machine(
        "  masters:\n"
        "    cam: {rate: 2 GB/s, written: 0.5, on: 4 ms, period: 33 ms, buffer: 64 KiB}\n"
        "    gpu.0: {rate: 8 GB/s, written: 0, window: 8 KiB, latency: 200 ns}\n"
    ).masters
    assert list(masters) == ["cam", "gpu.0"]
    cam, gpu = masters.values()
    assert (cam.written, cam.on, cam.period, cam.buffer) == (0.5, 4 * 10**9, 33 * 10**9, 65536)
    assert (gpu.window, gpu.latency) == (8192, 200_000)


@pytest.mark.parametrize(
    ("arbitration", "key", "value"),
    [
        ("strict", "order", "[cam, bpu1]"),
        ("weighted", "weights", "{cam: 2, cpu: 0.5}"),
        ("regulated", "limits", "{cam: 1 GB/s, bpu1: 6 GB/s}"),
    ],
)
def test_arbitration_may_name_cores_the_cpu_and_masters(desk: Desk, arbitration: str, key: str, value: str) -> None:
    dram = desk.machine(CLOSED + f"  dram: {{arbitration: {arbitration}, {key}: {value}}}\n").dram
    found = {"order": ["cam", "bpu1"], "weights": {"cam": 2, "cpu": 0.5}, "limits": {"cam": 10**9, "bpu1": 6 * 10**9}}
    assert getattr(dram, key) == found[key]


# Masters

CASES = [
    (
        "{bpu1: {rate: 2 GB/s, written: 1}}",
        "a.yaml:2:3: error: machine: masters: bpu1 is the name of another master; choose another",
    ),
    (
        "{cpu: {rate: 2 GB/s, written: 1}}",
        "a.yaml:2:3: error: machine: masters: cpu is the name of another master; choose another",
    ),
    (
        "{cam: {rate: 0 GB/s, written: 1}}",
        "a.yaml:3:25: error: machine.masters.cam.rate: '0 GB/s' is out of range; write more than 0",
    ),
    (
        "{cam: {rate: 2, written: 1}}",
        "a.yaml:3:25: error: machine.masters.cam.rate: 2 has no unit; write a bandwidth such as '17.1 GB/s'",
    ),
    (
        "{cam: {rate: 2 GB/s, written: 50}}",
        "a.yaml:3:42: error: machine.masters.cam.written: 50 is out of range; write at most 1",
    ),
    (
        "{cam: {rate: 2 GB/s, written: -0.5}}",
        "a.yaml:3:42: error: machine.masters.cam.written: -0.5 is out of range; write 0 or more",
    ),
    (
        "{cam: {rate: 2 GB/s, written: 1, on: 4 ms}}",
        "a.yaml:3:18: error: machine.masters.cam: on and period go together; "
        "write on: 4 ms and period: 33 ms, or neither",
    ),
    (
        "{cam: {rate: 2 GB/s, written: 1, period: 4 ms}}",
        "a.yaml:3:18: error: machine.masters.cam: on and period go together; "
        "write on: 4 ms and period: 33 ms, or neither",
    ),
    (
        "{cam: {rate: 2 GB/s, written: 1, on: 5 ms, period: 4 ms}}",
        "a.yaml:3:18: error: machine.masters.cam: on exceeds period; "
        "lower it, or leave both out for traffic without a break",
    ),
    (
        "{cam: {rate: 2 GB/s, written: 1, on: 0 ms, period: 4 ms}}",
        "a.yaml:3:49: error: machine.masters.cam.on: '0 ms' is out of range; write more than 0",
    ),
    (
        "{cam: {rate: 2 GB/s, written: 1, latency: 200 ns}}",
        "a.yaml:3:18: error: machine.masters.cam: latency means nothing without a window: "
        "an open-loop master does not wait",
    ),
    (
        "{cam: {rate: 2 GB/s, written: 1, window: 1 B}}",
        "a.yaml:3:53: error: machine.masters.cam.window: '1 B' is out of range; write 64 B or more",
    ),
    (
        "{cam: {rate: 2 GB/s, written: 1, window: 4 KiB, buffer: 4 KiB}}",
        "a.yaml:3:18: error: machine.masters.cam: buffer means nothing beside a window: "
        "a closed-loop master waits and drops nothing",
    ),
    ("[cam]", "a.yaml:3:12: error: machine.masters: a list is not a mapping; write 'key: value' entries"),
    ("{cam: 3}", "a.yaml:3:18: error: machine.masters.cam: 3 is not a mapping; write 'key: value' entries"),
]


@pytest.mark.parametrize(("masters", "message"), CASES)
def test_a_wrong_master_is_one_problem_at_its_place(desk: Desk, masters: str, message: str) -> None:
    assert desk.refusal(f"  masters: {masters}\n") == message


@pytest.mark.parametrize(
    ("masters", "message"),
    [
        (
            "{'a/b': {rate: 2 GB/s, written: 1}}",
            "a.yaml:3:13: error: machine.masters: 'a/b' cannot be a name; write one without '/' that can be printed",
        ),
        (
            "{cam: {rate: 2 GB/s}}",
            "a.yaml:3:13: error: machine.masters.cam: 'written' is missing; "
            "add written: part of its bytes that is written, 0 to 1",
        ),
        (
            "{cam: {rate: 2 GB/s, writen: 1}}",
            "a.yaml:3:33: error: machine.masters.cam: unknown key 'writen'; did you mean 'written'?",
        ),
    ],
)
def test_a_wrong_key_of_a_master_comes_with_advice(desk: Desk, masters: str, message: str) -> None:
    assert desk.refusal(f"  masters: {masters}\n") == message


# Arbitration


@pytest.mark.parametrize(
    ("dram", "message"),
    [
        (
            "{arbitration: strict, order: [cam, gpu]}",
            "a.yaml:4:44: error: machine.dram.order.1: the machine has no DRAM master 'gpu'; did you mean 'cpu'?",
        ),
        (
            "{arbitration: weighted, weights: {bpu0: 0}}",
            "a.yaml:4:49: error: machine.dram.weights.bpu0: 0 is out of range; write more than 0",
        ),
        (
            "{arbitration: weighted, weights: {bpu0: 2000000}}",
            "a.yaml:4:49: error: machine.dram.weights.bpu0: 2000000 is out of range; write at most 1e+06",
        ),
        (
            "{arbitration: regulated, limits: {bpu0: 6}}",
            "a.yaml:4:49: error: machine.dram.limits.bpu0: 6 has no unit; write a bandwidth such as '17.1 GB/s'",
        ),
        (
            "{arbitration: regulated, limits: {bpu0: 0 GB/s}}",
            "a.yaml:4:49: error: machine.dram.limits.bpu0: '0 GB/s' is out of range; write 1 MB/s or more",
        ),
        (
            "{arbitration: strict, order: [cam, cam]}",
            "a.yaml:4:9: error: machine.dram: order names a master twice; "
            "name each once, from the first served to the last",
        ),
        (
            "{arbitration: lottery}",
            "a.yaml:4:23: error: machine.dram.arbitration: 'lottery' is not one of proportional, equal, strict, "
            "weighted, regulated",
        ),
        (
            "{channels: 0}",
            "a.yaml:4:20: error: machine.dram.channels: 0 is out of range; write 1 or more",
        ),
    ],
)
def test_a_wrong_arbitration_is_one_problem_at_its_place(desk: Desk, dram: str, message: str) -> None:
    assert desk.refusal(CLOSED + f"  dram: {dram}\n") == message


@pytest.mark.parametrize(
    ("dram", "path", "wrong", "right"),
    [
        ("arbitration: weighted\n    weights:\n      bpu0: 2\n      cma: 1", "weights.cma", "cma", "cam"),
        ("arbitration: regulated\n    limits:\n      cam: 1 GB/s\n      bpu2: 1 GB/s", "limits.bpu2", "bpu2", "bpu1"),
    ],
)
def test_a_weight_or_limit_of_nobody_is_reported_on_its_line(
    desk: Desk, dram: str, path: str, wrong: str, right: str
) -> None:
    message = desk.refusal(f"{CLOSED}  dram:\n    {dram}\n")
    place, _, what = message.partition(" error: ")
    assert place.startswith("a.yaml:8:")
    assert what == f"machine.dram.{path}: the machine has no DRAM master '{wrong}'; did you mean '{right}'?"


@pytest.mark.parametrize(
    ("dram", "path"),
    [
        ("{arbitration: strict, order: [bpu0, cam]}", "order.1"),
        ("{arbitration: weighted, weights: {cam: 2}}", "weights.cam"),
        ("{arbitration: regulated, limits: {cam: 1 GB/s}}", "limits.cam"),
    ],
)
def test_an_open_loop_master_has_no_part_in_arbitration(desk: Desk, dram: str, path: str) -> None:
    assert desk.refusal(f"{CAM}  dram: {dram}\n").partition(" error: ")[2] == (
        f"machine.dram.{path}: 'cam' is open-loop: it takes its rate before all others; "
        "leave it out, or give it a window"
    )


NEEDS = {
    "strict": "strict arbitration needs an order; write order: [bpu0, bpu1]",
    "weighted": "weighted arbitration needs weights; write weights: {bpu0: 3, bpu1: 1}",
    "regulated": "regulated arbitration needs limits; write limits: {bpu1: 6 GB/s}",
}


@pytest.mark.parametrize("arbitration", NEEDS)
@pytest.mark.parametrize("rest", ["", "empty"])
def test_a_policy_needs_its_key(desk: Desk, arbitration: str, rest: str) -> None:
    empty = {"strict": ", order: []", "weighted": ", weights: {}", "regulated": ", limits: {}"}[arbitration]
    message = desk.refusal(f"  dram: {{arbitration: {arbitration}{rest and empty}}}\n")
    assert message == f"a.yaml:3:9: error: machine.dram: {NEEDS[arbitration]}"


KEYS = {"order": ("strict", "[bpu0]"), "weights": ("weighted", "{bpu0: 3}"), "limits": ("regulated", "{bpu1: 6 GB/s}")}


@pytest.mark.parametrize("policy", ["proportional", "equal"])
@pytest.mark.parametrize("key", KEYS)
def test_a_key_of_another_policy_is_refused(desk: Desk, key: str, policy: str) -> None:
    wanted, value = KEYS[key]
    assert desk.refusal(f"  dram: {{arbitration: {policy}, {key}: {value}}}\n") == (
        f"a.yaml:3:9: error: machine.dram: {key} means nothing to {policy} arbitration; "
        f"remove it or write arbitration: {wanted}"
    )


def test_a_policy_with_its_key_has_no_use_for_anothers(desk: Desk) -> None:
    message = desk.refusal("  dram: {arbitration: weighted, weights: {bpu0: 3}, limits: {bpu1: 6 GB/s}}\n")
    assert message.endswith("limits means nothing to weighted arbitration; remove it or write arbitration: regulated")


def test_all_problems_of_masters_and_arbitration_come_at_once(desk: Desk) -> None:
    message = desk.refusal(
        "  dram:\n"
        "    arbitration: regulated\n"
        "    limits: {bpu0: 6, gpu: 1 GB/s}\n"
        "  masters:\n"
        "    cam: {rate: 2, written: 1}\n"
        "    out: {rate: 2 GB/s, written: 1, on: 1 ms}\n"
    )
    lines = [line.split(" error:")[0] for line in message.splitlines()]
    assert lines == ["a.yaml:5:20:", "a.yaml:5:23:", "a.yaml:7:17:", "a.yaml:8:10:"]
