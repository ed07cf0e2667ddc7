"""Which part of a model runs on which core."""

from __future__ import annotations

from typing import Any

import pytest

from bpusim.errors import TraceError
from bpusim.runtime import PlacedModel, keep_weights, place
from bpusim.trace import Header, Op, Phase, Repeat, Tensor, Trace


def layers(n: int = 4, **header: Any) -> Trace:
    items = (Repeat(n, "layers", (Op("a", "A", "mac", cycles=(1,)),)),)
    return Trace(Header("m", {}, **header), (), {p: Phase(p, 0, ("1", "kv"), items) for p in ("decode", "frame")})


def counts(trace: Trace) -> int:
    return sum(i.count for i in trace.phases["frame"].items if isinstance(i, Repeat))


def test_a_model_on_one_core_is_whole() -> None:
    trace = layers()
    model, warnings = place("chat", trace, [1], None, 64)
    assert (model.parts, model.context, warnings) == (((1, trace),), 64, [])


@pytest.mark.parametrize("split", [None, "even"])
def test_a_model_on_two_cores_is_split_evenly(split: str | None) -> None:
    model, _ = place("chat", layers(5), [0, 1], split, 64)
    assert [(core, counts(t)) for core, t in model.parts] == [(0, 2), (1, 3)]


def test_a_split_by_numbers_of_layers_goes_to_the_cores_in_order() -> None:
    model, _ = place("chat", layers(4), [1, 0], [3, 1], 64)
    assert [(core, counts(t)) for core, t in model.parts] == [(1, 3), (0, 1)]


def test_a_split_that_does_not_sum_to_the_layers_is_an_error() -> None:
    with pytest.raises(TraceError, match="it has 4 repeated layers"):
        place("chat", layers(4), [0, 1], [3, 2], 64)


def test_a_pinned_trace_stays_where_it_is_and_says_how_to_move_it() -> None:
    trace = layers(cores=(0,))
    model, warnings = place("chat", trace, [1], None, 64)
    assert model.parts == ((0, trace),)
    assert warnings == [
        "model 'chat' asks for bpu1, but its trace is compiled for cores [0] and stays there; "
        "compile it with --cores 1 to move it"
    ]


def test_a_pinned_trace_that_is_asked_for_two_cores_is_not_split() -> None:
    trace = layers(cores=(1,))
    model, warnings = place("chat", trace, [0, 1], None, 64)
    assert model.parts == ((1, trace),)
    assert warnings == [
        "model 'chat' asks for bpu0, bpu1, but its trace is compiled for cores [1] and stays there; "
        "compile it with --cores any to move it"
    ]


def test_a_pinned_trace_where_it_is_pinned_needs_no_warning() -> None:
    assert place("chat", layers(cores=(1,)), [1], None, 64)[1] == []
    assert place("chat", layers(cores=(0, 1)), [1, 0], None, 64)[1] == []


def test_a_trace_pinned_to_several_cores_runs_on_any_of_them() -> None:
    trace = layers(cores=(0, 1))
    model, warnings = place("chat", trace, [1], None, 64)
    assert (model.parts, warnings) == (((1, trace),), [])


# Programs


def test_what_comes_again_is_bound_once() -> None:
    model = place("m", layers(), [0], None, 64)[0]
    assert model.bind(0, "frame", 0, 1) is model.bind(0, "frame", 0, 1)


def test_another_position_is_another_program() -> None:
    model = place("m", layers(), [0], None, 64)[0]
    assert model.bind(0, "frame", 0, 1) is not model.bind(0, "frame", 1, 1)


def test_a_decode_step_is_bound_each_time() -> None:
    model = place("m", layers(), [0], None, 64)[0]
    assert model.bind(0, "decode", 5, 1).kvs == (5,)
    assert model.bind(0, "decode", 5, 1) is not model.bind(0, "decode", 5, 1)


def test_no_more_programs_are_kept_than_needed() -> None:
    model = place("m", layers(), [0], None, 64)[0]
    first = model.bind(0, "frame", 0, 1)
    for kv in range(1, 65):
        model.bind(0, "frame", kv, 1)
    assert model.bind(0, "frame", 0, 1) is not first


def net(name: str, *sizes: int) -> PlacedModel:
    """A model on core 1 that reads tensors of these sizes, once each."""
    ops = tuple(Op(f"o{k}", "A", "mac", read={f"w:t{k}": (n,)}) for k, n in enumerate(sizes))
    trace = Trace(
        Header(name, {}),
        tuple(Tensor(f"t{k}", n) for k, n in enumerate(sizes)),
        {"frame": Phase("frame", 0, ("1",), ops)},
    )
    return PlacedModel(name, trace, ((1, trace),), 0)


MIB = 1 << 20


def split_of(model: PlacedModel) -> tuple[float, float]:
    """(MiB that stay on chip, MiB that are streamed by each later frame)."""
    kept = model.on_chip[0][1] if 0 in model.on_chip else 0
    model.warm.update(model.on_chip)
    streamed = model.bind(0, "frame", 0, 1).traffic().get(("weights", False), 0)
    assert kept + streamed == model.trace.resident_bytes
    return kept / MIB, streamed / MIB


def test_who_comes_first_decides_who_streams() -> None:
    """BH-17: 7.16 MiB cached and 2.95 streamed, the other 0 and 4.53; and the other way round."""
    sizes = [round(x * MIB) for x in (5, 5.11, 4.53, 7.16)]
    for first in ("a", "b"):
        a, b = net("a", *sizes[:2]), net("b", sizes[2])
        keep_weights([a, b] if first == "a" else [b, a], sizes[3])
        got = split_of(a), split_of(b)
        want = ((7.16, 2.95), (0, 4.53)) if first == "a" else ((2.63, 7.48), (4.53, 0))
        for mine, theirs in zip(got, want, strict=True):
            assert mine == pytest.approx(theirs, abs=1e-5)
        assert got[0][0] + got[1][0] == pytest.approx(7.16, abs=1e-6)


def test_cores_have_rooms_of_their_own() -> None:
    a, b = net("a", 100), net("b", 70)
    b.parts = ((0, b.trace),)
    keep_weights([a, b], 80)
    assert (a.on_chip[0][1], b.on_chip[0][1]) == (80, 70)


def test_a_model_for_any_core_keeps_nothing() -> None:
    a = net("a", 100)
    a.anywhere = (0, 1)
    keep_weights([a], 80)
    assert not a.on_chip
