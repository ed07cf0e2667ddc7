"""Calls that several cores run together, from round numbers: cores at 1 GHz, 40 ns to submit, 15 for the interrupt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpusim.cores import CallResult
from bpusim.errors import TraceError
from bpusim.metrics import Ledger
from bpusim.runtime import PlacedModel, Priority, Session, Terms, place_team
from bpusim.runtime.policies import POLICIES
from bpusim.trace import Op

Make = Callable[..., Any]
NS = 1000


def conv(ns: int = 100, **keys: Any) -> Op:
    """Each is behind a barrier if it is not the first."""
    return Op(f"conv{ns}", "Conv", "mac", cycles=(ns,), **keys)


def alone(ns: int) -> Op:
    """Left on one core."""
    return Op(f"softmax{ns}", "Softmax", "vector", cycles=(ns,))


def together(b: Any, *ops: Op, cores: Sequence[int] = (0, 1), sync: int = 0, name: str = "m") -> PlacedModel:
    return place_team(name, b.trace(*ops), cores, sync * NS, {"Softmax"}, 1000, 10**5)


def waits(b: Any, core: int) -> dict[str, int]:
    w = b.queues[core].waits
    w.change()
    found = {"host": w.host, "elsewhere": w.elsewhere, "nothing": w.nothing}
    return {why: t // NS for why, t in found.items() if t}


def call(b: Any, ns: int, core: int, at: int = 0, terms: Terms = Terms()) -> list[tuple[int, int]]:  # noqa: B008
    """A call of another stream on one core; when it began and ended, once it has."""
    out: list[tuple[int, int]] = []

    def ended(result: CallResult) -> None:
        out.append((result.start // NS, result.end // NS))

    (program,) = b.trace(b.op("x", ns)).bind("frame").calls

    def come() -> Any:
        yield b.env.timeout(at * NS)
        b.queues[core].submit(program, "x", "frame", ended, terms)

    b.env.process(come())
    return out


def test_an_op_takes_as_many_times_less_as_there_are_cores(bench: Make) -> None:
    b = bench(count=3)
    assert b.steps(together(b, conv(300), cores=(0, 1, 2))) == [(155, {"dispatch": 55, "compute": 100})]


def test_each_barrier_costs_its_sync_and_the_call_one_dispatch_and_one_interrupt(bench: Make) -> None:
    b = bench()
    model = together(b, conv(100), alone(50), conv(100), sync=7)
    assert b.steps(model) == [(55 + 50 + 7 + 50 + 7 + 50, {"dispatch": 55, "compute": 150, "sync": 14})]


def test_a_core_waits_for_another_while_an_op_runs_there_and_at_barriers(bench: Make) -> None:
    b = bench(async_submit=False)
    model = together(b, conv(100), alone(50), conv(100), sync=7)
    b.executor.begin(model)
    b.steps(model)
    assert waits(b, 0) == {"host": 55, "elsewhere": 14}
    assert waits(b, 1) == {"host": 55, "elsewhere": 64}


def test_the_gain_is_amdahls_law(bench: Make) -> None:
    """BH-10: 20 % splittable time over three cores, sync and the memory being free: 1 / (1 - f + f / n) exactly."""
    f, ops = 0.2, [alone(240), conv(60)]
    b = bench(count=3)
    ((one, _),) = b.steps(b.model(b.trace(*ops)))
    c = bench(count=3)
    ((three, _),) = c.steps(together(c, *ops, cores=(0, 1, 2)))
    assert (one - 55, three - 55) == (300, 260)
    assert (one - 55) / (three - 55) == pytest.approx(1 / (1 - f + f / 3), rel=1e-12)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_what_is_left_on_one_core_stays_as_long(bench: Make, n: int) -> None:
    """BH-21: 30 % Softmax: latency = serial part + rest / n."""
    b = bench(count=n)
    ((end, spent),) = b.steps(together(b, conv(840), alone(720), conv(840), cores=range(n)))
    assert end - 55 == spent["compute"] == 720 + 1680 // n


def test_what_is_exchanged_passes_through_the_memory(bench: Make) -> None:
    """Each core writes 1000 of 2000 bytes and reads the other's: 10 B/ns shared by two, so 200 ns each way, and 1 ns to
    the first byte of each part. They come in two tiles: beside the second one half of the op is computed."""
    b = bench()
    one, two = (conv(100, scratch=(2000,)) for _ in range(2))
    ((end, spent),) = b.steps(together(b, one, two))
    assert end == 55 + (1 + 50 + 200) + (1 + 200 + 25)
    assert sum(spent.values()) == end


# Other streams


def test_cores_wait_for_one_that_others_keep(bench: Make) -> None:
    """Core 1 is taken until 400; core 0 is at the barrier at 90 and waits there."""
    b = bench()
    call(b, 400, 1)
    assert b.steps(together(b, conv(100), conv(100))) == [
        (515, {"dispatch": 55, "compute": 100, "sync": 360}),
    ]


def test_a_core_that_has_begun_stays_with_the_call_while_it_waits(bench: Make) -> None:
    b = bench()
    call(b, 400, 1)
    other = call(b, 30, 0, at=100)
    b.steps(together(b, conv(100), conv(100)))
    b.env.run()
    assert other == [(500, 530)]


@pytest.mark.parametrize(("priority", "begins"), [(0, 500), (253, 500), (254, 100), (255, 100)])
def test_with_a_bound_what_may_interrupt_goes_first_at_a_barrier(bench: Make, priority: int, begins: int) -> None:
    b = bench(policy=Priority)
    model = together(b, conv(100), conv(100))
    call(b, 400, 1)
    other = call(b, 30, 0, at=100, terms=Terms(priority))
    b.steps(model, session=Session("s", Terms(max_call=10**9)))
    b.env.run()
    assert other == [(begins, begins + 30)]


def test_the_journal_has_the_call_once_for_each_core(bench: Make) -> None:
    b = bench(policy=Priority)
    call(b, 400, 1)
    call(b, 30, 0, at=100, terms=Terms(255))
    b.steps(together(b, conv(100), conv(100)), session=Session("s", Terms(max_call=10**9)))
    told = [(e.at // NS, e.core, e.what) for e in b.journal if e.call == "s/frame"]
    assert told == [
        (40, "bpu0", "submit"), (40, "bpu0", "begin"), (40, "bpu1", "submit"), (100, "bpu0", "interrupt"),
        (130, "bpu0", "resume"), (400, "bpu1", "begin"), (500, "bpu0", "end"), (500, "bpu1", "end"),
    ]  # fmt: skip


# No hang


class Prefers:
    """A policy for one stream, whatever comes."""

    def __init__(self, stream: str) -> None:
        self.stream = stream

    def pick(self, ready: Any, core: Any) -> Any:  # noqa: ARG002
        return min(ready, key=lambda c: (c.stream != self.stream, c.seq))


@pytest.mark.parametrize("max_call", [None, 10**9])
def test_two_models_on_the_same_cores_with_crossed_priorities_do_not_hang(bench: Make, max_call: int | None) -> None:
    """Core 0 prefers a and core 1 prefers b, and both are in line when the cores get free of other calls: if each began
    what it prefers, each would wait for the other for ever."""
    prefer = iter(("a", "b"))
    b = bench(policy=lambda: Prefers(next(prefer)))
    models = {n: together(b, conv(100), conv(100), name=n) for n in ("a", "b")}
    ended = []

    def user(name: str) -> Any:
        session = Session(name, Terms(254 if name == "a" else 0, max_call=max_call))
        for _ in range(5):
            yield from b.executor.step(session, models[name], "frame", 0, 1, Ledger())
        ended.append(name)

    for name in ("a", "b"):
        b.env.process(user(name))
    call(b, 100, 0)
    call(b, 120, 1)
    b.env.run()
    assert sorted(ended) == ["a", "b"]


def test_calls_that_share_a_core_take_turns_by_priority_then_as_they_come(bench: Make) -> None:
    b = bench(count=3, cpus=4)
    teams = {"a": (0, 1), "low": (1, 2), "high": (1, 2), "last": (0, 1)}
    ends: dict[str, int] = {}

    def user(name: str, after: int) -> Any:
        yield b.env.timeout(after * NS)
        model = together(b, conv(100), cores=teams[name], name=name)
        yield from b.executor.step(Session(name, Terms(int(name == "high"))), model, "frame", 0, 1, Ledger())
        ends[name] = b.env.now // NS

    for after, name in enumerate(teams):
        b.env.process(user(name, after))
    b.env.run()
    assert ends == {"a": 105, "high": 155, "low": 205, "last": 255}


def test_who_waits_for_a_core_is_not_overtaken_by_who_needs_another_of_its(bench: Make) -> None:
    """The second waits for core 1; core 2 is free, but the third would keep it from the second. The fourth is apart."""
    b = bench(count=6, cpus=4)
    teams = ((0, 1), (1, 2), (2, 3), (4, 5))
    ends = {}

    def user(k: int) -> Any:
        yield b.env.timeout(k * NS)
        model = together(b, conv(100), cores=teams[k], name=f"m{k}")
        yield from b.executor.step(Session(f"s{k}"), model, "frame", 0, 1, Ledger())
        ends[k] = b.env.now // NS

    for k in range(4):
        b.env.process(user(k))
    b.env.run()
    assert ends == {0: 105, 3: 108, 1: 155, 2: 205}


@st.composite
def mixes(draw: st.DrawFn) -> list[tuple[tuple[int, ...], list[Op], Terms]]:
    """Streams: which cores, what ops, on what terms."""
    ops = st.one_of(
        st.integers(0, 200).map(conv),
        st.integers(0, 200).map(alone),
        st.builds(
            lambda ns, size: conv(ns, scratch=(size,), read={"w:x": (size,)}), st.integers(0, 200), st.integers(0, 999)
        ),
    )
    stream = st.tuples(
        st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True).map(tuple),
        st.lists(ops, min_size=1, max_size=4),
        st.builds(Terms, st.sampled_from([0, 7, 254, 255]), st.just(1.0), st.sampled_from([None, 1, 150_000])),
    )
    return draw(st.lists(stream, min_size=1, max_size=5))


@settings(deadline=None)
@given(mix=mixes(), policy=st.sampled_from(sorted(POLICIES)), sync=st.integers(0, 30))
def test_whatever_runs_beside_whatever_all_ends_and_every_interval_has_one_cause(
    bench: Make, mix: list[tuple[tuple[int, ...], list[Op], Terms]], policy: str, sync: int
) -> None:
    b = bench(count=3, cpus=3, policy=POLICIES[policy])
    ended = []

    def user(k: int, cores: tuple[int, ...], ops: list[Op], terms: Terms) -> Any:
        trace = b.trace(*ops)
        model = PlacedModel(f"m{k}", trace, ((cores[0], trace),), 1000)
        if len(cores) > 1:
            model = together(b, *ops, cores=cores, sync=sync, name=f"m{k}")
        session = Session(f"s{k}", terms)
        b.executor.begin(model)
        for n in range(3):
            begin, ledger = b.env.now, Ledger()
            yield from b.executor.step(session, model, "frame", 0, 1, ledger, more=n < 2)
            assert sum(ledger.spent.values()) == b.env.now - begin
        b.executor.end(model)
        ended.append(k)

    for k, (cores, ops, terms) in enumerate(mix):
        b.env.process(user(k, cores, ops, terms))
    b.env.run()
    assert len(ended) == len(mix)
    for queue in b.queues.values():
        assert queue.load == 0
        w = queue.waits
        w.change()
        assert (w._running, w._host, w._elsewhere) == (0, 0, 0)


# Placement


def test_a_trace_for_one_core_is_refused(bench: Make) -> None:
    b = bench()
    trace = b.trace(conv(), cores=(0,))
    with pytest.raises(TraceError, match=r"cannot be spread over cores 0,1: its trace is compiled for cores \[0\]"):
        place_team("m", trace, [0, 1], 0, set(), 10, 10)


def test_a_trace_for_all_its_cores_is_spread(bench: Make) -> None:
    b = bench()
    assert place_team("m", b.trace(conv(), cores=(0, 1)), [1, 0], 0, set(), 10, 10).cores == (1, 0)
