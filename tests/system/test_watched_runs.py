"""Runs that are watched: nothing changes by it, and a stop gives what had ended by then."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from bpusim import Result, simulate
from bpusim.report.files import summary_json
from bpusim.system import Progress
from bpusim.system.build import SLICE

TRACES = Path(__file__).resolve().parents[2] / "traces"
MODELS = f"""\
machine: bpu80
models:
  chat: {{trace: '{TRACES}/qwen2.5-0.5b-int4.trace', cores: bpu0}}
  eye:  {{trace: '{TRACES}/resnet50-992.trace', cores: bpu1}}
"""
MIXED = """\
streams:
  alice:  {chat: chat, prompt: 8, output: 6, requests: 6}
  camera: {frames: eye, rate: 10 Hz}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Callable[[str], Path]:
    def write(streams: str) -> Path:
        path = tmp_path / "s.yaml"
        path.write_text(MODELS + streams)
        return path

    return write


@pytest.fixture
def mixed(scenario: Callable[[str], Path]) -> Path:
    return scenario(MIXED)


def _stopped(path: Path, look: int) -> Result:
    """Stopped at look number ``look``, counted from 0."""
    looks = iter(range(look + 1))

    def watch(progress: Progress) -> bool:
        return next(looks) == look

    return simulate(path, records=True, watch=watch)


# --- watching


def test_a_watched_run_is_the_same_bytes(mixed: Path) -> None:
    def watch(progress: Progress) -> bool:
        assert progress.now >= 0
        assert 0 <= progress.fraction <= 1
        return False

    assert summary_json(simulate(mixed, watch=watch)) == summary_json(simulate(mixed))


def test_it_is_looked_at_before_the_first_event_and_every_slice(mixed: Path) -> None:
    times: list[int] = []

    def watch(progress: Progress) -> bool:
        times.append(progress.now)
        return False

    result = simulate(mixed, watch=watch)
    assert times[0] == 0
    assert result.events // SLICE * 0.8 <= len(times) <= -(-result.events // SLICE)  # but for steps taken ahead
    assert all(a <= b for a, b in pairwise(times))


def test_what_watches_may_fail(mixed: Path) -> None:
    class EnoughError(Exception):
        pass

    def watch(progress: Progress) -> bool:
        raise EnoughError

    with pytest.raises(EnoughError):
        simulate(mixed, watch=watch)


# --- stopping


def test_a_whole_run_is_not_partial(mixed: Path) -> None:
    result = simulate(mixed)
    assert not result.partial
    assert result.to_dict()["partial"] is False
    assert "partial" not in [w.code for w in result.warnings]


@pytest.mark.parametrize("look", [0, 1, 2, 5])
def test_a_stop_ends_at_that_event(mixed: Path, look: int) -> None:
    stood: list[int] = []

    def watch(progress: Progress) -> bool:
        stood.append(progress.now)
        return len(stood) > look

    result = simulate(mixed, watch=watch)
    assert result.elapsed == stood[look]
    assert look * SLICE <= result.events < (look + 1) * SLICE
    assert result.partial
    assert result.to_dict()["partial"] is True


def test_a_stopped_run_warns_with_the_time(mixed: Path) -> None:
    result = _stopped(mixed, 3)
    (warning,) = [w for w in result.warnings if w.code == "partial"]
    assert f"stopped at {result.elapsed / 1e12:.3f} s" in warning.text


def test_what_had_ended_is_as_in_the_whole_run(mixed: Path) -> None:
    whole = simulate(mixed, records=True)
    looks = whole.events // SLICE
    counts = set()
    for look in range(looks):
        part = _stopped(mixed, look)
        assert part.requests is not None
        assert whole.requests is not None
        assert part.requests == whole.requests[: len(part.requests)]
        counts.add(len(part.requests))
    assert len(counts) > 3, "it is stopped between requests"


def test_two_stops_at_one_look_are_the_same_bytes(mixed: Path) -> None:
    assert summary_json(_stopped(mixed, 4)) == summary_json(_stopped(mixed, 4))


@pytest.mark.parametrize("look", [4, 6])
def test_causes_of_a_stopped_run_sum_to_its_latencies(mixed: Path, look: int) -> None:
    (chat,) = _stopped(mixed, look).chats.values()
    assert chat.tpot_mean_ms is not None
    assert sum(chat.breakdown_ms.values()) == pytest.approx(chat.tpot_mean_ms, abs=1e-9)


def test_no_time_and_no_call_is_a_result_too(mixed: Path) -> None:
    result = _stopped(mixed, 0)
    assert (result.elapsed, result.tokens_per_s) == (0, 0.0)


# --- how far it is


def _fractions(path: Path, **changes: object) -> list[float]:
    out: list[float] = []

    def watch(progress: Progress) -> bool:
        out.append(progress.fraction)
        return False

    simulate(path, set={k.replace("__", "."): v for k, v in changes.items()}, watch=watch)
    return out


@pytest.mark.parametrize(
    "streams",
    [
        MIXED,
        "streams:\n  alice: {chat: chat, prompt: 8, output: {median: 6, sigma: 0.5, max: 20}, requests: 6}\n",
        "streams:\n  alice: {chat: chat, prompt: 8, output: 6, requests: 9, arrivals: {poisson: 20 Hz}, waiting: 0}\n",
        "streams:\n  camera: {frames: eye, rate: 40 Hz, count: 40}\n",
        "streams:\n  loop: {pipeline: {see: {frames: eye}, talk: {chat: chat, prompt: 8, output: 4, after: [see]}},"
        " trigger: {every: 200 ms}, count: 8}\n",
        MIXED.replace("requests: 6", "requests: forever") + "run: {until: 300 ms}\n",
    ],
)
def test_the_fraction_rises_from_none_to_nearly_all(scenario: Callable[[str], Path], streams: str) -> None:
    fractions = _fractions(scenario(streams))
    assert fractions[0] == 0
    assert all(a <= b for a, b in pairwise(fractions))
    assert 0.6 < fractions[-1] <= 1


def test_the_fraction_of_a_chat_is_of_its_tokens(scenario: Callable[[str], Path]) -> None:
    """One request: by requests nothing would be done before the end."""
    fractions = _fractions(scenario("streams:\n  alice: {chat: chat, prompt: 8, output: 1000}\n"))
    assert {round(f * 1000, 9) % 1 for f in fractions} == {0.0}
    assert len(set(fractions)) > 5


def test_the_stream_with_most_to_do_counts(scenario: Callable[[str], Path]) -> None:
    """Both must end: a camera that is through says little of a chat with 60 tokens to go."""
    fractions = _fractions(scenario(MIXED.replace("10 Hz}", "30 Hz, count: 1}")))
    assert sum(f == 1 for f in fractions) <= 1


def test_whichever_ends_first_counts(mixed: Path) -> None:
    """A tenth of the tokens fits before ``until``: the fraction is that of the time."""
    assert _fractions(mixed, run__until="40 ms")[-1] > 0.5
    assert _fractions(mixed, run__until="1000 s")[-1] > 0.8
