"""DRAM timing sets as data: files in ``timings/``, each with its source; every spacing between commands derived here.

A channel is named ``FAMILY-RATExWIDTH`` (``LPDDR4X-3200x64``): devices of the file in lockstep, as many as the width
takes. Times are clocks of the command clock; ``clock_ps`` converts.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from bpusim.documents import read_document
from bpusim.dram.mapping import Mapping
from bpusim.dram.names import TIMINGS, devices_of, stem_of, timing_names
from bpusim.errors import HardwareError, Place, Problem, did_you_mean
from bpusim.units import PS_PER_S, Duration, Ps, Size, TransferRate

__all__ = ["Channel", "TimingSet", "channel", "timing_names", "timing_set"]

STRICT = ConfigDict(extra="forbid", strict=True)
Clocks = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, slots=True, config=STRICT)
class Device:
    """One device: data pins, banks (all groups together), rows of ``row`` bytes, transfers of a burst, ranks."""

    width: Count
    banks: Count
    groups: Count
    rows: Count
    row: Size
    burst: Count
    ranks: Count


@dataclass(frozen=True, slots=True, config=STRICT)
class Timing:
    """JEDEC's parameters in clocks. ``_S`` between bank groups, ``_L`` within one; ``pb`` one bank, ``ab`` all."""

    RL: Clocks
    WL: Clocks
    DQSCK: Clocks
    BL: Clocks
    RCD: Clocks
    RPpb: Clocks
    RPab: Clocks
    RAS: Clocks
    RC: Clocks
    RRD_S: Clocks
    RRD_L: Clocks
    FAW: Clocks
    CCD_S: Clocks
    CCD_L: Clocks
    WTR_S: Clocks
    WTR_L: Clocks
    RTP: Clocks
    WR: Clocks
    RTRS: Clocks
    REFI: Count
    RFCab: Clocks
    RFCpb: Clocks


@dataclass(frozen=True, slots=True, config=STRICT)
class Commands:
    """Clocks that a command occupies the command bus."""

    activate: Count
    column: Count
    precharge: Count
    refresh: Count


@dataclass(frozen=True, slots=True, config=STRICT)
class Extra:
    """What a family adds to the sums: bus turnaround, write strobe (tDQSS), the second half of a long command.

    LPDDR4 sends an activate, a read or a write in two parts, a precharge or a refresh in one, and counts from each
    command's last clock. Between first clocks a short command after a long one is ``half`` later than the parameter
    says, and a long one after a short one so much earlier. 0: the set counts from first clocks.
    """

    turnaround: Clocks
    write: Clocks
    half: Clocks


@dataclass(frozen=True, slots=True, config=STRICT)
class TimingSet:
    """One file of ``timings/``."""

    family: str
    transfers: TransferRate
    clock: Duration
    device: Device
    timing: Timing
    command: Commands
    extra: Extra
    mapping: str

    @property
    def read_to_write(self) -> int:
        """RD to WR: the read's data must have left the bus. ``RL + tDQSCK + BL + turnaround - WL``."""
        t = self.timing
        return t.RL + t.DQSCK + t.BL + self.extra.turnaround - t.WL

    def write_to_read(self, same_group: bool) -> int:
        """WR to RD in a rank. ``WL + tDQSS + BL + tWTR``."""
        t = self.timing
        return t.WL + self.extra.write + t.BL + (t.WTR_L if same_group else t.WTR_S)

    @property
    def read_to_precharge(self) -> int:
        """RD to PRE. ``tRTP`` and the read's second half."""
        return self.timing.RTP + self.extra.half

    @property
    def write_to_precharge(self) -> int:
        """WR to PRE. ``WL + tDQSS + BL + tWR`` and the write's second half."""
        t = self.timing
        return t.WL + self.extra.write + t.BL + t.WR + self.extra.half

    @property
    def activate_to_precharge(self) -> int:
        """ACT to PRE. ``tRAS`` and the activate's second half."""
        return self.timing.RAS + self.extra.half

    def precharge_to_activate(self, all_banks: bool) -> int:
        """PRE to ACT. ``tRP`` less the activate's second half."""
        return (self.timing.RPab if all_banks else self.timing.RPpb) - self.extra.half

    def refresh_to_activate(self, all_banks: bool) -> int:
        """REF to ACT of a bank that it refreshed. ``tRFC`` less the activate's second half."""
        return (self.timing.RFCab if all_banks else self.timing.RFCpb) - self.extra.half

    @property
    def read_done(self) -> int:
        """RD to the last bit of its data. ``RL + tDQSCK + BL`` from the command's last clock."""
        t = self.timing
        return t.RL + t.DQSCK + t.BL + self.command.column - 1

    @property
    def rank_switch(self) -> int:
        """Column to column of another rank: a burst and the switch."""
        return self.timing.BL + self.timing.RTRS


@dataclass(frozen=True, slots=True)
class Channel:
    """A named channel: a timing set and so many devices in lockstep."""

    name: str
    timing: TimingSet
    devices: int

    @property
    def width(self) -> int:
        """Data pins."""
        return self.timing.device.width * self.devices

    @property
    def line(self) -> int:
        """Bytes of a burst over all devices."""
        return self.width * self.timing.device.burst // 8

    @property
    def peak(self) -> int:
        """Bytes per second on the pins."""
        return round(self.line * PS_PER_S / (self.timing.timing.BL * self.timing.clock))

    @property
    def row_lines(self) -> int:
        """Lines of an open row over all devices."""
        return self.timing.device.row * self.devices // self.line

    @property
    def capacity(self) -> int:
        """Bytes of all ranks."""
        d = self.timing.device
        return d.row * self.devices * d.rows * d.banks * d.ranks

    @property
    def latency(self) -> Ps:
        """Activate, read and data on an idle channel."""
        return (self.timing.timing.RCD + self.timing.read_done) * self.timing.clock

    def mapping(self, text: str | None = None) -> Mapping:
        """The set's own address mapping, or another one; it must cover exactly this channel's lines."""
        d = self.timing.device
        need = {"co": self.row_lines, "ro": d.rows, "ra": d.ranks, "bg": d.groups, "ba": d.banks // d.groups}
        return Mapping.parse(
            self.timing.mapping if text is None else text, {k: n.bit_length() - 1 for k, n in need.items()}
        )


def channel(name: str, place: Place | None = None) -> Channel:
    """The channel called ``name``, such as ``LPDDR4X-3200x64``; :class:`HardwareError` says what there is."""
    stem, width = stem_of(name, place)
    timing = timing_set(stem)
    return Channel(name, timing, devices_of(name, stem, width, timing.device.width, place))


def timing_set(stem: str) -> TimingSet:
    """The timing set called ``stem``, such as ``LPDDR4X-3200``; :class:`HardwareError` says what there is."""
    if stem not in timing_names():
        raise HardwareError(f"unknown DRAM timing set '{stem}'", do=did_you_mean(stem, list(timing_names())))
    document = read_document(TIMINGS / f"{stem}.yaml", error=HardwareError)
    try:
        return TypeAdapter(TimingSet).validate_json(json.dumps(document.data))
    except ValidationError as failure:
        problems: list[Problem] = []
        for e in failure.errors():
            path: tuple[Any, ...] = e["loc"]
            problems.append(Problem(f"{'.'.join(map(str, path))}: {e['msg']}", document.where(*path)))
        raise HardwareError(problems) from None
