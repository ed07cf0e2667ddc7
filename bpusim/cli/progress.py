"""A line on a terminal that says how far a long run is."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from bpusim.units import PS_PER_S, Ps

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from bpusim.system import Progress

__all__ = ["ProgressBar", "progress_text"]

_AFTER = 1.0
"""Seconds until a run is long enough to be worth a line, and what draws it worth loading."""
_EVERY = 0.2
"""Seconds from one drawing to the next."""


class ProgressBar:
    """How far a run is, drawn on a terminal while it goes on and wiped off after; nothing on anything else.

    It draws when it is shown something, in the thread of the run. Wall time goes to the terminal only.
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
        """Draw it, if that is due; the first time is the begin of the run."""
        if not self._terminal:
            return
        now = time.monotonic()
        if not self._begun:
            self._begun, self._due = now, now + _AFTER
        if now < self._due:
            return
        self._due = now + _EVERY
        fraction = progress.fraction
        text = progress_text(progress.now, fraction, now - self._begun)
        if self._bar is None:
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


def _span(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
