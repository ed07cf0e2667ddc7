"""What arrives when, as a file says it: what becomes of it, and each mistake at its place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bpusim import simulate
from bpusim.errors import BpusimError
from bpusim.metrics import ChatStats, PipelineStats, Result
from bpusim.trace import load_trace, save_trace

TRACES = Path(__file__).resolve().parents[2] / "traces"
CHAT = "chat: m, prompt: 8, output: 4"


def run(folder: Path, stream: str = CHAT, more: str = "", **keys: Any) -> Result:
    """A 0.5B on core 0 of the board, and one stream."""
    text = f"""\
machine: bpu80
models:
  m: {{trace: '{TRACES}/qwen2.5-0.5b-int4.trace', cores: bpu0}}
streams:
  a: {{{stream}}}
{more}
"""
    path = folder / "a.yaml"
    path.write_text(text, encoding="utf-8")
    return simulate(path, **keys)


def chat(result: Result) -> ChatStats:
    stats = result.streams["a"]
    assert isinstance(stats, ChatStats)
    return stats


def refusal(folder: Path, stream: str, more: str = "") -> str:
    """The one problem, without the folder's name."""
    with pytest.raises(BpusimError) as caught:
        run(folder, stream, more)
    (problem,) = caught.value.problems
    return str(problem).replace(f"{folder}/", "")


def rows(result: Result) -> list[tuple[int, int, int]]:
    return [(r.arrived // 10**9, r.prompt, r.tokens) for r in result.requests or ()]


def test_requests_of_a_file_come_when_it_says(tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0.25,8,3\n0.25,16,2\n4,5,1\n")
    result = run(tmp_path, "chat: m, arrivals: {file: day.csv}", records=True)
    assert rows(result) == [(250, 8, 3), (250, 16, 2), (4000, 5, 1)]
    assert chat(result).tokens == 6


def test_a_table_program_s_file_is_read_too(tmp_path: Path) -> None:
    """A byte order mark, other columns, another order, CRLF."""
    text = "note,output_tokens,prompt_tokens,arrival_s\r\nx,3,8,0.5\r\n"
    (tmp_path / "day.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert rows(run(tmp_path, "chat: m, arrivals: {file: day.csv}", records=True)) == [(500, 8, 3)]


def test_lengths_of_a_file_are_taken_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("prompt_tokens,output_tokens\n8,3\n16,2\n")
    stream = "chat: m, prompt: {file: l.csv}, output: {file: l.csv}, requests: 3"
    assert [r[1:] for r in rows(run(tmp_path, stream, records=True))] == [(8, 3), (16, 2), (8, 3)]


def test_arrivals_at_an_interval_begin_at_the_start(tmp_path: Path) -> None:
    stream = f"{CHAT}, arrivals: {{every: 2 s}}, requests: 3, start: 1 s"
    assert [r[0] for r in rows(run(tmp_path, stream, records=True))] == [1000, 3000, 5000]


POISSON = "chat: m, prompt: {median: 20, sigma: 0.7, max: 200}, output: 4, arrivals: {poisson: 0.5 Hz}, requests: 12"


def test_the_same_seed_gives_the_same_bytes_and_another_one_other_arrivals(tmp_path: Path) -> None:
    one, same, other = (run(tmp_path, POISSON, f"engine: {{seed: {n}}}", records=True) for n in (1, 1, 2))
    assert one.to_dict() == same.to_dict()
    assert rows(one) == rows(same)
    assert rows(one) != rows(other)


@pytest.mark.parametrize("policy", ["fifo", "edf", "weighted_fair"])
def test_another_policy_changes_no_arrival(tmp_path: Path, policy: str) -> None:
    """Nor does another stream, nor a slower machine."""
    known = rows(run(tmp_path, POISSON, records=True))
    beside = "  b: {chat: m, prompt: {median: 9, sigma: 1, max: 99}, output: 30, requests: 3}\n"
    result = run(tmp_path, POISSON, f"{beside}policy: {policy}", records=True, set={"machine.cores.clock": "600 MHz"})
    assert [(r.arrived // 10**9, r.prompt, r.tokens) for r in result.requests or () if r.stream == "a"] == known


def test_memory_is_for_as_many_sequences_as_are_asked_for(tmp_path: Path) -> None:
    one = run(tmp_path, f"{CHAT}, users: 1").resident_bytes
    three = run(tmp_path, f"{CHAT}, users: 3").resident_bytes
    same = run(tmp_path, CHAT, set={"models.m.sequences": 3}).resident_bytes
    assert same == three > one
    assert chat(run(tmp_path, f"{CHAT}, users: 3")).requests == 3


def test_more_users_than_the_cache_has_room_for_take_turns(tmp_path: Path) -> None:
    result = run(tmp_path, f"{CHAT}, users: 3", set={"models.m.sequences": 1})
    assert chat(result).requests == 3
    assert chat(result).ttft_breakdown_ms["queueing"] > 0


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (f"{CHAT}, arrivals: {{}}", "a.yaml:5:48: error: streams.a.arrivals: nothing is given; write one"),
        (f"{CHAT}, arrivals: {{poisson: 1 Hz, every: 1 s}}", "poisson and every is given; write one of"),
        (f"{CHAT}, arrivals: {{gamma: 1 Hz}}", "gamma and cv go together; write both, such as {gamma: 0.2 Hz, cv: 2}"),
        (f"{CHAT}, arrivals: {{poisson: 0 Hz}}", "'0 Hz' is out of range; write more than 0"),
        (f"{CHAT}, arrivals: {{poison: 1 Hz}}", "unknown key 'poison'; did you mean 'poisson'?"),
        (f"{CHAT}, arrivals: {{every: 1 s}}, think: 1 s", "arrivals do not think"),
        (f"{CHAT}, arrivals: {{every: 1 s}}, users: 2", "arrivals are of no user in particular"),
        (f"{CHAT}, waiting: 2", "a closed loop rejects nobody; remove waiting, or add arrivals"),
        (f"{CHAT}, think_spread: exponential", "think_spread needs think, its mean; add think: 4 s"),
        ("chat: m, output: 4", "'prompt' is missing; add prompt: tokens of each prompt, such as 32"),
        (f"{CHAT}, arrivals: {{file: x.csv}}", "the file of arrivals has prompts and outputs; remove"),
        ("chat: m, prompt: {median: 9, sigma: 1}, output: 1", "streams.a.prompt: 'max' is missing; add max: longest"),
        ("chat: m, prompt: {median: 9, sigma: 1, max: 9, min: 10}, output: 1", "min 10 is above max 9; exchange them"),
        ("chat: m, prompt: {median: -9, sigma: 1, max: 9}, output: 1", "-9 is out of range; write more than 0"),
        ("chat: m, prompt: {mean: 9}, output: 1", "not a length; write tokens, {median: 200, sigma: 0.7, max: 1000}"),
        ("chat: m, prompt: {median: 9, sigma: 1, max: 9000}, output: 1", "prompt 9000 and output 1 exceed the context"),
        (f"{CHAT}, pace: 0 Hz", "'0 Hz' is out of range; write more than 0"),
        (f"{CHAT}, slo: {{ttft: 5}}", "5 has no unit; write a time such as '479 ns'"),
        (f"{CHAT}, weight: 0", "0 is out of range; write more than 0"),
    ],
)  # fmt: skip
def test_a_wrong_stream_is_one_problem_at_its_place(tmp_path: Path, stream: str, message: str) -> None:
    found = refusal(tmp_path, stream)
    assert message in found
    assert found.startswith("a.yaml:")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "day.csv cannot be read: [Errno 2]"),
        (b"", "day.csv has no rows; write columns arrival_s, prompt_tokens, output_tokens and a row each request"),
        (b"arrival_s,prompt_tokens\n1,2\n", "day.csv has no column output_tokens; name its columns"),
        (b"arrival_s,prompt_tokens,output_tokens\n1,2,x\n", "day.csv, line 2: 1, 2, x; write seconds from 0 on and"),
        (b"arrival_s,prompt_tokens,output_tokens\n1,0,3\n", "day.csv, line 2: 1, 0, 3; write seconds from 0 on and"),
        (b"arrival_s,prompt_tokens,output_tokens\n-1,2,3\n", "day.csv, line 2: -1, 2, 3; write"),
        (b"arrival_s,prompt_tokens,output_tokens\nnan,2,3\n", "day.csv, line 2: nan, 2, 3; write"),
        (b"arrival_s,prompt_tokens,output_tokens\n2,2,3\n1,2,3\n", "day.csv, line 3: it arrives before the one above"),
        (b"arrival_s,prompt_tokens,output_tokens\n1,2\n", "day.csv, line 2: 1, 2, None; write"),
        (b"\xff\xfe\x00", "day.csv cannot be read"),
    ],
)
def test_a_wrong_file_of_arrivals_is_told_by_its_line(tmp_path: Path, text: bytes | None, message: str) -> None:
    if text is not None:
        (tmp_path / "day.csv").write_bytes(text)
    found = refusal(tmp_path, "chat: m, arrivals: {file: day.csv}")
    assert message in found
    assert found.startswith("a.yaml:5:")


# Policies


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("fife", "no policy is named 'fife'; did you mean 'fifo'? One of your own is module:Class"),
        ("nowhere:Mine", "no module is named 'nowhere'; it is looked for in"),
        ("mine:Nobody", "module 'mine' has no 'Nobody'"),
        ("mine:helper", "'mine:helper' is no policy; give it a method pick(ready, core)"),
        ("broken:Mine", "'broken' cannot be imported: ZeroDivisionError: division by zero; mend it"),
    ],
)
def test_a_policy_that_is_none_is_told_at_its_place(tmp_path: Path, policy: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(
        "class Mine:\n    def pick(self, ready, core):\n        return ready[-1]\ndef helper(): ...\n"
    )
    (tmp_path / "broken.py").write_text("1 / 0\n")
    found = refusal(tmp_path, CHAT, f"policy: {policy}")
    assert message in found
    assert found.startswith("a.yaml:6:9: error: policy: ")


LAST = """\
class LastFirst:
    def pick(self, ready, core):
        return ready[-1]
"""


def test_a_policy_of_ones_own_is_found_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "my_policies.py").write_text(LAST)
    users = f"{CHAT}, users: 4"
    plain = run(tmp_path, users, records=True)
    mine = run(tmp_path, users, "policy: my_policies:LastFirst", records=True)
    assert [r.first_token for r in plain.requests or ()] != [r.first_token for r in mine.requests or ()]


def test_a_policy_may_be_an_object_and_keeps_nothing_from_run_to_run(tmp_path: Path) -> None:
    class Counting:
        def __init__(self) -> None:
            self.picked = 0

        def pick(self, ready: Any, core: Any) -> Any:  # noqa: ARG002 (the protocol's signature)
            self.picked += 1
            return ready[-1] if self.picked % 2 else ready[0]

    policy = Counting()
    one, two = (run(tmp_path, f"{CHAT}, users: 4", policy=policy).to_dict() for _ in range(2))
    assert one == two
    assert policy.picked == 0


# Pipelines

LOOP = """\
machine: bpu80
models:
  m: {trace: '%s/qwen2.5-0.5b-int4.trace', cores: bpu0}
  d: {trace: '%s/wake_word.trace', cores: bpu1}
streams:
  loop:
    pipeline:
      hear: {frames: d}
      say:  {chat: m, after: hear, prompt: {text: 8, per_region: 4, regions: 3}, output: 4}
      talk: {host: 20 ms, after: say.first_token}
    trigger: {every: 1 s}
    count: 2
    deadline: {talk: 500 ms}
"""


def test_a_pipeline_is_measured_to_its_ends(tmp_path: Path) -> None:
    path = tmp_path / "loop.yaml"
    path.write_text(LOOP % (TRACES, TRACES))
    result = simulate(path, records=True)
    stats = result.streams["loop"]
    assert isinstance(stats, PipelineStats)
    assert (stats.triggered, stats.runs, list(stats.ends)) == (2, 2, ["talk"])
    assert [(r.stream, r.prompt, r.tokens) for r in result.requests or ()] == [("loop.say", 20, 4)] * 2
    assert result.tokens_per_s * result.elapsed / 1e12 == pytest.approx(8)
    talk = stats.ends["talk"]
    assert talk.mean_ms == pytest.approx(sum(talk.breakdown_ms.values()), abs=1e-9)
    stats.assert_slo(talk_p99="500 ms", talk_late=0, dropped=0)
    with pytest.raises(AssertionError, match=r"talk_mean: .* at most 1 ms"):
        stats.assert_slo(talk_mean="1 ms")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("after: hear,", "after: here,", "say waits for 'here', which there is not; did you mean 'hear'?"),
        ("say.first_token", "hear.first_token", "talk waits for 'hear.first_token', which there is not"),
        ("{frames: d}", "{frames: d, after: talk}", "stages wait for each other: hear waits for"),
        ("{frames: d}", "{frames: d, host: 1 ms}", "frames and host to do; write one of frames, chat, host or wait"),
        ("{frames: d}", "{}", "nothing to do; write one of frames, chat, host or wait"),
        ("{frames: d}", "{frames: d, output: 3}", "output means nothing to frames; remove it"),
        ("{frames: d}", "{frames: nobody}", "no model is named 'nobody'"),
        ("{frames: d}", "{frames: m}", "model 'm' cannot serve frames: its trace has the phases prefill, decode"),
        ("output: 4", "output: 9000", "prompt 20 and output 9000 exceed the context"),
        (", output: 4", "", "a chat stage needs prompt and output"),
        ("regions: 3", "regions: 0", "0 is out of range; write 1 or more"),
        ("{every: 1 s}", "{}", "write one of every and poisson"),
        ("{talk: 500 ms}", "{tal: 500 ms}", "deadline: no stage is named 'tal'; did you mean 'talk'?"),
        ("    count: 2\n", "", "every stream is endless and nothing ends the run"),
    ],
)
def test_a_wrong_pipeline_is_one_problem_at_its_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = LOOP % (TRACES, TRACES)
    assert old in text
    path = tmp_path / "loop.yaml"
    path.write_text(text.replace(old, new))
    with pytest.raises(BpusimError) as caught:
        simulate(path)
    (problem,) = caught.value.problems
    assert message in str(problem)
    assert str(problem).startswith(f"{path}:")


def test_users_who_keep_the_cache_for_themselves_are_refused(tmp_path: Path) -> None:
    """Others would wait for room in it for good."""
    text = LOOP.replace("streams:\n", "streams:\n  bob: {chat: m, prompt: 4, output: 2, history: kept}\n")
    path = tmp_path / "loop.yaml"
    for room, refused in [(1, True), (2, False)]:
        path.write_text(text.replace("cores: bpu0}", f"cores: bpu0, sequences: {room}}}") % (TRACES, TRACES))
        if refused:
            with pytest.raises(
                BpusimError, match=r"1 users keep their conversations .* room for 1; give the model sequences: 2"
            ):
                simulate(path)
        else:
            assert simulate(path).streams["bob"].to_dict()["requests"] == 1


# What a user should know


@pytest.mark.parametrize(
    ("stream", "more", "code", "text"),
    [
        (f"{CHAT}, weight: 2", "policy: fifo", "weight-unused", "policy fifo looks at no weight; that of a"),
        (CHAT, "policy: edf", "no-deadlines", "policy edf goes by deadlines and no stream has one"),
        (
            f"{CHAT}, arrivals: {{poisson: 20 Hz}}, requests: forever", "run: {until: 5 s}",
            "growing-line", "were under way at the end, and never more: they come faster",
        ),
        (
            f"{CHAT}, arrivals: {{poisson: 20 Hz}}, requests: 40", "",
            "growing-line", "were under way when the last had come, and never more",
        ),
        (
            f"{CHAT}, arrivals: {{poisson: 20 Hz}}, requests: 50, waiting: 2", "",
            "requests-rejected", "of 50 requests found the line full and were rejected",
        ),
    ],
)  # fmt: skip
def test_what_is_probably_not_meant_is_told(tmp_path: Path, stream: str, more: str, code: str, text: str) -> None:
    (warning,) = [w for w in run(tmp_path, stream, more).warnings if w.code == code]
    assert text in warning.text


def test_a_priority_that_nobody_looks_at_is_told_of(tmp_path: Path) -> None:
    for policy, told in [("fifo", 1), ("priority", 0)]:
        result = run(tmp_path, CHAT, f"policy: {policy}", set={"models.m.priority": 9})
        assert len([w for w in result.warnings if w.code == "priority-unused"]) == told


def test_policies_of_one_name_in_two_folders_are_two(tmp_path: Path) -> None:
    for name, which in [("one", 0), ("two", -1)]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "same.py").write_text(
            f"class Mine:\n    def pick(self, ready, core):\n        return ready[{which}]\n"
        )
    users = f"{CHAT}, users: 4"
    first, last = (run(tmp_path / n, users, "policy: same:Mine", records=True) for n in ("one", "two"))
    assert [r.first_token for r in first.requests or ()] != [r.first_token for r in last.requests or ()]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise KeyError('x')", "policy Mine: pick failed at broken_pick.py, line 3: KeyError: 'x'; mend it"),
        ("return None", "policy Mine picked a call that is not ready; return one of ready"),
    ],
)
def test_a_policy_that_fails_is_named_with_the_line(tmp_path: Path, body: str, message: str) -> None:
    (tmp_path / "broken_pick.py").write_text(f"class Mine:\n    def pick(self, ready, core):\n        {body}\n")
    with pytest.raises(BpusimError) as caught:
        run(tmp_path, f"{CHAT}, users: 4", "policy: broken_pick:Mine")
    assert message in str(caught.value)


def test_a_policy_may_be_a_name_or_a_class(tmp_path: Path) -> None:
    class Last:
        def pick(self, ready: Any, core: Any) -> Any:  # noqa: ARG002 (the protocol's signature)
            return ready[-1]

    users = f"{CHAT}, users: 4"
    assert run(tmp_path, users, policy="fifo").to_dict() == run(tmp_path, users, "policy: fifo").to_dict()
    assert run(tmp_path, users, policy=Last).to_dict() == run(tmp_path, users, policy=Last()).to_dict()
    with pytest.raises(BpusimError, match="no policy is named 'fife'"):
        run(tmp_path, users, policy="fife")
    with pytest.raises(BpusimError, match="3 is no policy; give it a method pick"):
        run(tmp_path, users, policy=3)


def test_a_policy_that_cannot_be_made_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "asks.py").write_text(
        "class Mine:\n    def __init__(self, n): ...\n    def pick(self, ready, core): ...\n"
    )
    with pytest.raises(BpusimError, match=r"policy Mine: it cannot be made: TypeError: .*; make it without arguments"):
        run(tmp_path, CHAT, "policy: asks:Mine")


# A model that reads a prompt in one chunk only


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (f"{CHAT}, history: kept", "of at most 256 tokens, not behind a kept conversation; remove history"),
        (f"{CHAT}, history: reread", "and conversations grow to its context of 4096; compile the model with --chunk"),
        ("chat: m, prompt: 257, output: 4", "and prompts have up to 257; shorten them, or compile the model with"),
        ("chat: m, prompt: {median: 9, sigma: 1, max: 300}, output: 4", "and prompts have up to 300; shorten them"),
        ("chat: m, prompt: 256, output: 4", ""),
    ],
)
def test_a_prefill_over_an_empty_cache_takes_one_chunk(tmp_path: Path, stream: str, message: str) -> None:
    trace = load_trace(TRACES / "qwen2.5-0.5b-int4.trace")
    trace.phases = {**trace.phases, "prefill": replace(trace.phases["prefill"], empty_cache=True)}
    save_trace(trace, tmp_path / "m.trace")
    path = tmp_path / "a.yaml"
    path.write_text(f"machine: bpu80\nmodels:\n  m: {{trace: m.trace, cores: bpu0}}\nstreams:\n  a: {{{stream}}}\n")
    if not message:
        assert chat(simulate(path)).tokens == 4
        return
    with pytest.raises(BpusimError) as caught:
        simulate(path)
    (problem,) = caught.value.problems
    assert "model 'm' reads a prompt over an empty cache only, in one chunk" in problem.what
    assert message in str(problem)
    assert str(problem).startswith(f"{path}:5:")
