"""Regression tests of a deployment: what every stream was promised, how it compares, and nothing moved unnoticed."""

import pytest

from bpusim.testing import compare_policies

BOARD = "board.yaml"  # beside this file


def test_the_detector_meets_its_deadline(simulate):
    result = simulate(BOARD)
    result.streams["camera"].assert_slo(latency_p99="25 ms", dropped=0, late=0)
    result.streams["talk"].assert_slo(ttft_p99="200 ms", tpot_mean="70 ms", decode_tokens_per_s=14)
    assert not [w for w in result.warnings if w.code != "idle-core"]


def test_without_a_bound_on_calls_it_would_not(simulate):
    """What the bound is for: this fails if somebody finds another way to keep the promise."""
    result = simulate(BOARD, models__chat__max_call=None)
    with pytest.raises(AssertionError, match="latency_p99"):
        result.streams["camera"].assert_slo(latency_p99="25 ms")


@compare_policies(["priority", "edf"], BOARD)
def test_policies_that_keep_the_promise(bpusim_case):
    bpusim_case.result.streams["camera"].assert_slo(latency_p99="25 ms")


@compare_policies(["fifo", "round_robin", "my_policies:ShortestFirst"], BOARD)
def test_policies_that_do_not(bpusim_case):
    p99 = bpusim_case.result.streams["camera"].latency_p99_ms
    assert p99 > 25, bpusim_case.policy


def test_what_runs_when(simulate):
    """A frame that comes 60 ms into the prompt waits for the end of a piece, and the prompt goes on behind it."""
    one = {"streams.camera.count": 1, "streams.camera.jitter": "0 s", "streams.camera.start": "60 ms"}
    journal = simulate(BOARD, journal=True, set=one | {"streams.talk.output": 1, "streams.talk.requests": 1}).journal
    assert [(e.call, e.what) for e in journal] == [
        ("talk/prefill", "submit"),
        ("talk/prefill", "begin"),
        ("camera/frame", "submit"),
        ("talk/prefill", "interrupt"),
        ("camera/frame", "begin"),
        ("camera/frame", "end"),
        ("talk/prefill", "resume"),
        ("talk/prefill", "end"),
    ]
    came, went = journal[2].at, journal[3].at
    assert went - came <= 2 * 10**9  # ps: the bound


def test_nothing_moved(simulate, bpusim_golden):
    bpusim_golden("board", simulate(BOARD), rel={"*": 0.01, "streams.camera.dropped": 0})
