"""When what is printed cannot be written: a pipe that nobody reads any more, or a full disk."""

from __future__ import annotations

import contextlib
import os
import sys

__all__ = ["flush", "forget", "hung_up"]


def flush() -> None:
    """Write what is left of standard output now, while an error of it can still be told."""
    sys.stdout.flush()


def forget() -> None:
    """Drop what could not be written: Python would try again at its end, and complain."""
    with contextlib.suppress(OSError, ValueError):  # a test's output is no file
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def hung_up(error: SystemExit) -> bool:
    """Whether rich ended the program because nobody reads its output, which is no failure."""
    return isinstance(error.__context__, BrokenPipeError)
