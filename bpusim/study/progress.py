"""How far a sweep is, for who watches it: on a terminal's stderr, and nowhere else."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

__all__ = ["Progress"]


class Progress:
    """A bar with the points that are done, and when the others will be. Use it as a context manager."""

    def __init__(self, name: str, where: str) -> None:
        self._bar: Any = None
        self._task: Any = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("points,"),
                TimeElapsedColumn(), TextColumn("gone,"), TimeRemainingColumn(), TextColumn("left"),
                console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self._task = self._bar.add_task(f"{name}, {where}", total=None)

    def told(self, done: int, points: int) -> None:
        """So many of so many points have rows."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=points)

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
