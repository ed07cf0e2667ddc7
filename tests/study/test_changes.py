"""Which single changes apply to a scenario, and how they are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bpusim.metrics.explanation import Change, Untried
from bpusim.scenario import load_scenario
from bpusim.study.changes import changes_of
from bpusim.study.siblings import Siblings
from bpusim.system import System
from bpusim.system.load import load_traces
from bpusim.trace import Trace, load_trace, save_trace

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT / "traces"


def found(name: str, *sets: str) -> tuple[dict[str, Change], dict[str, Untried]]:
    scenario = load_scenario(ROOT / "scenarios" / f"{name}.yaml", sets)
    changes, untried = changes_of(scenario, load_traces(scenario))
    return {c.name: c for c in changes}, {u.name: u for u in untried}


def test_rates_and_clocks_are_exact() -> None:
    changes, _ = found("single_3b", "machine.dram.speed=1.1")
    assert changes["DRAM 10 % faster"].sets == ("machine.dram.speed=1.21",)
    assert changes["DMA port 10 % faster"].sets == ("machine.cores.dma.port=18.81 GB/s",)
    assert changes["DMA window 10 % larger"].sets == ("machine.cores.dma.window=18048 B",)
    assert changes["core clock x 2"].sets == ("machine.cores.clock=2.4414 GHz",)


def test_what_the_host_does_well_already_is_not_tried() -> None:
    changes, untried = found("tuning/1_out_of_the_box")
    names = {
        "no log of ops": "host.logging=off",
        "memory pool": "host.memory_pool=on",
        "async submit": "host.submit=async",
    }
    for name, sets in names.items():
        assert changes[name].sets == (sets,)
        assert name not in untried
    changes, untried = found("tuning/5_async_submit")
    assert not changes.keys() & names.keys()
    assert {untried[n].why for n in names} == {"it is so already"}


def test_clocks_that_a_governor_keeps_low_may_go_up() -> None:
    points, sleep = "[{clock: 1.2207 GHz}, {clock: 400 MHz}]", "{after: 5 ms, wake: 1 ms}"
    cores = f"machine.clocks.cores={{governor: userspace, fixed: 400 MHz, sleep: {sleep}, points: {points}}}"
    changes, _ = found("single_3b", cores)
    top = changes["cores at their highest clock"].sets
    assert top == ("machine.clocks.cores.governor=performance", "machine.clocks.cores.fixed=null")
    found("single_3b", cores, *top)
    assert changes["cores never asleep"].sets == ("machine.clocks.cores.sleep=null",)


def test_a_fan_comes_with_its_trip_where_trips_are_the_scenarios_own() -> None:
    plain, _ = found("thermal_fast")
    assert plain["a fan"].sets == ("machine.cooling.preset=small_fan",)
    own, _ = found("thermal_fast_dram")
    for changes, name in ((plain, "thermal_fast"), (own, "thermal_fast_dram")):
        changed = load_scenario(ROOT / "scenarios" / f"{name}.yaml", changes["a fan"].sets)
        cooling = changed.machine.cooling
        assert cooling is not None
        assert cooling.zones["soc"].trips[0].devices == ["fan"]
        assert not any(w.code == "idle-fan" for w in System.build(changed).warnings)


@pytest.mark.parametrize(
    ("name", "sets", "why"),
    [
        ("single_3b", (), "nothing is said of heat; see machine.cooling"),
        ("thermal_fan", (), "it has one"),
        (
            "single_3b",
            ("machine.cooling=bare_die",),
            "the heat path has other nodes than small_fan; write one into machine.cooling.fan",
        ),
    ],
)
def test_where_there_is_no_fan_to_add(name: str, sets: Sequence[str], why: str) -> None:
    assert found(name, *sets)[1]["a fan"].why == why


# --- other traces


def test_siblings_are_of_the_same_source_and_differ_in_one_thing() -> None:
    fallback = TRACES / "qwen2.5-3b-int4-fallback.trace"
    beside = Siblings(fallback, load_trace(fallback))
    assert beside.without_fallbacks() == TRACES / "qwen2.5-3b-int4.trace"
    assert beside.with_weights("int8") is None  # the int8 trace has no CPU ops: that would be two changes
    plain = Siblings(TRACES / "qwen2.5-3b-int4.trace", load_trace(TRACES / "qwen2.5-3b-int4.trace"))
    assert plain.with_weights("int8") == TRACES / "qwen2.5-3b-int8.trace"


@pytest.mark.parametrize(
    "differing", [{"chunk": 0}, {"context": 2048}, {"source": {"sha256": "0"}}, {"target": {"mac.rows": 64}}]
)
def test_what_differs_in_more_is_no_sibling(tmp_path: Path, differing: dict[str, Any]) -> None:
    one, two = (load_trace(TRACES / f"qwen2.5-3b-{n}.trace") for n in ("int4", "int8"))
    save_trace(one, tmp_path / "a.trace")
    save_trace(replace(two, header=replace(two.header, **differing)), tmp_path / "b.trace")
    (tmp_path / "damaged.trace").write_text(next(iter((TRACES / "qwen2.5-3b-int8.trace").open())))
    assert Siblings(tmp_path / "a.trace", one).with_weights("int8") is None
    save_trace(two, tmp_path / "c.trace")
    assert Siblings(tmp_path / "a.trace", one).with_weights("int8") == tmp_path / "c.trace"


def test_commands_that_would_make_them() -> None:
    trace = load_trace(TRACES / "qwen2.5-3b-int4-fallback.trace")
    beside = Siblings(Path("x.trace"), trace)
    model = "bpusim compile qwen2.5-3b-int4-genai.onnx --machine bpu80 --quant"
    assert beside.command() == f"{model} int4 -o x-no-fallback.trace"
    assert beside.command(plan="int8") == f"{model} int8 --fallback-op Sigmoid -o x-int8.trace"


Alone = Callable[[Trace], Path]


@pytest.fixture
def alone(tmp_path: Path) -> Alone:
    """Writes a trace into a folder of its own."""

    def write(trace: Trace) -> Path:
        save_trace(trace, tmp_path / "x.trace")
        return tmp_path / "x.trace"

    return write


def test_where_no_trace_is_beside_the_command_is_told(alone: Alone) -> None:
    file = alone(load_trace(TRACES / "qwen2.5-3b-int4-fallback.trace"))
    _, untried = found("single_3b", f"models.chat.trace={file}")
    assert untried["no CPU fallback"].do.endswith("--quant int4 -o x-no-fallback.trace")
    assert "--quant int8" in untried["int8 weights for chat"].do


def test_fallbacks_that_nobody_asked_for_are_told_with_their_reason(alone: Alone) -> None:
    trace = load_trace(TRACES / "qwen2.5-3b-int4-fallback.trace")
    report = {"cpu_fallbacks": {"Sigmoid": {"count": 36, "why": "the toolchain has none"}}}
    file = alone(replace(trace, header=replace(trace.header, report=report, command="")))
    _, untried = found("single_3b", f"models.chat.trace={file}")
    assert "Sigmoid: the toolchain has none" in untried["no CPU fallback"].why
    assert untried["no CPU fallback"].do == untried["int8 weights for chat"].do == ""


# --- places


def test_a_model_alone_beside_an_idle_core_may_be_split() -> None:
    changes, _ = found("single_3b")
    split = changes["chat: a part of its layers on each of bpu0, bpu1"].sets
    assert split == ("models.chat.cores=[bpu0, bpu1]", "models.chat.split=even")
    assert changes["chat: each op over bpu0, bpu1"].sets[1:] == ("models.chat.split=tensor", "models.chat.sync=20 us")
    _, untried = found("dual_replica")
    assert "no core is idle" in untried["left split over cores"].why


@pytest.mark.parametrize("name", ["pipeline_split", "tensor_split"])
def test_a_split_model_may_go_back_to_one_core_or_be_split_otherwise(name: str) -> None:
    changes, _ = found(name)
    back = load_scenario(ROOT / "scenarios" / f"{name}.yaml", changes["chat on bpu0 alone"].sets).models["chat"]
    assert (back.cores, back.split, back.sync) == (("bpu0",), None, None)
    (other,) = [c for n, c in changes.items() if n.startswith("chat: ")]
    again = load_scenario(ROOT / "scenarios" / f"{name}.yaml", other.sets).models["chat"]
    assert again.split == ("tensor" if name == "pipeline_split" else "even")


def test_models_that_share_a_core_may_part() -> None:
    changes, _ = found("hetero_one_core")
    assert changes["chat on bpu1"].sets == ("models.chat.cores=bpu1",)
    assert changes["detector on bpu1"].sets == ("models.detector.cores=bpu1",)
    _, untried = found("multimodal_loop")
    assert untried["another core"].why == "no core is emptier"


def test_replicas_may_be_one_with_a_batch_or_share_a_core() -> None:
    changes, _ = found("dual_replica")
    assert changes["left for all, a batch of 2"].sets == ("streams.bob.chat=left", "models.left.batch=2")
    assert changes["left, right on bpu0"].sets == ("models.right.cores=bpu0",)


def test_several_users_may_be_a_batch_and_a_batch_none() -> None:
    changes, _ = found("single_3b", "streams.alice.users=3")
    assert changes["chat with a batch of 3"].sets == ("models.chat.batch=3",)
    changes, _ = found("batch")
    assert changes["chat without a batch"].sets == ("models.chat.batch=1",)


def test_pinned_traces_stay(alone: Alone) -> None:
    trace = load_trace(TRACES / "qwen2.5-0.5b-int4.trace")
    file = alone(replace(trace, header=replace(trace.header, cores=(0,))))
    _, untried = found("single_3b", f"models.chat.trace={file}")
    assert untried["chat split over cores"].why == "its trace is pinned"
