"""Ctrl-C and SIGTERM while a command works."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

__all__ = ["Interrupts"]


class Interrupts:
    """SIGINT and SIGTERM between its begin and its end, when whoever heard them before does so again.

    The first one in a run that asks (:meth:`asked`) is only noted, so that the run can end with what it has. Any other
    ends the program at once, by a :class:`SystemExit` that lets files be cleaned up.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        """The one that is noted."""
        self._asks = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        main = threading.current_thread() is threading.main_thread()  # no other may handle signals, or is sent any
        for number in (signal.SIGINT, signal.SIGTERM) if main else ():
            self._before[number] = signal.signal(number, self._heard)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    @property
    def code(self) -> int:
        """What a shell takes for the end by the signal: 130 for SIGINT, 143 for SIGTERM."""
        return 128 + self.signal if self.signal is not None else 0

    def asked(self) -> bool:
        """Whether the run is to end. From the first question on, until :meth:`ran`, a signal waits for the next."""
        self._asks = True
        return self.signal is not None

    def ran(self) -> None:
        """The run is over: nobody asks any more."""
        self._asks = False

    def _heard(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002  # as handlers are called
        first, self.signal = self.signal is None, signal.Signals(number)
        if not (first and self._asks):
            raise SystemExit(self.code)
