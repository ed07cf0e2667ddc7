"""Decode steps for several sequences at a time, worked out from round numbers.

A decode step takes 100 ns, 20 more a sequence and 1 a cache entry of each; its dispatch and interrupt 55. A token is
sampled in 300 ns, on a CPU core for each stream. A request costs the host 1000 ns and 10 a prompt token; a prefill
chunk of up to 4 tokens takes the core 50 ns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bpusim.metrics import ChatRecord
from bpusim.runtime import PlacedModel
from bpusim.trace import Header, Op, Phase, Trace
from bpusim.workload import ChatStream, Slots, asks, fixed

Make = Callable[..., Any]
NS = 1000
CALL, SAMPLE = 40 + 15, 300


def model(batch: int, *, caches: bool = False) -> PlacedModel:
    step = Op("a", "A", "mac", cycles=(100, 20, 1), write={"kv": (0, 1)} if caches else {})
    phases = {
        "prefill": Phase("prefill", 4, ("1", "batch", "batch*kv"), (Op("p", "A", "mac", cycles=(50,)),)),
        "decode": Phase("decode", 1, ("1", "batch", "batch*kv"), (step,)),
    }
    trace = Trace(Header("m", {}, chunk=4, vocab=20, context=64), (), phases)
    return PlacedModel("m", trace, ((0, trace),), 64, batch=batch)


def decode(*kvs: int) -> int:
    """ns of a step for sequences with these cache entries, dispatch and interrupt included."""
    return CALL + 100 + sum(20 + kv for kv in kvs)


def serve(b: Any, placed: PlacedModel, *users: dict[str, Any]) -> list[ChatRecord]:
    """One request of each user: prompt, output, start in ns; further keys of the stream."""
    slots = Slots(b.env, "m", 8)
    chats = []
    for k, user in enumerate(users):
        keys = {"prompt": 4, "output": 3, "start": 0} | user
        prompt, output = fixed(keys.pop("prompt")), fixed(keys.pop("output"))
        keys["start"] *= NS
        asked = asks(prompt, output, fixed(0), 1)
        chats.append(ChatStream(f"u{k}", placed, lambda _, a=asked: a, 1, slots=slots, record=ChatRecord([]), **keys))
    b.env.run(until=b.env.all_of([b.env.process(c.run(b.executor)) for c in chats]))
    for c in chats:
        assert sum(c.record.decode.spent.values()) == c.record.gaps.total
        assert not c.record.decode.spent["other"]
    return [c.record for c in chats]


def gaps(record: ChatRecord) -> list[int]:
    return [g // NS for g in record.gaps.known()]


@pytest.fixture
def four(bench: Make) -> Any:
    """A machine with a CPU core for everybody, and synchronous submission."""
    return bench(cpus=4, async_submit=False)


@pytest.mark.parametrize(("submit", "joining"), [(False, 0), (True, 30)])
def test_a_batch_of_one_is_no_batch(bench: Make, *, submit: bool, joining: int) -> None:
    # But for the first step: it is the batch's, and asynchronously nobody could prepare it during the prefill.
    alone, beside = (serve(bench(cpus=4, async_submit=submit), model(n), {"output": 5})[0] for n in (1, 2))
    assert gaps(beside) == [gaps(alone)[0] + joining, *gaps(alone)[1:]]


def test_the_next_request_finds_nothing_prepared(bench: Make) -> None:
    b = bench(cpus=4)
    asked = asks(fixed(4), fixed(2), fixed(0), 2)
    chat = ChatStream("u", model(2), lambda _: asked, 2, 0, Slots(b.env, "m", 1), ChatRecord([]))
    b.env.run(until=b.env.process(chat.run(b.executor)))
    one, two = chat.record.rows or []
    assert one.ttft == two.ttft


def test_one_pass_serves_those_who_come_together(four: Any) -> None:
    # The second prefill runs behind the first: 105 ns later, so that the first token of u1 comes in u0's first step.
    first, second = serve(four, model(2), {}, {})
    alone = decode(4) + SAMPLE
    assert gaps(first)[0] == alone
    # u1 has its first token 105 - 40 ns after u0 (its dispatch was during the prefill of u0), and waits for that step
    # and for u0 to sample; both are in the next one.
    waited = alone - 50
    both = decode(5, 4) + SAMPLE
    assert gaps(second)[0] == waited + both
    assert gaps(first)[1] == both
    assert second.decode.spent["batching"] == waited * NS
    assert gaps(second)[1] == decode(5) + SAMPLE  # u0 is done: nobody waits for its last token to be sampled
    batch = four.executor.batches["m"]
    assert (batch.steps, batch.sequences) == (3, 4)


def test_each_sequence_has_its_own_cache(four: Any) -> None:
    first, second = serve(four, model(2), {"prompt": 4, "output": 4}, {"prompt": 12, "output": 4})
    # u1 reads its prompt in three chunks and joins when it can; from then on a step costs both their entries.
    shared = [g for g in gaps(first) if g in gaps(second)]
    kvs = [(4 + n, 12 + m) for n in range(3) for m in range(3)]
    assert shared
    assert all(any(g == decode(*pair) + SAMPLE for pair in kvs) for g in shared)


def test_who_finds_the_batch_full_waits_for_one_to_leave(four: Any) -> None:
    long, short, late = serve(four, model(2), {"output": 12}, {"output": 3, "start": 0}, {"output": 2, "start": 300})
    assert four.executor.batches["m"].sequences == 11 + 2 + 1
    assert late.decode.spent["batching"] > 0
    # It joins in the step behind the last of u1, not before: no step was for three.
    most = max(gaps(long))
    assert most <= decode(15, 15) + SAMPLE
    assert long.gaps.total < sum(decode(4 + n, 15) + SAMPLE for n in range(11)) * NS
    assert late.tokens == short.tokens - 1 == 2


def test_a_paced_sequence_holds_nobody_up(four: Any) -> None:
    quick, slow = serve(four, model(2), {"output": 9}, {"output": 3, "pace": 3000 * NS, "start": 200})
    assert max(gaps(quick)) <= decode(13, 13) + SAMPLE
    assert sum(gaps(slow)) >= 3000 + SAMPLE  # the second of them starts no sooner, and takes a step
    assert slow.decode.spent["pacing"] > 0


def test_addresses_are_prepared_for_every_sequence(bench: Make) -> None:
    # 30 ns a layer and sequence; two that came together wait for both.
    b = bench(cpus=4, async_submit=False)
    first, second = serve(b, model(2, caches=True), {"output": 4}, {"output": 4})
    one = serve(bench(cpus=4, async_submit=False), model(2, caches=True), {"output": 4})[0]
    assert one.decode.spent["dispatch"] == 3 * (CALL + 30) * NS
    assert first.decode.spent["dispatch"] == (3 * CALL + 30 + 2 * 60) * NS
    assert second.decode.spent["dispatch"] == (3 * CALL + 2 * 60 + 30) * NS


def test_who_joins_is_prepared_for_when_it_does(bench: Make) -> None:
    # Asynchronously the addresses of those in the step are prepared while it runs; a newcomer's are not.
    b = bench(cpus=4)
    first, second = serve(b, model(2, caches=True), {"output": 6}, {"output": 6})
    bare = serve(bench(cpus=4), model(2, caches=True), {"output": 6})[0]
    joined = (first.decode.spent["dispatch"] - bare.decode.spent["dispatch"]) // NS
    assert joined == 30  # once, when u1 joined
    assert second.decode.spent["dispatch"] > 0


def test_a_step_counts_for_every_request_it_serves_where_cores_wait(four: Any) -> None:
    serve(four, model(2), {"output": 6}, {"output": 6})
    waits = four.queues[0].waits
    waits.change()
    assert waits.elsewhere == 0
    assert waits.nothing + waits.host < four.env.now
