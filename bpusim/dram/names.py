"""Names of channels: ``FAMILY-RATExWIDTH``, such as ``LPDDR4X-3200x64``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bpusim.errors import HardwareError, Place, did_you_mean

__all__ = ["TIMINGS", "devices_of", "stem_of", "timing_names"]

TIMINGS = Path(__file__).with_name("timings")
"""The folder of the timing sets."""


def timing_names() -> tuple[str, ...]:
    """Names of all timing sets, sorted."""
    return tuple(sorted(p.stem for p in TIMINGS.glob("*.yaml")))


def stem_of(name: str, place: Place | None = None) -> tuple[str, int]:
    """(timing set, width in bits) of a channel's name; :class:`HardwareError` says what there is."""
    match = re.fullmatch(r"(.+)x([1-9]\d{0,3})", name)
    known = timing_names()
    if match and match[1] in known:
        return match[1], int(match[2])
    do = did_you_mean(match[1], list(known)) if match else ""
    if not do or (match and match[1].lower() in (k.lower() for k in known)):
        do = _width_advice(match[1] if match else name.rpartition("x")[0] or name, known)
    raise HardwareError(f"unknown DRAM channel '{name}'", place=place, do=do)


def _width_advice(stem: str, known: Sequence[str]) -> str:
    same = [k for k in known if k.lower() == stem.lower()]
    return f"write it with its width in bits, such as {(same or known)[0]}x64"


def devices_of(name: str, stem: str, width: int, device: int, place: Place | None = None) -> int:
    """How many devices of so many bits are in lockstep in a channel: a power of two."""
    devices, rest = divmod(width, device)
    if rest or not devices or devices & (devices - 1):
        do = f"write x{device} times a power of two, such as {stem}x{device * 4}"
        raise HardwareError(f"'{name}': its devices are {device} bit wide", place=place, do=do)
    return devices
