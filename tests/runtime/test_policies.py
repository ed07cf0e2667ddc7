"""What runs when under each policy, on cases worked by hand.

A call of n tiles moves 10 B a tile at 10 B/ns and computes each in so many ns. It begins 2 ns after it is given to the
core: a nanosecond of latency, and one for its first tile. All after that is there before it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from bpusim.runtime import POLICIES, CoreQueue, Event, Policy, Terms
from bpusim.trace import CallProgram

NS = 1000
LEAD = 2
"""ns from when a call is given to a core to the first tile."""


@dataclass
class Line:
    """A core, its queue, and what happened."""

    bench: Any
    policy: str | Policy
    journal: list[Event] = field(default_factory=list)
    results: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        policy = POLICIES[self.policy]() if isinstance(self.policy, str) else self.policy
        self.queue = CoreQueue(self.bench.env, self.bench.cores[0], policy, self.journal)

    @property
    def log(self) -> list[tuple[int, str, str]]:
        """(ns, stream, "begins" or "ends"), from when it is on the core to when it is not."""
        said = {"begin": "begins", "resume": "begins", "interrupt": "ends", "end": "ends"}
        return [(e.at // NS, e.call.split("/")[0], said[e.what]) for e in self.journal if e.what in said]

    def call(self, tiles: int, each: int) -> CallProgram:
        b = self.bench
        op = b.op("a", tiles * each, read={"kv": (tiles * 10,)}, tiles=(tiles,))
        (call,) = b.trace(op).bind("frame").calls
        return call  # type: ignore[no-any-return]

    def submit(
        self, at: int, name: str, tiles: int, each: int = 100, *, bound: int | None = None, priority: int = 0,
        deadline: int | None = None, weight: float = 1.0, again: int = 0,
    ) -> None:  # fmt: skip
        """A call at ``at`` ns, and ``again`` so many more, each as soon as the one before is over."""
        terms = Terms(priority, weight, bound * NS if bound is not None else None)

        def go(_: object) -> None:
            nonlocal again
            due = deadline * NS if deadline is not None else None
            self.queue.submit(self.call(tiles, each), name, "frame", over, terms, due)

        def over(result: Any) -> None:
            nonlocal again
            self.results[name] = result
            if again:
                again -= 1
                go(None)

        self.bench.env.timeout(at * NS).callbacks.append(go)

    def run(self) -> list[tuple[int, str, str]]:
        self.bench.env.run()
        return self.log

    def order(self) -> list[str]:
        """Streams in the order in which they began or went on."""
        return [name for _, name, what in self.run() if what == "begins"]


@pytest.fixture
def line(bench: Callable[..., Any]) -> Callable[[str | Policy], Line]:
    return lambda policy: Line(bench(), policy)


Make = Callable[[Any], Line]


# Pieces


def test_a_bound_of_a_twentieth_splits_a_call_into_twenty(line: Make) -> None:
    """BH-45, RUNTIME_FACTS: 500 us split 10 ms into 20. Here 500 ns of 10 us, in a hundred tiles; the two ns of the
    lead are the first piece's."""
    it = line("fifo")
    call = it.call(100, 100)
    ends = it.bench.cores[0].pieces(call, 501 * NS)
    assert len(ends) + 1 == 20
    assert ends == [5 * k - 1 for k in range(1, 20)]


def test_a_piece_is_a_tile_at_least(line: Make) -> None:
    it = line("fifo")
    assert it.bench.cores[0].pieces(it.call(4, 100), 30 * NS) == [0, 1, 2]


@pytest.mark.parametrize(("at", "ends"), [(50, 102), (102, 102), (103, 202), (250, 302)])
def test_an_urgent_call_waits_for_the_end_of_the_piece(line: Make, at: int, ends: int) -> None:
    """Never longer than a piece; what is left goes on after it, and takes its lead again."""
    it = line("priority")
    it.submit(0, "normal", 4, bound=101)
    it.submit(at, "urgent", 1, priority=255)
    assert it.run() == [
        (0, "normal", "begins"),
        (ends, "normal", "ends"),
        (ends, "urgent", "begins"),
        (ends + 102, "urgent", "ends"),
        (ends + 102, "normal", "begins"),
        (ends + 102 + 402 - ends + 2, "normal", "ends"),
    ]
    result = it.results["normal"]
    assert result.suspended == 102 * NS
    assert sum(result.causes) + result.suspended == result.end - result.start


def test_without_a_bound_it_waits_for_the_whole_call(line: Make) -> None:
    it = line("priority")
    it.submit(0, "normal", 4)
    it.submit(50, "urgent", 1, priority=255)
    assert it.order() == ["normal", "urgent"]
    assert it.log[1] == (402, "normal", "ends")


def test_a_call_that_nobody_interrupts_takes_as_long_with_a_bound(line: Make) -> None:
    for bound in (None, 101):
        it = line("priority")
        it.submit(0, "a", 4, bound=bound)
        it.submit(50, "b", 1, priority=253)  # normal like it
        assert it.run()[1] == (402, "a", "ends")


def test_what_was_fetched_ahead_is_fetched_again(line: Make) -> None:
    """Of 40 B, 30 belong to pieces behind the first: all there when it ends, all lost, all moved twice."""
    it = line("priority")
    it.submit(0, "normal", 4, bound=101)
    it.submit(50, "urgent", 1, priority=255)
    it.run()
    assert it.bench.channel.moved()["bpu0"] == 40 + 30 + 10
    assert it.bench.recorder.moved_bytes["bpu0"] == {("kv", False): 40 + 30 + 10}


def test_what_is_under_way_when_it_is_interrupted_counts_as_far_as_it_has_come(line: Make) -> None:
    """Two tiles of 1000 B, 100 ns each on the way; computed 10 ns after. At the end of the first 10 ns of the second
    have passed: 100 B are lost."""
    it = line("priority")
    b = it.bench
    (call,) = b.trace(b.op("a", 20, read={"w:x": (2000,)}, tiles=(2,))).bind("frame").calls
    it.queue.submit(call, "normal", "frame", lambda _: None, Terms(max_call=110 * NS))
    it.submit(20, "urgent", 1, priority=255)
    assert it.run()[:3] == [(0, "normal", "begins"), (111, "normal", "ends"), (111, "urgent", "begins")]
    assert b.recorder.moved_bytes["bpu0"] == {("weights", False): 2100, ("kv", False): 10}
    assert b.channel.moved()["bpu0"] == 2110


# The rules of a BPU runtime


def test_preemptions_nest(line: Make) -> None:
    """BH-45: 255 before 254 before normal; each goes on when what interrupted it is over."""
    it = line("priority")
    it.submit(0, "normal", 4, bound=101)
    it.submit(50, "high", 4, priority=254, bound=101)
    it.submit(150, "urgent", 1, priority=255)
    assert it.order() == ["normal", "high", "urgent", "high", "normal"]
    assert [at for at, name, what in it.log if what == "ends"] == [102, 204, 306, 608, 910]


def test_normal_never_interrupts_normal_and_an_interrupted_one_goes_on_first(line: Make) -> None:
    """253 is normal. It waits for the one that was interrupted, which has priority 0."""
    it = line("priority")
    it.submit(0, "normal", 4, bound=101)
    it.submit(50, "high", 1, priority=254)
    it.submit(60, "first", 1, priority=253)
    it.submit(61, "second", 1, priority=7)
    assert it.order() == ["normal", "high", "normal", "first", "second"]


def test_254_does_not_interrupt_254(line: Make) -> None:
    it = line("priority")
    it.submit(0, "a", 4, priority=254, bound=101)
    it.submit(50, "b", 1, priority=254)
    assert it.order() == ["a", "b"]


def test_priority_inversion(line: Make) -> None:
    """A normal call without a bound holds the core while an urgent one waits, and one that comes later with a bound
    does not: what is missing is the bound of the low one, not the priority of the high one."""
    it = line("priority")
    it.submit(0, "low", 10)
    it.submit(50, "urgent", 1, priority=255)
    it.submit(60, "middle", 10, priority=100, bound=101)
    it.submit(1300, "urgent", 1, priority=255)
    assert it.order() == ["low", "urgent", "middle", "urgent", "middle"]
    assert [at for at, name, what in it.log if name == "urgent" and what == "begins"] == [1002, 1306]


# Others


def test_fifo_keeps_the_order_and_interrupts_nothing(line: Make) -> None:
    it = line("fifo")
    it.submit(0, "a", 4, bound=101)
    it.submit(10, "b", 1, priority=255, deadline=200)
    it.submit(20, "c", 1)
    it.submit(15, "d", 1)
    assert it.run() == [
        (0, "a", "begins"), (402, "a", "ends"), (402, "b", "begins"), (504, "b", "ends"),
        (504, "d", "begins"), (606, "d", "ends"), (606, "c", "begins"), (708, "c", "ends"),
    ]  # fmt: skip


def test_round_robin_takes_turns_call_by_call(line: Make) -> None:
    """Without it b's three calls, which came first, would run before c's."""
    it = line("round_robin")
    it.submit(0, "a", 2, again=1)
    for at in (10, 11, 12):
        it.submit(at, "b", 1)
    it.submit(20, "c", 1)
    assert it.order() == ["a", "b", "c", "a", "b", "b"]


def test_round_robin_takes_turns_piece_by_piece(line: Make) -> None:
    it = line("round_robin")
    it.submit(0, "a", 3, bound=101)
    it.submit(50, "b", 3, bound=101)
    assert it.order() == ["a", "b", "a", "b", "a", "b"]


DEADLINES = [("a", 0, 4, 5000), ("b", 10, 2, 610), ("c", 20, 1, 510)]
"""(stream, when, tiles, deadline): c can be over by 504 and b by 706 if c goes first; a has all the time."""


def _missed(line: Make, policy: str, bound: int | None, rows: Sequence[tuple[str, int, int, int]]) -> list[str]:
    it = line(policy)
    for name, at, tiles, due in rows:
        it.submit(at, name, tiles, deadline=due, bound=bound)
    it.run()
    return [name for name, _, _, due in rows if it.results[name].end > due * NS]


def test_edf_meets_the_deadlines_that_fifo_misses(line: Make) -> None:
    """Calls of 402, 202 and 102 ns. In order: over at 402, 604, 706. By deadline a is interrupted for c, then b."""
    assert _missed(line, "fifo", 101, DEADLINES) == ["c"]
    assert _missed(line, "edf", 101, DEADLINES) == []


def test_edf_puts_those_without_a_deadline_last(line: Make) -> None:
    it = line("edf")
    it.submit(0, "a", 1)
    it.submit(10, "b", 1)
    it.submit(11, "c", 1, deadline=10_000)
    it.submit(12, "d", 1, deadline=9_000)
    assert it.order() == ["a", "d", "c", "b"]


def test_least_laxity_looks_at_the_work_that_is_left(line: Make) -> None:
    """b is due first, but c has 800 ns of work before its deadline: at 102 b can wait for 400 - 102 - 103 ns and c for
    only 900 - 102 - 803 < 0."""
    for policy, order in [("edf", ["a", "b", "c"]), ("least_laxity", ["a", "c", "b"])]:
        it = line(policy)
        it.submit(0, "a", 1)
        it.submit(10, "b", 1, deadline=400)
        it.submit(11, "c", 8, deadline=900)
        assert it.order() == order


def _shares(it: Line, until: int) -> dict[str, int]:
    """ns of the core by stream."""
    it.bench.env.run(until=until * NS)
    had: dict[str, int] = {}
    begun: tuple[int, str] | None = None
    for at, name, what in it.log:
        if what == "begins":
            begun = at, name
        elif begun is not None:
            had[name] = had.get(name, 0) + at - begun[0]
    return had


def test_weighted_fair_gives_shares_by_weight(line: Make) -> None:
    """Three streams that always have a call waiting, 1:1:2."""
    it = line("weighted_fair")
    for name, weight in [("a", 1.0), ("b", 1.0), ("c", 2.0)]:
        for k in range(400):
            it.submit(k, name, 1, weight=weight)
    had = _shares(it, 40_000)
    assert had["c"] / had["a"] == pytest.approx(2, rel=0.03)
    assert had["a"] / had["b"] == pytest.approx(1, rel=0.03)


def test_weighted_fair_gives_shares_by_weight_piece_by_piece(line: Make) -> None:
    """Two long calls of one tile pieces, 1:3: each interruption costs a lead of 2 ns, and the shares hold."""
    it = line("weighted_fair")
    it.submit(0, "a", 1000, bound=101, weight=1.0)
    it.submit(10, "b", 1000, bound=101, weight=3.0)
    had = _shares(it, 60_000)
    assert had["b"] / had["a"] == pytest.approx(3, rel=0.03)


def test_weighted_fair_starves_nobody(line: Make) -> None:
    """Against a priority of a hundred times the weight, the light stream still gets its hundredth."""
    it = line("weighted_fair")
    for k in range(600):
        it.submit(k, "heavy", 1, weight=100.0)
    it.submit(0, "light", 1, weight=1.0, again=9)
    had = _shares(it, 60_000)
    assert had["light"] >= 60_000 / 101 * 0.8


def test_a_stream_that_was_away_is_not_owed_for_it(line: Make) -> None:
    """b comes after a has had the core for long: they take turns from then on, b does not catch up."""
    it = line("weighted_fair")
    for k in range(20):
        it.submit(k, "a", 1)
    for k in range(5):
        it.submit(1000 + k, "b", 1)
    order = it.order()
    at = order.index("b")
    assert order[at : at + 8] == ["b", "a", "b", "a", "b", "a", "b", "a"]


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_call_is_served_once_and_all_bytes_are_moved(line: Make, policy: str) -> None:
    it = line(policy)
    for k in range(12):
        it.submit(
            70 * k,
            "abcd"[k % 4],
            1 + k % 5,
            bound=(None, 101, 250)[k % 3],
            priority=(0, 254, 255)[k % 3],
            deadline=300 * k,
        )
    it.run()
    assert len(it.results) == 4
    assert it.log[-1][0] >= sum(1 + k % 5 for k in range(12)) * 100
    assert it.bench.channel.moved()["bpu0"] == it.bench.recorder.moved_bytes["bpu0"]["kv", False]
    assert it.bench.channel.moved()["bpu0"] >= sum(1 + k % 5 for k in range(12)) * 10
    counted = it.bench.recorder.cores["bpu0"]
    assert counted.occupied == sum(b - a for (a, _, x), (b, _, _) in zip(it.log[::2], it.log[1::2], strict=True)) * NS


def test_a_users_policy_may_be_told_what_ran(line: Make) -> None:
    class Told:
        def __init__(self) -> None:
            self.ran_: list[tuple[str, int]] = []

        def pick(self, ready: Sequence[Any], core: Any) -> Any:  # noqa: ARG002 (the protocol's signature)
            return ready[0]

        def ran(self, call: Any, core: Any, duration_ps: int) -> None:  # noqa: ARG002
            self.ran_.append((call.stream, duration_ps // NS))

    policy = Told()
    it = line(policy)
    it.submit(0, "a", 2)
    it.submit(5, "b", 1)
    it.run()
    assert policy.ran_ == [("a", 202), ("b", 102)]
