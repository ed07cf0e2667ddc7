"""Laws of queues that hold for whatever is simulated: Little, utilisation, M/D/1, common random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import pytest

from bpusim.metrics import ChatRecord
from bpusim.units import PS_PER_S
from bpusim.workload import Ask, ChatStream, Slots, asks, fixed, gamma, generator, listed, lognormal, poisson

Make = Callable[..., Any]
NS = 1000
SERVICE = 1000 * NS
COSTS = ("per_request", "tokenize_per_token", "per_token", "sample_per_entry", "dispatch", "dispatch_per_layer")
NOTHING = dict.fromkeys((*COSTS, "doorbell", "interrupt"), "0 ns")
"""What is left of a request is one call of a core."""


def queue(make: Make, ask: Callable[[int], Iterator[Ask]], slots: int = 10**6, **keys: Any) -> tuple[Any, ChatStream]:
    """Requests of one call of a microsecond each on one core, and nothing else."""
    b = make(host_changes=NOTHING)
    trace = b.trace(b.op("a", SERVICE // NS), phases=("prefill", "decode"), tokens=4, vocab=0)
    stream = ChatStream(
        "s", b.model(trace), ask, None, 0, Slots(b.env, "m", slots), ChatRecord(**keys.pop("record", {})), **keys
    )
    return b, stream


def run(b: Any, stream: ChatStream) -> ChatRecord:
    b.env.run(until=b.env.process(stream.run(b.executor)))
    return stream.record


def lindley(gaps: Iterable[int]) -> Iterator[int]:
    """Waits of a queue of one server, by Lindley's recursion."""
    wait = 0
    yield wait
    for gap in islice(gaps, 1, None):
        wait = max(wait + SERVICE - gap, 0)
        yield wait


def drawn(load: float, requests: int, seed: int) -> list[int]:
    """Gaps of so many Poisson arrivals that keep the core busy for ``load`` of the time."""
    draw = poisson(load * PS_PER_S / SERVICE, generator(seed, "md1"))
    return [draw() for _ in range(requests)]


@pytest.mark.parametrize("load", [0.3, 0.5, 0.7, 0.9])
def test_waiting_is_that_of_lindleys_recursion(bench: Make, load: float) -> None:
    """To the picosecond, on the arrivals that it had."""
    gaps = drawn(load, 3000, 3)
    b, stream = queue(bench, lambda _: (Ask(1, 1, g) for g in gaps), open=True)
    record = run(b, stream)
    assert sorted(record.ttfts.known()) == sorted(w + SERVICE for w in lindley(gaps))


@pytest.mark.validation
@pytest.mark.parametrize("load", [0.3, 0.5])
def test_the_wait_of_md1_is_half_of_that_of_mm1(bench: Make, load: float) -> None:
    """Pollaczek and Khinchine: load / (2 (1 - load)) services.

    The queue does what Lindley's recursion does, to the picosecond; of the recursion there can be a million requests,
    whose mean varies by a third of a percent: within 1 %.
    """
    gaps = drawn(load, 3000, 0)
    b, stream = queue(bench, lambda _: asks(fixed(1), fixed(1), iter(gaps).__next__, 3000), open=True)
    record = run(b, stream)
    assert record.requests == 3000
    assert record.ttfts.total == sum(lindley(gaps)) + 3000 * SERVICE
    waits = [sum(lindley(drawn(load, 200_000, seed))) / 200_000 for seed in range(5)]
    assert sum(waits) / len(waits) / SERVICE == pytest.approx(load / (2 * (1 - load)), rel=0.01)


@pytest.mark.parametrize("cv", [0.5, 1.0, 3.0])
def test_littles_law(bench: Make, cv: float) -> None:
    """Requests in the system = arrivals a second x time in it; the run ends when all are gone, so it is exact."""
    gap = gamma(0.8 * PS_PER_S / SERVICE, cv, generator(1, "little"))
    lengths = lognormal(2, 0.7, 1, 9, generator(1, "lengths"))
    b, stream = queue(bench, lambda _: asks(fixed(1), lengths, gap, 1000), open=True)
    record = run(b, stream)
    rate = record.requests / b.env.now
    assert record.present.mean(b.env.now) == pytest.approx(rate * record.whole.total / record.requests, rel=1e-9)
    assert record.present.mean(b.env.now) > 0.5


@pytest.mark.parametrize("load", [0.2, 0.6, 0.9])
def test_below_saturation_utilisation_is_the_offered_load(bench: Make, load: float) -> None:
    """That of the arrivals that it had, but for those that are still in line when the last one comes."""
    gaps = drawn(load, 5000, 2)
    b, stream = queue(bench, lambda _: (Ask(1, 1, g) for g in gaps), open=True)
    run(b, stream)
    occupied = b.recorder.cores["bpu0"].occupied
    assert occupied == len(gaps) * SERVICE
    assert occupied / b.env.now == pytest.approx(len(gaps) * SERVICE / sum(gaps), rel=0.005)


def test_rejections_keep_the_line_short(bench: Make) -> None:
    """Twice as many arrive as are served: half are rejected, and never more than two wait."""
    gap = fixed(SERVICE // 2)
    b, stream = queue(bench, lambda _: asks(fixed(1), fixed(1), gap, 1000), slots=1, open=True, waiting=2)
    record = run(b, stream)
    assert record.present.most == 3
    assert record.rejected == pytest.approx(500, abs=5)
    assert record.arrived == 1000 == record.requests + record.rejected


def test_a_line_without_a_limit_is_an_error_in_the_end(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from bpusim.errors import SimulationError
    from bpusim.workload import slots

    monkeypatch.setattr(slots, "_MOST", 100)
    b, stream = queue(bench, lambda _: asks(fixed(1), fixed(1), fixed(SERVICE // 2), None), slots=1, open=True)
    with pytest.raises(SimulationError, match=r"100 requests wait for model 'm' at .* they come faster than they are"):
        run(b, stream)


def test_sequences_run_in_order_of_arrival_and_no_more_than_fit(bench: Make) -> None:
    b, stream = queue(
        bench, lambda _: asks(fixed(1), fixed(3), fixed(100 * NS), 9), slots=2, open=True, record={"rows": []}
    )
    record = run(b, stream)
    rows = record.rows or []
    assert [r.index for r in sorted(rows, key=lambda r: r.first_token)] == list(range(9))
    for r in rows:
        running = sum(1 for o in rows if o.first_token - SERVICE * 2 < r.end <= o.end)
        assert running <= 4
    assert record.present.most == 9


# Draws


def test_a_stream_draws_the_same_whatever_others_do() -> None:
    one, other = (poisson(10.0, generator(5, "alice", "arrivals")) for _ in range(2))
    noise = generator(5, "bob", "arrivals")
    first = []
    for _ in range(50):
        first.append(one())
        noise.random()
    assert first == [other() for _ in range(50)]
    assert first != [poisson(10.0, generator(6, "alice", "arrivals"))() for _ in range(50)]


def test_poisson_and_gamma_have_their_mean_and_spread() -> None:
    for draw, cv in [(poisson(4.0, generator(1, "p")), 1.0), (gamma(4.0, 2.0, generator(1, "g")), 2.0)]:
        gaps = [draw() / PS_PER_S for _ in range(100_000)]
        mean = sum(gaps) / len(gaps)
        spread = (sum((g - mean) ** 2 for g in gaps) / len(gaps)) ** 0.5
        assert mean == pytest.approx(0.25, rel=0.02)
        assert spread / mean == pytest.approx(cv, rel=0.03)


def test_lognormal_lengths_have_their_median_and_bounds() -> None:
    draw = lognormal(100, 0.8, 10, 500, generator(1, "l"))
    lengths = sorted(draw() for _ in range(20_001))
    assert lengths[10_000] == pytest.approx(100, rel=0.02)
    assert (lengths[0], lengths[-1]) == (10, 500)


def test_listed_lengths_begin_again() -> None:
    draw = listed([3, 1, 2])
    assert [draw() for _ in range(5)] == [3, 1, 2, 3, 1]
