"""Behaviour of runtimes and streams that users of real boards report (shared/cases, BH rows): ratios, signs, laws."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bpusim import simulate
from bpusim.errors import BpusimError
from bpusim.hardware import machine_preset
from bpusim.metrics import ChatStats, FrameStats, Result
from bpusim.scenario import load_scenario
from bpusim.system.channels import table_of
from bpusim.trace import Header, Op, Phase, Repeat, Tensor, Trace, save_trace

SCENARIOS = Path(__file__).resolve().parent.parent / "scenarios"
TRACES = SCENARIOS.parent / "traces"
DETECTOR = TRACES / "resnet50-992.trace"
CHAT = TRACES / "qwen2.5-0.5b-int4.trace"


@cache
def alone() -> float:
    """ms of a frame of the detector with nothing beside it."""
    value = frames(cam("rate: 2 Hz, count: 4")).latency_mean_ms
    assert value is not None
    return value


def run(streams: dict[str, str], more: str = "", models: str = "", **keys: Any) -> Result:
    """A detector ``d`` on core 1 and a 0.5B ``m`` on core 0, and these streams."""
    path = Path(_folder()) / "case.yaml"
    entries = "\n".join(f"  {name}: {{{text}}}" for name, text in streams.items())
    known = f"  m: {{trace: '{CHAT}', cores: bpu0}}\n  d: {{trace: '{DETECTOR}', cores: bpu1}}\n{models}"
    path.write_text(f"machine: bpu80\nmodels:\n{known}\nstreams:\n{entries}\n{more}\n")
    return simulate(path, **keys)


@cache
def _folder() -> str:
    import tempfile

    return tempfile.mkdtemp(prefix="bpusim-behaviour-")


def cam(text: str, more: str = "", **keys: Any) -> Result:
    return run({"cam": f"frames: d, {text}"}, more, **keys)


def frames(result: Result, name: str = "cam") -> FrameStats:
    stats = result.streams[name]
    assert isinstance(stats, FrameStats)
    return stats


def chat(result: Result, name: str = "a") -> ChatStats:
    stats = result.streams[name]
    assert isinstance(stats, ChatStats)
    return stats


def test_jobs_in_rotation_give_one_stream_no_gain() -> None:
    """BH-12: a chain of dependent jobs over two cores is no faster than on one."""
    one = chat(simulate(SCENARIOS / "single_3b.yaml"), "alice").tpot_mean_ms
    two = chat(simulate(SCENARIOS / "pipeline_split.yaml"), "alice").tpot_mean_ms
    assert one is not None
    assert two is not None
    assert two > one


@cache
def _clients(n: int) -> float:
    """Frames a second of one model that any of three cores may run, asked by so many clients at once."""
    result = cam(
        f"rate: 1000 Hz, queue: 8, threads: {n}", "run: {until: 3 s}",
        set={"models.d.cores": "any", "machine.cores.count": 3, "machine.dram.preset": "LPDDR5-6400x64"},
    )  # fmt: skip
    return frames(result).fps


def test_clients_scale_to_the_number_of_cores_and_level_off() -> None:
    """BH-11: near linear to three (2.4 there: the third meets the others in the memory), then flat within 10 %."""
    rates = {n: _clients(n) for n in range(1, 7)}
    assert rates[2] / rates[1] > 1.8
    assert rates[3] / rates[1] > 2.2
    for n in (4, 5, 6):
        assert rates[n] == pytest.approx(rates[3], rel=0.10)


def test_any_core_gives_one_client_nothing() -> None:
    """BH-09: a core mask is no parallelism: the latency of a frame is what it was, whichever core is free."""
    one, any_ = (cam("rate: 10 Hz, count: 20", set={"models.d.cores": c}) for c in ("bpu1", "any"))
    assert frames(any_).latency_mean_ms == frames(one).latency_mean_ms
    assert "idle-core" not in [w.code for w in any_.warnings]


def test_a_trace_pinned_to_a_core_stays_there_whatever_core_would_do(tmp_path: Path) -> None:
    """R22."""
    pinned = tmp_path / "pinned.trace"
    text = DETECTOR.read_text().replace('"cores":"any"', '"cores":[1]', 1)
    pinned.write_text(text)
    result = cam("rate: 10 Hz, count: 5", set={"models.d.cores": "any", "models.d.trace": str(pinned)})
    assert result.cores["bpu0"].calls == 0
    assert result.cores["bpu1"].calls == 5


def test_a_long_prompt_lets_others_in_between_its_chunks() -> None:
    """A prompt of 1024 tokens is four calls of a chunk each: a decode step beside it waits for one, not for four."""
    users = {
        "a": "chat: m, prompt: 8, output: 60",
        "long": "chat: m, prompt: 1024, output: 1, start: 500 ms",
    }
    result = run(users)
    prompt = chat(result, "long").ttft_mean_ms
    worst = chat(result).itl_p99_ms
    assert prompt is not None
    assert worst is not None
    assert chat(result).itl_p50_ms is not None
    assert worst < prompt / 2


def test_a_model_compiled_for_one_core_leaves_the_other_idle_and_says_so() -> None:
    """BH-13."""
    result = run({"a": "chat: m, prompt: 8, output: 2"}, models="")
    assert result.cores["bpu1"].occupied_fraction == 0
    assert "unused-model" in [w.code for w in result.warnings]


@pytest.mark.parametrize(("overlap", "bound"), [("on", "the slowest stage"), ("off", "their sum")])
def test_a_camera_pipeline_is_bound_by_its_slowest_stage_or_by_the_sum(overlap: str, bound: str) -> None:
    """BH-26, BH-37: the model is a small part of it; the core is idle most of the time."""
    result = cam(f"rate: 100 Hz, after: {{cpu: 150 ms}}, overlap: {overlap}", "run: {until: 20 s}")
    pace = 1000 / frames(result).fps
    # Four CPU cores take frames behind the model; each waits for the next one's call, which one thread submits.
    expected = (150 + alone()) / 4 if overlap == "on" else 150 + alone()
    assert pace == pytest.approx(expected, rel=0.02), bound
    if overlap == "off":
        assert result.cores["bpu1"].occupied_fraction < 0.12


def test_a_second_client_on_one_core_adds_little() -> None:
    """BH-27: throughput rises by what the core waited for the host, latency doubles."""
    one, two = (cam(f"rate: 200 Hz, threads: {n}", "run: {until: 5 s}") for n in (1, 2))
    gain = frames(two).fps / frames(one).fps
    assert 1.0 < gain < 1.1
    assert two.cores["bpu1"].occupied_fraction > 0.99
    first, second = frames(one).breakdown_ms, frames(two).breakdown_ms
    assert second["queueing"] - first["queueing"] == pytest.approx(alone(), rel=0.15)


def test_a_core_that_is_not_there_is_an_error_with_those_that_are() -> None:
    """BH-27."""
    with pytest.raises(BpusimError, match="bpu2"):
        run({"a": "chat: m, prompt: 8, output: 2"}, set={"models.m.cores": "bpu2"})


def test_each_context_has_a_copy_of_the_weights() -> None:
    """BH-40: entries of models are copies, and three of them fit or are refused with the table."""
    copies = "".join(f"  m{k}: {{trace: '{CHAT}', cores: bpu0}}\n" for k in (1, 2))
    one = run({"a": "chat: m, prompt: 8, output: 2"})
    three = run({"a": "chat: m, prompt: 8, output: 2"}, models=copies)
    weights = 323_400_000
    assert three.resident_bytes - one.resident_bytes > 2 * weights
    with pytest.raises(BpusimError, match="are usable"):
        run({"a": "chat: m, prompt: 8, output: 2"}, models=copies, set={"machine.dram.usable": "1 GB"})


def test_rates_of_streams_add_up_in_utilisation() -> None:
    """BH-44: 20 and 10 runs a second of one net occupy the core for their sum."""
    two = run({"f": "frames: d, rate: 20 Hz", "g": "frames: d, rate: 10 Hz, start: 25 ms"}, "run: {until: 10 s}")
    each = cam("rate: 2 Hz", "run: {until: 10 s}").cores["bpu1"].occupied_fraction / 2
    assert two.cores["bpu1"].occupied_fraction == pytest.approx(30 * each, rel=0.01)


def test_a_design_rate_is_not_what_full_speed_says() -> None:
    """BH-47: at 20 Hz the latency is that of a frame alone and the memory is idle most of the time."""
    design, full = (cam(f"rate: {hz} Hz, queue: 2", "run: {until: 5 s}") for hz in (20, 200))
    assert frames(design).latency_p99_ms == pytest.approx(alone(), rel=0.01)
    assert (frames(full).latency_p99_ms or 0) > 1.4 * alone()
    ratio = full.dram.to_dict()["achieved_bytes_per_s"] / design.dram.to_dict()["achieved_bytes_per_s"]
    assert ratio == pytest.approx(frames(full).fps / frames(design).fps, rel=0.02)


def test_a_line_without_room_for_drops_grows_until_it_stands_still() -> None:
    """BH-48: 100 frames a second come and some 56 are served: the line grows by the difference, latency with it."""
    result = cam("rate: 100 Hz, queue: 100000", "run: {until: 10 s}")
    stats = frames(result)
    served = 1000 / (alone() - 0.2)
    assert stats.fps == pytest.approx(served, rel=0.05)
    assert stats.line_most == pytest.approx((100 - stats.fps) * 10, rel=0.02)
    assert stats.latency_p99_ms == pytest.approx(1000 * stats.line_most / 100, rel=0.05)


def test_drop_policies_under_overload() -> None:
    """BH-48: the newest frame is dropped or the oldest: as many go through, those that do are older with newest."""
    newest, oldest = (
        frames(cam(f"rate: 100 Hz, queue: 4, drop: {d}", "run: {until: 5 s}")) for d in ("newest", "oldest")
    )
    assert newest.fps == pytest.approx(oldest.fps, rel=0.01)
    assert (newest.latency_mean_ms or 0) > (oldest.latency_mean_ms or 0) + 10
    assert [w.code for w in cam("rate: 100 Hz", "run: {until: 5 s}").warnings].count("frames-dropped") == 1


def test_a_slower_pace_frees_the_memory_in_proportion() -> None:
    """BH-50: half the tokens a second take half the bandwidth in the mean; each step takes what it took."""
    free, paced = (
        run({"a": f"chat: m, prompt: 8, output: 200{pace}"}, "run: {until: 5 s}") for pace in ("", ", pace: 15 Hz")
    )
    rates = [r.dram.to_dict()["achieved_bytes_per_s"] / chat(r).decode_tokens_per_s for r in (free, paced)]
    assert rates[1] == pytest.approx(rates[0], rel=0.02)
    assert chat(paced).decode_tokens_per_s == pytest.approx(15, rel=0.01)
    assert chat(paced).breakdown_ms["dram"] == pytest.approx(chat(free).breakdown_ms["dram"], rel=0.01)


def test_a_long_call_holds_up_every_token_behind_it() -> None:
    """BH-52: one prompt every half second on the same core: the median gap is a step, the p99 a step and a prefill."""
    users = {
        "a": "chat: m, prompt: 8, output: 400, requests: forever",
        "embed": "chat: m, prompt: 256, output: 1, arrivals: {every: 500 ms}, requests: forever",
    }
    result = run(users, "run: {until: 20 s}", set={"models.m.sequences": 2})
    step = chat(run({"a": "chat: m, prompt: 8, output: 60"})).itl_p50_ms
    assert step is not None
    assert chat(result).itl_p50_ms == pytest.approx(step, rel=0.03)
    assert (chat(result).itl_p99_ms or 0) > step + 30


# Tensor split: several cores work on each op


def _net(name: str, *items: Op | Repeat) -> str:
    """A net of these ops, compiled for the machine, as a file."""
    target = machine_preset("bpu80").cores.fingerprint()
    path = Path(_folder()) / f"{name}.trace"
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
    barriers of 20 us (1.74, 2.41), nor for channels that pass through memory: 0.8 MB of them leave 1.56 and 1.93."""
    one = _stack(24, 1)
    free, paid, moved = ([one / _stack(24, n, *how) for n in (2, 3)] for how in ((), (0, "20 us"), (802_816,)))
    ideal = [one / (one - 24 * 0.4575 * (1 - 1 / n)) for n in (2, 3)]
    assert ideal == pytest.approx([1.92, 2.77], abs=0.005)
    assert free == pytest.approx([1.90, 2.80], rel=0.05)
    assert all(f < i for f, i in zip(free, ideal, strict=True))
    assert paid == pytest.approx([one / (one / f + 23 * 0.020) for f in free], rel=1e-6)
    assert moved == pytest.approx([1.56, 1.93], abs=0.01)


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
    23.1, so that no call can gain more than 1.35, even with barriers that cost nothing but what they drain."""
    table = table_of(load_scenario(SCENARIOS / "tensor_split.yaml"))
    dma = machine_preset("bpu80").cores.dma
    alone, both = table.alone(dma.window, dma.latency, dma.port), table.capacity(2)
    assert (alone, both) == (17_100_000_000, pytest.approx(23.05e9, rel=1e-3))
    one, two = (chat(_decode(n), "alice").breakdown_ms for n in (1, 2))
    in_calls = [sum(b[c] for c in ("compute", "dram", "contention", "dispatch", "sync")) for b in (one, two)]
    assert 0.98 * both / alone < in_calls[0] / in_calls[1] < both / alone
    assert _tpot(_decode(1)) / _tpot(_decode(2)) == pytest.approx(1.28, abs=0.01)  # the host's 8.7 ms stay
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


CHAT_USE = {"a": "chat: m, prompt: 8, output: 2", "cam": "frames: d, rate: 10 Hz, count: 2"}


def test_a_model_that_no_heap_takes_is_an_error_with_gigabytes_free() -> None:
    """BH-39: names the block, the heap, the shortfall, and the place of the model."""
    heaps = {"machine.dram.heaps": {"npu0": "300 MB", "npu1": "300 MB"}}
    with pytest.raises(BpusimError) as caught:
        run(CHAT_USE, set=heaps)
    text = str(caught.value)
    assert "no heap takes m.weights of 323.4 MB: the largest free stretch is 300 MB in 'npu0', 23.4" in text
    assert "though 600 MB are free in all" in text
    assert "case.yaml:3:" in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"machine.dram.heaps": {"x": "5 GB", "y": "1 GB"}}, "heaps of 6 GB exceed the usable 5.5 GB"),
        ({"models.m.heap": "x"}, "the memory has no heap 'x'; add machine.dram.heaps"),
        ({"machine.dram.heaps": {"npu0": "1 GB"}, "models.m.heap": "npu"}, "did you mean 'npu0'"),
        ({"machine.dram.heaps": {"a/b": "1 GB"}}, "cannot be a name"),
    ],
)
def test_heaps_that_cannot_be_are_errors(changes: dict[str, object], message: str) -> None:
    with pytest.raises(BpusimError, match=message):
        run(CHAT_USE, set=changes)


def test_heaps_change_nothing_but_addresses() -> None:
    """BH-39: what fits runs as before, and the result has the map."""
    heaps = {"machine.dram.heaps": {"npu0": "400 MB", "npu1": "700 MB"}, "models.d.heap": "npu1"}
    plain, cut = run(CHAT_USE), run(CHAT_USE, set=heaps)
    assert cut.elapsed == plain.elapsed
    assert "heaps" not in plain.to_dict()["memory"]
    table = cut.to_dict()["memory"]["heaps"]
    assert list(table["npu0"]["blocks_bytes"]) == ["m.weights", "m.kv"]
    assert list(table["npu1"]["blocks_bytes"]) == ["m.workspace", "d.weights", "d.workspace"]
    assert sum(h["used_bytes"] for h in table.values()) == cut.resident_bytes == plain.resident_bytes


def test_addresses_follow_the_heaps_at_bank_fidelity() -> None:
    """BH-39: a model alone in the second heap lies behind the first one; its speed is that of memory anywhere."""
    from bpusim.scenario import load_scenario
    from bpusim.system.build import System

    bank = {"engine.dram": "bank", "machine.dram.heaps": {"npu0": "800 MB", "npu1": "700 MB"}, "models.d.heap": "npu1"}
    path = Path(_folder()) / "bank.yaml"
    known = f"  m: {{trace: '{CHAT}', cores: bpu0}}\n  d: {{trace: '{DETECTOR}', cores: bpu1}}\n"
    path.write_text(f"machine: bpu80\nmodels:\n{known}streams:\n  cam: {{frames: d, rate: 10 Hz, count: 2}}\n")
    system = System.build(load_scenario(path, bank))
    regions = system.channel._regions  # type: ignore[union-attr]
    second = -(-800_000_000 // 4096) * 4096
    assert regions["bpu0"]["weights"][0] == 0
    assert regions["bpu1"]["weights"][0] == second
    assert regions["cpu"]["weights"][0] == second + 700_000_000
    flow = simulate(path, set={k: v for k, v in bank.items() if k != "engine.dram"})
    assert frames(system.run()).latency_mean_ms == pytest.approx(frames(flow).latency_mean_ms, rel=0.05)


DETECTOR_BYTES = 23_561_152
SLOW_STORAGE = {"models.d.load": {"rate": "400 MB/s", "fixed": "70 ms"}}


def test_the_first_frame_waits_for_its_weights_and_is_counted_apart() -> None:
    """BH-32: of 100 frames the first takes the load and the session on top; means and percentiles leave it out."""
    warm = frames(cam("rate: 4 Hz, count: 100"))
    cold = frames(cam("rate: 4 Hz, count: 100", set=SLOW_STORAGE))
    loading = DETECTOR_BYTES / 400e3 + 70
    assert (warm.cold.count, cold.cold.count) == (0, 1)
    assert cold.frames == 100
    assert cold.cold.breakdown_ms["loading"] == pytest.approx(loading, abs=0.001)
    assert cold.cold.mean_ms == pytest.approx(loading + alone(), abs=0.001)
    assert sum(cold.cold.breakdown_ms.values()) == pytest.approx(cold.cold.mean_ms, abs=1e-9)
    assert cold.breakdown_ms["loading"] == 0
    for figure in ("latency_mean_ms", "latency_p50_ms", "latency_p99_ms"):
        assert getattr(cold, figure) == pytest.approx(getattr(warm, figure), abs=1e-6)


def test_loading_moves_the_weights_through_the_channel() -> None:
    """BH-32: they are written to memory once, at no more than the storage's rate."""
    result = cam("rate: 4 Hz, count: 3", set=SLOW_STORAGE)
    assert result.dram.moved["cpu"]["weights", True] == DETECTOR_BYTES
    assert "cpu" not in cam("rate: 4 Hz, count: 3").dram.moved


def test_what_is_loaded_in_time_is_not_cold() -> None:
    """BH-32: a load that begins with the run is over after 129 ms."""
    early = SLOW_STORAGE | {"models.d.load.when": "start"}
    for start, count in (("120 ms", 1), ("130 ms", 0)):
        assert frames(cam(f"rate: 4 Hz, count: 3, start: {start}", set=early)).cold.count == count


def test_models_are_loaded_one_after_the_other() -> None:
    """BH-32: one storage serves both; the second waits for the first one's bytes, not for its session."""
    load = "{rate: 400 MB/s, fixed: 70 ms, when: start}"
    result = run(
        {"f": "frames: d, rate: 2 Hz, count: 2", "g": "frames: e, rate: 2 Hz, count: 2"},
        models=f"  e: {{trace: '{DETECTOR}', cores: bpu1, load: {load}}}\n",
        set=SLOW_STORAGE | {"models.d.load.when": "start"},
    )
    bytes_ms, waits = DETECTOR_BYTES / 400e3, [frames(result, n).cold.breakdown_ms["loading"] for n in "fg"]
    assert waits == pytest.approx([bytes_ms + 70 - 0.6, 2 * bytes_ms + 70 - 0.6], abs=0.01)  # 0.6 ms is per_frame


def test_a_cold_chat_and_a_cold_pipeline_are_counted_apart() -> None:
    """BH-32: the first token of the first request; the first run of a pipeline, to each of its ends."""
    load = {"models.m.load": {"rate": "1 GB/s"}, "models.d.load": {"rate": "1 GB/s"}}
    users = {"a": "chat: m, prompt: 8, output: 3, requests: 3"}
    cold, warm = chat(run(users, set=load)), chat(run(users))
    assert (cold.cold.count, cold.requests, cold.tokens) == (1, 3, 9)
    assert cold.cold.breakdown_ms["loading"] == pytest.approx(323.433, abs=0.01)
    assert cold.ttft_mean_ms == pytest.approx(warm.ttft_mean_ms, rel=1e-3)
    assert cold.e2e_p99_ms == pytest.approx(warm.e2e_p99_ms, rel=1e-3)
    stages = "{see: {frames: d}, say: {chat: m, after: see, prompt: 8, output: 2}}"
    loop = f"pipeline: {stages}, trigger: {{every: 1 s}}, count: 3"
    end = run({"loop": loop}, set=load).to_dict()["streams"]["loop"]["ends"]["say"]
    assert end["cold"] == 1
    assert end["cold_breakdown_ms"]["loading"] == pytest.approx(323.433 + 23.561, abs=0.01)
    assert end["breakdown_ms"]["loading"] == 0


SRAM = "16 MiB"


@pytest.mark.parametrize("first", ["d", "e"])
def test_the_order_of_models_decides_who_streams(first: str) -> None:
    """BH-17: two models of 23.6 MB on a core that keeps 16 MiB of weights: the sums match, and so does the memory."""
    room, frames_each = 16 << 20, 5
    order = f"  e: {{trace: '{DETECTOR}', cores: bpu1}}\n"
    path = Path(_folder()) / "sram.yaml"
    known = f"  d: {{trace: '{DETECTOR}', cores: bpu1}}\n"
    models = known + order if first == "d" else order + known
    streams = "".join(f"  {m}: {{frames: {m}, rate: 5 Hz, count: {frames_each}}}\n" for m in "de")
    path.write_text(
        f"machine: {{preset: bpu80, cores: {{weights_sram: {SRAM}}}}}\nmodels:\n{models}streams:\n{streams}"
    )
    result = simulate(path)
    table = {w.model: (w.resident, w.streamed) for w in result.weights}
    other = "e" if first == "d" else "d"
    assert table == {first: (room, DETECTOR_BYTES - room), other: (0, DETECTOR_BYTES)}
    # All of both comes once; later frames read what is streamed.
    read = 2 * DETECTOR_BYTES + (frames_each - 1) * sum(streamed for _, streamed in table.values())
    assert result.dram.moved["bpu1"]["weights", False] == read


def test_resident_weights_save_their_time_in_the_channel() -> None:
    """BH-24: a decode step that waits for its weights is faster by what stays on chip, over the port's rate."""
    users = {"a": "chat: m, prompt: 8, output: 40"}
    streamed, kept = (chat(run(users, set=s)) for s in ({}, {"machine.cores.weights_sram": "64 MiB"}))
    saved = (streamed.tpot_mean_ms or 0) - (kept.tpot_mean_ms or 0)
    assert saved == pytest.approx((64 << 20) / 17.1e6, rel=0.05)


SLOW = {"machine.host.cores": 2, "machine.host.slow": {"cores": 4, "speed": 0.4}}


def _cpu_stage(affinity: str, parts: int | str = "cores", **more: object) -> float:
    """ms that a frame spends in a CPU stage of 120 ms: at work, and in line for a core behind parts of its own."""
    text = f"rate: 1 Hz, count: 2, after: {{cpu: 120 ms}}, affinity: {affinity}, parts: {parts}"
    spent = frames(cam(text, set=SLOW | more)).breakdown_ms
    return spent["host"] + spent["queueing"] - 0.6


def test_work_over_fast_and_slow_cores_waits_for_the_slowest() -> None:
    """BH-49: a part on each core. On all of them it takes what a sixth takes a slow one; on the fast ones alone a half
    each; starting and joining 6 ms a part makes all cores slower than the slow ones, and these than the fast ones."""
    free = {a: _cpu_stage(a) for a in ("fast", "slow", "any")}
    assert free == pytest.approx({"fast": 60, "slow": 30 / 0.4, "any": 20 / 0.4})
    paid = {a: _cpu_stage(a, **{"machine.host.join_per_part": "6 ms"}) for a in ("fast", "slow", "any")}
    assert paid == pytest.approx({"fast": 72, "slow": 54 / 0.4, "any": 56 / 0.4})
    assert paid["fast"] < paid["slow"] < paid["any"]


def test_six_parts_on_two_fast_and_four_slow_cores() -> None:
    """BH-49: the same six parts are three rounds on the fast cores, two on the slow ones, one on all."""
    at = {"machine.host.slow": {"cores": 4, "speed": 0.25}}
    six = {a: _cpu_stage(a, 6, **at) for a in ("fast", "slow", "any")}
    assert six == pytest.approx({"fast": 3 * 20, "slow": 2 * 20 / 0.25, "any": 20 / 0.25})
    assert six["any"] > six["fast"]  # all cores are slower than the two fast ones


def test_stages_of_a_pipeline_and_ops_of_the_cpu_may_be_cut() -> None:
    """BH-49."""
    loop = "pipeline: {work: {host: 120 ms, parts: 6, affinity: slow}}, trigger: {every: 1 s}, count: 2"
    streams = run({"p": loop}, set=SLOW).to_dict()["streams"]
    assert streams["p"]["ends"]["work"]["mean_ms"] == pytest.approx(2 * 20 / 0.4)
    path = SCENARIOS / "cpu_fallback.yaml"
    one, four = (chat(simulate(path, set={"host.fallback_parts": n}), "alice") for n in (1, "cores"))
    assert four.breakdown_ms["fallback"] < 0.4 * one.breakdown_ms["fallback"]


def test_the_runtime_on_slow_cores_takes_longer_over_its_work() -> None:
    """BH-49: all host work of a token, interrupts included, by the speed of the cores."""
    users = {"a": "chat: m, prompt: 8, output: 20"}
    fast, slow = (chat(run(users, set=SLOW | {"host.affinity": a})).breakdown_ms for a in ("any", "slow"))
    assert slow["host"] == pytest.approx(fast["host"] / 0.4, rel=1e-6)
    assert slow["dispatch"] > fast["dispatch"]
    assert slow["dram"] == pytest.approx(fast["dram"], rel=0.01)
    alike = chat(run(users)).breakdown_ms
    assert fast == pytest.approx(alike)  # one thread at a time is always on a fast core


@pytest.mark.parametrize(
    ("streams", "changes", "message"),
    [
        ({"a": "chat: m, prompt: 8, output: 2"}, {"host.affinity": "slow"}, "all CPU cores of the machine are alike"),
        ({"cam": "frames: d, rate: 1 Hz"}, SLOW | {"machine.host.slow.speed": 1.5}, "1.5 is out of range"),
        ({"cam": "frames: d, rate: 1 Hz, affinity: fast"}, SLOW, "affinity means nothing without a cpu stage"),
        ({"cam": "frames: d, rate: 1 Hz, after: {cpu: 1 ms}, parts: 0"}, SLOW, "not a number of parts"),
        ({"p": "pipeline: {w: {frames: d, parts: 2}}, trigger: {every: 1 s}"}, SLOW, "parts means nothing to frames"),
        ({"cam": "frames: d, rate: 1 Hz"}, {"machine.power.host.slow": "1 W"}, "power.host.slow is of no core"),
    ],
)
def test_cores_and_parts_that_would_do_nothing_are_errors(
    streams: dict[str, str], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(BpusimError, match=message):
        run(streams, "run: {until: 1 s}", set=changes)


def test_slow_cores_draw_by_their_speed_unless_told() -> None:
    """BH-49: as much work takes as much energy then; with a figure of their own it takes that."""
    text = "rate: 1 Hz, count: 5, after: {cpu: 200 ms}, affinity: "
    base = SLOW | {"machine.cooling": "passive_heatsink"}

    def work_j(affinity: str, **more: object) -> float:
        result = cam(text + affinity, set=base | more)
        assert result.heat is not None
        return result.heat.energy_j["host"] - 0.25 * result.elapsed / 1e12

    assert work_j("slow") == pytest.approx(work_j("fast"), rel=1e-3)
    own = work_j("slow", **{"machine.power.host.slow": "0.45 W"}) - work_j("slow")
    assert own == pytest.approx((0.45 - 0.18) * 5 * 0.2 / 0.4, rel=1e-3)


def test_a_split_over_more_cores_than_the_host_has_is_warned_about() -> None:
    """BH-14: the rule and both values."""
    path = SCENARIOS / "pipeline_split.yaml"
    few = {w.code: w.text for w in simulate(path, set={"machine.host.cores": 1}).warnings}
    assert "is split over 2 cores and the host has 1 CPU core:" in few["host-threads"]
    assert "machine.host.cores: 2" in few["host-threads"]
    assert "host-threads" not in [w.code for w in simulate(path).warnings]


def test_a_cut_of_cpu_ops_that_there_are_none_of_is_warned_about() -> None:
    result = cam("rate: 10 Hz, count: 2", set={"host.fallback_parts": 4})
    assert "parts-unused" in [w.code for w in result.warnings]


def test_cores_that_run_a_model_together_keep_shares_of_its_weights() -> None:
    """BH-17: of a tensor split each core keeps its share, and a step reads that much less."""
    short = {"streams.alice.output": 3, "streams.alice.requests": 1}
    path = SCENARIOS / "tensor_split.yaml"
    plain, kept = (simulate(path, set=short | s) for s in ({}, {"machine.cores.weights_sram": "64 MiB"}))
    (row,) = kept.weights
    assert row.core == "bpu0, bpu1"
    assert row.resident == pytest.approx(2 * (64 << 20), abs=4096)
    read = [sum(r.dram.moved[c]["weights", False] for c in ("bpu0", "bpu1")) for r in (plain, kept)]
    assert read[0] - read[1] == pytest.approx(2 * row.resident, rel=1e-3)  # the prefill was the first step


TURNS = {
    "models.d.load": {"rate": "400 MB/s", "fixed": "70 ms", "place": "one"},
    "models.e.load": {"rate": "400 MB/s", "place": "one"},
}
OTHER = f"  e: {{trace: '{DETECTOR}', cores: bpu1}}\n"


def test_models_that_do_not_both_fit_are_loaded_again_and_again() -> None:
    """BH-32, reloaded weights: alternating frames wait for the bytes each time, for the session once."""
    streams = {"f": "frames: d, rate: 2 Hz, count: 4", "g": "frames: e, rate: 2 Hz, count: 4, start: 250 ms"}
    result = run(streams, models=OTHER, set=TURNS)
    loading = DETECTOR_BYTES / 400e3
    first, other = frames(result, "f"), frames(result, "g")
    assert (first.cold.count, other.cold.count) == (1, 1)
    assert first.cold.breakdown_ms["loading"] == pytest.approx(loading + 70, abs=0.001)
    for stats in (first, other):
        assert stats.breakdown_ms["loading"] == pytest.approx(loading, abs=0.001)
        assert stats.latency_mean_ms == pytest.approx(loading + alone(), abs=0.01)
    assert result.dram.moved["cpu"]["weights", True] == 8 * DETECTOR_BYTES


def test_a_model_that_is_asked_again_at_once_stays() -> None:
    """BH-32: only who has to come back is loaded; a step waits for those of the other that came before it."""
    streams = {"f": "frames: d, rate: 20 Hz, count: 6", "g": "frames: e, rate: 1 Hz, count: 1, start: 400 ms"}
    result = run(streams, models=OTHER, set=TURNS)
    assert result.dram.moved["cpu"]["weights", True] == 2 * DETECTOR_BYTES
    assert frames(result, "f").breakdown_ms["loading"] == 0


def test_a_place_in_turn_takes_the_memory_of_the_largest() -> None:
    streams = {"f": "frames: d, rate: 2 Hz, count: 1", "g": "frames: e, rate: 2 Hz, count: 1"}
    both, turns = (run(streams, models=OTHER, set=s) for s in ({}, TURNS))
    assert both.resident_bytes - turns.resident_bytes == DETECTOR_BYTES
    heaps = {"machine.dram.heaps": {"npu0": "30 MB", "npu1": "700 MB"}}
    table = run(streams, models=OTHER, set=TURNS | heaps | {"models.m.heap": "npu1"}).heaps
    assert sum(h.used for h in table.values()) == turns.resident_bytes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models.e.load.place": "two"}, "no other model takes turns in place 'one'"),
        ({"models.d.load.when": "start", "models.e.load.when": "start"}, "d and e are both loaded at the start"),
        ({"models.d.heap": "a", "machine.dram.heaps": {"a": "2 GB", "b": "2 GB"}}, "are in different heaps"),
    ],
)
def test_places_that_cannot_be_are_errors(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BpusimError, match=message):
        run({"f": "frames: d, rate: 2 Hz, count: 1"}, models=OTHER, set=TURNS | changes)


# What an attack by a new user found


def test_a_line_by_bytes_sees_calls_of_several_cores() -> None:
    """A core that waits at a barrier has work: a detector that may go anywhere goes to the third core."""
    path = Path(_folder()) / "balance.yaml"
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


def test_weights_that_stay_on_chip_are_read_once_by_steps_that_come_together() -> None:
    sram = {"machine.cores.weights_sram": "900 MB"}
    one, two = (
        run({"a": f"chat: m, prompt: 40, output: 2, users: {n}, requests: {2 // n}"}, set=sram).dram.moved["bpu0"]
        for n in (1, 2)
    )
    assert one["weights", False] == two["weights", False]


def test_a_cold_request_is_in_no_figure_of_first_tokens_and_its_later_tokens_count() -> None:
    cold = chat(run({"a": "chat: m, prompt: 40, output: 8"}, set={"models.m.load": {"rate": "400 MB/s"}}))
    warm = chat(run({"a": "chat: m, prompt: 40, output: 8"}))
    assert (cold.ttft_mean_ms, cold.ttft_p99_ms, cold.e2e_mean_ms) == (None, None, None)
    assert (cold.tpot_mean_ms, cold.itl_p99_ms) == (warm.tpot_mean_ms, warm.itl_p99_ms)


def test_a_pinned_trace_that_may_run_anywhere_is_warned_about(tmp_path: Path) -> None:
    text = CHAT.read_text(encoding="utf-8").replace('"cores":"any"', '"cores":[0]', 1)
    (tmp_path / "pinned.trace").write_text(text, encoding="utf-8")
    result = run(
        {"a": "chat: p, prompt: 8, output: 2"}, models=f"  p: {{trace: '{tmp_path}/pinned.trace', cores: any}}\n"
    )
    (warning,) = [w.text for w in result.warnings if w.code == "pinned-trace"]
    assert "compile it with --cores any" in warning


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"machine.host.join_per_part": "1 us"}, "parts-unused"),
        ({"models.m.batch": 8}, "batch-unused"),
        ({"machine.host.cores": 1, "models.m.cores": ["bpu0", "bpu1"], "models.m.split": "tensor",
          "models.m.sync": "0 s"},
         "host-threads"),
    ],
)  # fmt: skip
def test_what_changes_nothing_is_warned_about(changes: dict[str, Any], code: str) -> None:
    result = run({"a": "chat: m, prompt: 8, output: 2"}, set=changes)
    assert code in [w.code for w in result.warnings]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models.m.cores": ["any"]}, "write cores: any, without a list"),
        ({"machine.host.cores": 10**9}, "1000000000 is out of range"),
        ({"models.m.cores": ["bpu0", "bpu1"], "models.m.split": "tensor", "models.m.sync": "1 us",
          "models.m.unsplit": ["GroupQueryAttention", "MatMulNBits", "Sigmoid", "Mul", "Add", "RotaryRows",
                               "GatherBlockQuantized", "SimplifiedLayerNormalization",
                               "SkipSimplifiedLayerNormalization"]}, "leaves nothing of model 'm' to split"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_one_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BpusimError, match=message) as caught:
        run({"a": "chat: m, prompt: 8, output: 2"}, set=changes)
    assert len(caught.value.problems) == 1
