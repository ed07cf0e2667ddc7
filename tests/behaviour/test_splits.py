"""Behaviour of models over several cores that users of real boards report (shared/cases, BH rows)."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from small_board import CHAT, DETECTOR, SCENARIOS, cam, chat, folder, frames

from bpusim import simulate
from bpusim.hardware import machine_preset
from bpusim.metrics import Result
from bpusim.scenario import load_scenario
from bpusim.system.channels import table_of
from bpusim.trace import Header, Op, Phase, Repeat, Tensor, Trace, save_trace

# Tensor split: several cores work on each op


def _net(name: str, *items: Op | Repeat) -> str:
    """A net of these ops, compiled for the machine, as a file."""
    target = machine_preset("bpu80").cores.fingerprint()
    path = Path(folder()) / f"{name}.trace"
    read = {b.removeprefix("w:"): c[0] for i in items for op in getattr(i, "body", (i,)) for b, c in op.read.items()}
    tensors = tuple(Tensor(b, size) for b, size in read.items())
    save_trace(Trace(Header(name, target), tensors, {"frame": Phase("frame", 0, ("1",), items)}), path)
    return str(path)


def _team(net: str, n: int, sync: str = "0 us", **more: Any) -> Result:
    """The net over ``n`` cores, one frame after another, ops without overhead."""
    spread = {"models.d.split": "tensor", "models.d.sync": sync} if n > 1 else {}
    cores = [f"bpu{i}" for i in range(n)] if n > 1 else "bpu0"
    changes = {
        "models.d.trace": net,
        "models.d.cores": cores,
        "machine.cores.count": 3,
        "machine.cores.op_overhead": "0 us",
    }
    return cam("rate: 2 Hz, count: 5", set={**changes, **spread, **more})


def _ms(result: Result) -> float:
    value = frames(result).latency_mean_ms
    assert value is not None
    return value


def test_what_part_of_the_time_is_split_bounds_the_gain() -> None:
    """BH-10: 20 % splittable time on three cores: the plan says which ops, and the gain is 1 / (1 - f + f / n)."""
    net = _net("bh10", Op("a", "Softmax", "vector", cycles=(24_000_000,)), Op("b", "Conv", "mac", cycles=(6_000_000,)))
    one, three = _team(net, 1), _team(net, 3)
    plan = three.splits["d"].phases["frame"]
    assert plan.split == pytest.approx({"Conv": 0.2})
    assert plan.left == pytest.approx({"Softmax": 0.8})
    assert plan.bound == pytest.approx(1 / (1 - 0.2 + 0.2 / 3))
    on_core = [frames(r).breakdown_ms["compute"] for r in (one, three)]
    assert on_core[0] / on_core[1] == pytest.approx(plan.bound, rel=1e-9)
    assert _ms(one) - _ms(three) == pytest.approx(on_core[0] - on_core[1], abs=1e-6)
    # Loads of 95, 15 and 15 % there: the first core alone has what is not split.
    loads = [three.cores[f"bpu{k}"].occupied_fraction for k in range(3)]
    assert loads[1] == loads[2] == pytest.approx(loads[0] * (0.2 / 3) / (0.8 + 0.2 / 3))


@pytest.mark.parametrize("n", [2, 3])
def test_softmax_left_on_one_core_stays_as_long_as_it_was(n: int) -> None:
    """BH-21: 30 % of the time: latency = serial part + rest / n; told to split it too, all is shared."""
    ops = [
        Op("qk", "MatMul", "mac", cycles=(4_200_000,)),
        Op("s", "Softmax", "vector", cycles=(3_600_000,)),
        Op("v", "MatMul", "mac", cycles=(4_200_000,)),
    ]
    net = _net("bh21", *ops)
    whole = frames(_team(net, 1)).breakdown_ms["compute"]
    result = _team(net, n)
    assert result.splits["d"].phases["frame"].left == pytest.approx({"Softmax": 0.3})
    assert frames(result).breakdown_ms["compute"] == pytest.approx(whole * (0.3 + 0.7 / n), rel=1e-9)
    both = _team(net, n, **{"models.d.unsplit": []})
    assert frames(both).breakdown_ms["compute"] == pytest.approx(whole / n, rel=1e-9)


@cache
def _stack(layers: int, n: int, live: int = 0, sync: str = "0 us") -> float:
    """ms of equal convolutions of 0.4575 ms with ``live`` bytes of channels, on a host that takes 0.48."""
    op = Op("c", "Conv", "mac", cycles=(558_470,), read={"w:c": (147_456,)}, scratch=(live,))
    net = _net(f"bh25-{layers}-{live}", Repeat(layers, "layers", (op,)))
    return _ms(_team(net, n, sync, **{"machine.host.per_frame": "416 us"}))


def test_a_stack_of_equal_layers_has_a_fixed_part_and_one_for_each_layer() -> None:
    """BH-25: 8, 16, 24 layers: 4.13, 7.82, 11.45 ms = 0.48 + 0.4575 n."""
    assert [_stack(n, 1) for n in (8, 16, 24)] == pytest.approx([4.13, 7.82, 11.45], rel=0.005)


@pytest.mark.parametrize("live", [0, 802_816])
@pytest.mark.parametrize("n", [2, 3])
def test_so_it_has_over_several_cores(n: int, live: int) -> None:
    """BH-25: each layer takes its part and its exchange; the first needs none."""
    eight, sixteen, more = (_stack(layers, n, live) for layers in (8, 16, 24))
    assert more - sixteen == pytest.approx(sixteen - eight, rel=1e-4)
    each = (more - eight) / 16
    assert each >= 0.4575 / n
    assert eight - 8 * each <= 0.49
    barriers = 7
    assert _stack(8, n, live, "20 us") - eight == pytest.approx(barriers * 0.020, rel=1e-6)


def test_cores_gain_nearly_their_number_on_a_stack_of_convolutions() -> None:
    """BH-25: 1.00, 1.90, 2.80 there. Here the fixed part alone would leave 1.92 and 2.77. Barriers that cost nothing
    drain the DMA, so that each layer waits for the first of its weights: 1.87 and 2.67. So that board has no room for
    barriers of 20 us (1.74, 2.41), nor for channels that pass through memory: 0.8 MB of them leave 1.56 and 1.92."""
    one = _stack(24, 1)
    free, paid, moved = ([one / _stack(24, n, *how) for n in (2, 3)] for how in ((), (0, "20 us"), (802_816,)))
    ideal = [one / (one - 24 * 0.4575 * (1 - 1 / n)) for n in (2, 3)]
    assert ideal == pytest.approx([1.92, 2.77], abs=0.005)
    assert free == pytest.approx([1.90, 2.80], rel=0.05)
    assert all(f < i for f, i in zip(free, ideal, strict=True))
    assert paid == pytest.approx([one / (one / f + 23 * 0.020) for f in free], rel=1e-6)
    assert moved == pytest.approx([1.56, 1.92], abs=0.01)


@cache
def _decode(n: int, sync: str = "0 us", *, wide: bool = False) -> Result:
    """The 1.5B on one core or two; ``wide``: a core's DMA takes the whole channel alone."""
    dma = {"machine.cores.dma.port": "25.6 GB/s", "machine.cores.dma.window": "64 KiB"} if wide else {}
    spread = {"models.chat.sync": sync} if n > 1 else {}
    name = "tensor_split" if n > 1 else "single_1_5b"
    return simulate(SCENARIOS / f"{name}.yaml", set={**dma, **spread})


def _tpot(result: Result) -> float:
    value = chat(result, "alice").tpot_mean_ms
    assert value is not None
    return value


def test_decode_over_two_cores_gains_what_the_channel_has_to_spare() -> None:
    """BH-53: 1.31 there, each card with a channel of its own. Here one core reads 17.1 of 25.6 GB/s and two together
    22.6, so that no call can gain more than 1.32, even with barriers that cost nothing but what they drain."""
    table = table_of(load_scenario(SCENARIOS / "tensor_split.yaml"))
    dma = machine_preset("bpu80").cores.dma
    alone, both = table.alone(dma.window, dma.latency, dma.port), table.capacity(2)
    assert (alone, both) == (17_100_000_000, pytest.approx(22.56e9, rel=1e-3))
    one, two = (chat(_decode(n), "alice").breakdown_ms for n in (1, 2))
    in_calls = [sum(b[c] for c in ("compute", "dram", "contention", "dispatch", "sync")) for b in (one, two)]
    assert 0.98 * both / alone < in_calls[0] / in_calls[1] < both / alone
    assert _tpot(_decode(1)) / _tpot(_decode(2)) == pytest.approx(1.26, abs=0.01)  # the host's 8.7 ms stay
    assert one["host"] == two["host"]


def test_a_core_that_takes_the_whole_channel_alone_gains_nothing_from_another() -> None:
    """BH-53: then two cores share what one had, and decoding is bound by it: 1.0 less what barriers drain."""
    gain = _tpot(_decode(1, wide=True)) / _tpot(_decode(2, wide=True))
    assert 0.95 < gain <= 1.0


def test_each_barrier_of_a_step_costs_its_sync() -> None:
    """BH-53: 28 layers with four barriers and one before the head; at 150 us the second core makes decoding slower."""
    barriers = 28 * 4 + 1
    for us in (20, 150):
        assert _tpot(_decode(2, f"{us} us")) - _tpot(_decode(2)) == pytest.approx(barriers * us / 1000, rel=1e-6)
    assert _tpot(_decode(2, "20 us")) < _tpot(_decode(1)) < _tpot(_decode(2, "150 us"))


def test_a_split_of_layers_gains_nothing_where_a_split_of_ops_does() -> None:
    """BH-12 against BH-53: layers in turn leave one core idle, ops over both use what the channel has to spare."""
    spread = {"models.chat.split": "tensor", "models.chat.sync": "20 us"}
    layers, ops = (chat(simulate(SCENARIOS / "pipeline_split.yaml", set=s), "alice").tpot_mean_ms for s in ({}, spread))
    one = chat(simulate(SCENARIOS / "single_3b.yaml"), "alice").tpot_mean_ms
    assert ops is not None
    assert one is not None
    assert layers is not None
    assert ops < one < layers


def test_a_line_by_bytes_sees_calls_of_several_cores() -> None:
    """A core that waits at a barrier has work: a detector that may go anywhere goes to the third core."""
    path = Path(folder()) / "balance.yaml"
    path.write_text(
        "machine: {preset: bpu80, cores: {count: 3}}\nmodels:\n"
        f"  m: {{trace: '{CHAT}', cores: [bpu0, bpu1], split: tensor, sync: 1 ms}}\n"
        f"  d: {{trace: '{DETECTOR}', cores: any, balance: bandwidth}}\n"
        "streams:\n  a: {chat: m, prompt: 250, output: 20}\n"
        "  c: {frames: d, rate: 20 Hz, count: 12, jitter: 5 ms, queue: 3}\n"
    )
    result = simulate(path)
    assert frames(result, "c").dropped == 0
    assert result.cores["bpu2"].calls >= 10
