"""The line that says how far a long run is: what it says, when it is drawn, and that it is wiped off."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from bpusim.cli import progress as module
from bpusim.cli.progress import ProgressBar, progress_text

S = 10**12


@pytest.mark.parametrize(
    ("now", "fraction", "seconds", "text"),
    [
        (412 * S, 0.25, 4.0, "25 %, 412.0 s simulated, 103 x real time, 12 s to go"),
        (S // 2, 0.0, 2.0, "0 %, 0.5 s simulated, 0.25 x real time"),
        (S, 0.009, 1.0, "1 %, 1.0 s simulated, 1 x real time"),
        (S, 0.01, 1.0, "1 %, 1.0 s simulated, 1 x real time, 1 min 39 s to go"),
        (S, 0.5, 59.4, "50 %, 1.0 s simulated, 0.0168 x real time, 59 s to go"),
        (S, 0.5, 59.6, "50 %, 1.0 s simulated, 0.0168 x real time, 1 min 0 s to go"),
        (S, 0.5, 7500.0, "50 %, 1.0 s simulated, 0.000133 x real time, 2 h 5 min to go"),
        (S, 1.0, 2.0, "100 %, 1.0 s simulated, 0.5 x real time, 0 s to go"),
    ],
)
def test_the_text(now: int, fraction: float, seconds: float, text: str) -> None:
    assert progress_text(now, fraction, seconds) == text


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Seconds that pass when the test says so."""
    seconds = SimpleNamespace(now=100.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: seconds.now))
    for name, value in {"TERM": "xterm", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    return seconds


def _at(seconds: int, fraction: float) -> Any:
    return SimpleNamespace(now=seconds * S, fraction=fraction)


def test_a_short_run_draws_nothing_and_loads_nothing(clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.progress", None)  # an import would fail
    out = _Terminal()
    with ProgressBar(out) as bar:
        for _ in range(9):
            bar.show(_at(1, 0.1))
            clock.now += 0.1
    assert out.getvalue() == ""


def test_a_long_run_is_drawn_from_one_second_on(clock: SimpleNamespace) -> None:
    out = _Terminal()
    with ProgressBar(out) as bar:
        bar.show(_at(0, 0.0))
        clock.now += 2
        bar.show(_at(50, 0.5))
        assert "50 %, 50.0 s simulated, 25 x real time, 2 s to go" in out.getvalue()


def test_it_is_drawn_anew_a_few_times_a_second(clock: SimpleNamespace) -> None:
    out = _Terminal()
    with ProgressBar(out) as bar:
        bar.show(_at(0, 0.0))
        for k in range(1000):
            clock.now += 0.01
            bar.show(_at(k, k / 1000))
        assert 40 <= out.getvalue().count("x real time") <= 50


def test_it_is_wiped_off_at_the_end(clock: SimpleNamespace) -> None:
    """The line is erased and the cursor shown: nothing of it stays above the results."""
    out = _Terminal()
    with ProgressBar(out) as bar:
        bar.show(_at(0, 0.0))
        clock.now += 2
        bar.show(_at(50, 0.5))
    assert out.getvalue().rstrip().endswith("\x1b[2K")
    assert "\x1b[?25h" in out.getvalue()


def test_no_terminal_sees_anything(clock: SimpleNamespace) -> None:
    out = io.StringIO()
    with ProgressBar(out) as bar:
        bar.show(_at(0, 0.0))
        clock.now += 1000
        bar.show(_at(50, 0.5))
    assert out.getvalue() == ""


def test_a_dumb_terminal_is_not_sent_escapes(clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    out = _Terminal()
    with ProgressBar(out) as bar:
        bar.show(_at(0, 0.0))
        clock.now += 2
        bar.show(_at(50, 0.5))
    assert "\x1b" not in out.getvalue()
