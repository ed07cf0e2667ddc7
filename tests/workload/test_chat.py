"""A chat user, worked out from round numbers.

A request costs the host 1000 ns and 10 a prompt token. The model's only op takes 100 ns, its dispatch and interrupt 55;
a token is sampled from 20 logits at 5 ns and sent out in 200. Submission is synchronous unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bpusim.metrics import ChatRecord, RequestRow
from bpusim.workload import ChatStream, Slots, asks, fixed

Make = Callable[..., Any]
NS = 1000
STEP = 40 + 100 + 15
SAMPLE = 20 * 5 + 200


def stream(b: Any, cycles: tuple[int, ...] = (100,), **changes: Any) -> ChatStream:
    """Six prompt tokens in chunks of four, three output tokens, one request."""
    op = b.op("a")
    trace = b.trace(
        type(op)("a", "A", "mac", cycles=cycles), phases=("prefill", "decode"), tokens=4, chunk=4, vocab=20, context=64
    )
    keys: dict[str, Any] = {"prompt": 6, "output": 3, "requests": 1, "start": 0, "think": 0} | changes
    each = keys["requests"]
    draws = [fixed(keys.pop(k)) for k in ("prompt", "output", "think")]
    slots = Slots(b.env, "m", keys.pop("slots", 1))
    return ChatStream("chat", b.model(trace), lambda _: asks(*draws, each), slots=slots, record=ChatRecord([]), **keys)


def run(b: Any, chat: ChatStream, until: int | None = None) -> ChatRecord:
    process = b.env.process(chat.run(b.executor))
    b.env.run(until=process if until is None else until * NS)
    return chat.record


def spent(ledger: Any) -> dict[str, int]:
    return {c: v // NS for c, v in ledger.spent.items() if v}


def test_the_first_token_comes_after_every_chunk_of_the_prompt(bench: Make) -> None:
    b = bench(async_submit=False)
    (row,) = run(b, stream(b)).rows or []
    assert row.ttft == (1000 + 6 * 10 + 2 * STEP + SAMPLE) * NS


def test_a_prompt_of_whole_chunks_has_no_empty_one(bench: Make) -> None:
    b = bench(async_submit=False)
    (row,) = run(b, stream(b, prompt=8)).rows or []
    assert row.ttft == (1000 + 8 * 10 + 2 * STEP + SAMPLE) * NS


def test_each_later_token_is_a_step_and_a_sample(bench: Make) -> None:
    b = bench(async_submit=False)
    assert run(b, stream(b)).gaps.known() == [(STEP + SAMPLE) * NS] * 2


def test_time_per_output_token_is_the_mean_gap(bench: Make) -> None:
    b = bench(async_submit=False)
    record = run(b, stream(b))
    (row,) = record.rows
    assert (row.end - row.first_token) / (row.tokens - 1) == record.gaps.total / record.decode_tokens


def test_chunks_and_steps_see_the_cache_before_them(bench: Make) -> None:
    b = bench(async_submit=False)
    record = run(b, stream(b, cycles=(0, 1)))  # an op of one nanosecond a cache entry
    # Prefill at 0 and 4 entries; decode with the prompt's 6, then 7.
    assert record.gaps.known() == [(55 + kv + SAMPLE) * NS for kv in (6, 7)]
    assert record.ttfts.total == (1060 + 55 + 0 + 55 + 4 + SAMPLE) * NS


def test_the_causes_of_a_first_token_sum_to_it(bench: Make) -> None:
    b = bench(async_submit=False)
    record = run(b, stream(b))
    assert spent(record.first) == {"host": 1060 + SAMPLE, "compute": 200, "dispatch": 110}
    assert sum(record.first.spent.values()) == record.ttfts.total


def test_the_causes_of_later_tokens_sum_to_their_gaps(bench: Make) -> None:
    b = bench(async_submit=False)
    record = run(b, stream(b))
    assert spent(record.decode) == {"host": 2 * SAMPLE, "compute": 200, "dispatch": 110}
    assert sum(record.decode.spent.values()) == record.gaps.total


def test_async_submit_dispatches_a_step_while_the_last_runs(bench: Make) -> None:
    b = bench()
    assert run(b, stream(b)).gaps.known() == [(STEP - 30 + SAMPLE) * NS] * 2


def test_nothing_is_dispatched_for_a_request_that_has_not_come(bench: Make) -> None:
    b = bench()
    first, second = run(b, stream(b, requests=2)).rows or []
    # Of two chunks the first pays its whole dispatch, in either request.
    assert first.ttft == second.ttft == (1060 + STEP + STEP - 30 + SAMPLE) * NS


def test_nothing_is_dispatched_behind_the_last_token(bench: Make) -> None:
    b = bench()
    record = run(b, stream(b))
    # A preparation that nobody waits for would be the third decode step's, whose dispatch the host pays.
    assert spent(record.decode)["dispatch"] == 2 * (55 - 30)
    b = bench()
    assert spent(run(b, stream(b, output=1)).first)["dispatch"] == 55 + 55 - 30


def test_a_step_in_progress_counts_to_its_phase(bench: Make) -> None:
    b = bench(async_submit=False)
    ttft, gap = 1060 + 2 * STEP + SAMPLE, STEP + SAMPLE
    for at, prefill, decode in (
        (0, 0, 0),
        (100, 100, 0),
        (ttft - 1, ttft - 1, 0),
        (ttft + 7, ttft, 7),
        (ttft + gap + 7, ttft, gap + 7),
        (ttft + 2 * gap + 20, ttft, 2 * gap),  # the user thinks
        (ttft + 2 * gap + 50 + 9, ttft + 9, 2 * gap),  # and asks again
    ):
        b = bench(async_submit=False)
        record = run(b, stream(b, requests=2, think=50 * NS), until=at) if at else ChatRecord([])
        assert (record.phase_time("prefill", at * NS), record.phase_time("decode", at * NS)) == (
            prefill * NS,
            decode * NS,
        )


def test_tokens_are_counted_with_the_first(bench: Make) -> None:
    b = bench()
    record = run(b, stream(b, output=3, requests=2))
    assert (record.tokens, len(record.ttfts), record.decode_tokens) == (6, 2, 4)


def test_a_request_for_one_token_has_no_gap(bench: Make) -> None:
    b = bench()
    record = run(b, stream(b, output=1))
    assert (record.tokens, record.gaps.known()) == (1, [])


def test_the_user_starts_when_told(bench: Make) -> None:
    b = bench()
    assert run(b, stream(b, start=77 * NS)).rows or [][0].arrived == 77 * NS


def test_the_user_reads_and_thinks_before_asking_again(bench: Make) -> None:
    b = bench(async_submit=False)
    first, second = run(b, stream(b, requests=2, think=500 * NS)).rows or []
    ttft, rest = 1060 + 2 * STEP + SAMPLE, 2 * (STEP + SAMPLE)
    assert first == RequestRow("chat", 0, 6, 3, 0, ttft * NS, (ttft + rest) * NS)
    arrived = ttft + rest + 500
    assert second == RequestRow("chat", 1, 6, 3, arrived * NS, (arrived + ttft) * NS, (arrived + ttft + rest) * NS)


def test_the_user_does_not_think_after_the_last_answer(bench: Make) -> None:
    b = bench()
    (row,) = run(b, stream(b, think=500 * NS)).rows or []
    assert b.env.now == row.end


def test_a_user_without_a_number_of_requests_asks_for_ever(bench: Make) -> None:
    b = bench(async_submit=False)
    one = 1060 + 2 * STEP + SAMPLE + 2 * (STEP + SAMPLE)
    record = run(b, stream(b, requests=None), until=10 * one + 1)
    assert len(record.rows) == 10


def test_sampling_reads_the_logits(bench: Make) -> None:
    b = bench()
    run(b, stream(b))
    # Three tokens, 20 logits of two bytes.
    assert b.recorder.moved_bytes["cpu"] == {("io", False): 3 * 40}


def test_two_users_of_one_core_queue_and_their_causes_still_sum(bench: Make) -> None:
    b = bench(cpus=1)
    users = [stream(b, requests=3), stream(b, requests=2, start=100 * NS)]
    for user in users:
        b.env.process(user.run(b.executor))
    b.env.run()
    for user in users:
        record = user.record
        assert sum(record.first.spent.values()) == sum(r.ttft for r in record.rows)
        assert sum(record.decode.spent.values()) == record.gaps.total
        assert record.first.spent["other"] == record.decode.spent["other"] == 0
    assert sum(user.record.first.spent["queueing"] for user in users) > 0


def test_a_trace_without_a_chunk_takes_the_prompt_in_one_piece(bench: Make) -> None:
    b = bench(async_submit=False)
    chat = stream(b)
    chat.model = b.model(b.trace(b.op("a"), phases=("prefill", "decode"), vocab=20, context=64))
    (row,) = run(b, chat).rows or []
    assert row.ttft == (1060 + STEP + SAMPLE) * NS


# Users, conversations, pace


def test_users_ask_side_by_side(bench: Make) -> None:
    """Two users of two requests each: four in all, and the second ones come when the first are answered."""
    b = bench()
    chat = stream(b, users=2, requests=2, slots=2)
    assert chat.requests == 2  # what a user asks; the builder multiplies it by the users
    record = run(b, chat)
    assert record.requests == 4
    assert record.present.most == 2
    assert sorted(r.index for r in record.rows or []) == [0, 1, 2, 3]


def test_a_user_waits_for_room_in_the_cache(bench: Make) -> None:
    b = bench(async_submit=False)
    record = run(b, stream(b, users=2, slots=1))
    one, two = sorted(record.rows or [], key=lambda r: r.end)
    assert two.ttft == one.end + one.ttft
    assert record.first.spent["queueing"] == one.end


def test_a_kept_history_is_not_read_again(bench: Make) -> None:
    """An op of a nanosecond a cache entry. The second prompt begins at 6 + 3 - 1 entries, with the last token of the
    answer before it: seven tokens, chunks at 8 and 12."""
    b = bench(async_submit=False)
    record = run(b, stream(b, cycles=(0, 1), requests=2, history="kept"))
    first, second = record.ttfts.known()
    assert first == (1060 + 55 + 0 + 55 + 4 + SAMPLE) * NS
    assert second == (1070 + 55 + 8 + 55 + 12 + SAMPLE) * NS
    # Decode of the first answer at 6 and 7 entries, of the second at 15 and 16.
    assert record.gaps.known() == [(55 + kv + SAMPLE) * NS for kv in (6, 7, 15, 16)]


def test_a_history_that_is_read_again_makes_prompts_longer(bench: Make) -> None:
    b = bench(async_submit=False)
    record = run(b, stream(b, requests=3, history="reread"))
    assert [r.prompt for r in record.rows or []] == [6, 6 + 3 - 1 + 6 + 1, 15 + 3 - 1 + 6 + 1]


def test_a_conversation_that_outgrows_the_context_begins_anew(bench: Make) -> None:
    b = bench()
    chat = stream(b, requests=9, history="reread")
    chat.model.context = 30
    record = run(b, chat)
    prompts = [r.prompt for r in record.rows or []]
    assert prompts == [6, 15, 24, 6, 15, 24, 6, 15, 24]
    assert record.restarts == 2
    assert max(p + 3 for p in prompts) <= 30


def test_a_pace_holds_tokens_back(bench: Make) -> None:
    """A token takes 455 ns; one every microsecond is asked for."""
    b = bench(async_submit=False)
    record = run(b, stream(b, output=5, pace=1000 * NS))
    assert (record.rows or [])[0].end - (record.rows or [])[0].first_token > 3 * 1000 * NS
    assert record.gaps.known()[1:] == [1000 * NS] * 3
    assert record.decode.spent["pacing"] > 0
    assert sum(record.decode.spent.values()) == record.gaps.total


def test_what_is_asked_of_a_request_is_counted(bench: Make) -> None:
    """A first token takes 1670 ns, a later one 455."""
    for ttft, tpot, good in [(None, None, 2), (1700, 460, 2), (1600, 460, 0), (1700, 450, 0), (1700, None, 2)]:
        b = bench(async_submit=False)
        chat = stream(b, requests=2)
        chat.record.slo = tuple(t * NS if t is not None else None for t in (ttft, tpot))
        assert run(b, chat).good == good
