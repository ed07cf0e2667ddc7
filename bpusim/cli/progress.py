"""A line on a terminal that says how far a long run or sweep is."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from bpusim.units import PS_PER_S, Ps

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from bpusim.system import Progress

__all__ = ["ProgressBar", "points_text", "progress_text"]

_AFTER = 1.0
"""Seconds until a run is long enough to be worth a line, and what draws it worth loading."""
_EVERY = 0.2
"""Seconds from one drawing to the next."""
_LINE = 60.0
"""Seconds from one line to the next, of a sweep that no terminal shows."""


class ProgressBar:
    """How far a run or a sweep is, drawn on a terminal while it goes on and wiped off after. On anything else a sweep
    says a line a minute, and a run nothing.

    It draws when it is shown something, in the thread of the run. Wall time goes to ``out`` only.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._begun = self._due = 0.0
        self._bar: Bar | None = None

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, progress: Progress) -> None:
        """How far a run is, drawn if that is due; the first time is its begin."""
        fraction = progress.fraction
        if self._terminal:
            self._draw(fraction, lambda seconds: progress_text(progress.now, fraction, seconds))

    def points(self, done: int, there: int, points: int) -> None:
        """How far a sweep is: ``done`` of ``points``, of which ``there`` were there at its begin, the first call."""
        if done < points:
            self._draw(done / points, lambda seconds: points_text(done, there, points, seconds))

    def _draw(self, fraction: float, say: Callable[[float], str]) -> None:
        now = time.monotonic()
        if not self._begun:
            self._begun, self._due = now, now + (_AFTER if self._terminal else _LINE)
        if now < self._due:
            return
        self._due = now + (_EVERY if self._terminal else _LINE)
        text = say(now - self._begun)
        if not self._terminal:
            print(text, file=self._out, flush=True)
        elif self._bar is None:
            self._bar = _bar(self._out)
            self._bar.add_task(text, total=1.0, completed=fraction)  # type: ignore[arg-type]  # a part of one
            self._bar.start()
        else:
            self._bar.update(self._bar.task_ids[0], completed=fraction, description=text, refresh=True)


def _bar(out: TextIO) -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        BarColumn(20, complete_style="cyan", finished_style="cyan"),
        TextColumn("{task.description}", markup=False),
    )
    return Progress(*columns, console=Console(file=out), transient=True, auto_refresh=False)


def progress_text(now: Ps, fraction: float, seconds: float) -> str:
    """``36 %, 412.0 s simulated, 131 x real time, 6 s to go`` after ``seconds`` of wall time.

    What is left is at the mean pace so far; nothing is said of it before a hundredth is done.
    """
    simulated = now / PS_PER_S
    parts = [f"{100 * fraction:.0f} %", f"{simulated:.1f} s simulated", f"{simulated / seconds:.3g} x real time"]
    if fraction >= 0.01:
        parts.append(f"{_span(seconds * (1 - fraction) / fraction)} to go")
    return ", ".join(parts)


def points_text(done: int, there: int, points: int, seconds: float) -> str:
    """``412 of 1000 points, 6.9 a second, 1 min 25 s to go`` after ``seconds`` of wall time, of which nothing went into
    those that were ``there``."""
    parts = [f"{done} of {points} points"]
    if done > there:
        rate = (done - there) / seconds
        parts += [f"{rate:.2g} a second", f"{_span((points - done) / rate)} to go"]
    return ", ".join(parts)


def _span(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
