"""What colours mean on a terminal. None of them stands alone: a word or a number beside it says the same."""

from __future__ import annotations

__all__ = ["BAD", "CAUSE_STYLES", "GOOD", "WARN"]

GOOD, BAD, WARN = "green", "red", "yellow"
"""Kept what was asked; missed it; worth a look."""

CAUSE_STYLES = {
    "compute": "cyan",
    "dram": "dodger_blue1",
    "scratchpad": "dark_cyan",
    "contention": "magenta",
    "throttling": "dark_orange",
    "wakeup": "light_salmon3",
    "dispatch": "medium_purple",
    "host": "gold3",
    "fallback": "orchid",
    "handover": "steel_blue1",
    "sync": "slate_blue1",
    "loading": "khaki3",
    "queueing": "rosy_brown",
    "batching": "dark_khaki",
    "camera": "sea_green2",
    "pacing": "pale_violet_red1",
    "other": "dim",
}
"""Of each of :data:`bpusim.metrics.CAUSES`, wherever it is named."""
