"""What a timeline consists of, whatever the file format: slices on tracks, arrows between them, counters, marks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from bpusim.metrics import CAUSES, Keep
from bpusim.units import PS_PER_S, Ps

__all__ = ["Arg", "Counter", "Flow", "Mark", "Slice", "Timeline", "Track", "cause_times"]

Arg = int | str | bool
T = TypeVar("T")
_NO_TIMES: Mapping[str, Ps] = {}


class Track(NamedTuple):
    """A row of slices that nest or are disjoint."""

    process: str
    thread: str


class Slice(NamedTuple):
    """Something that takes time, on a track by its number. ``times``: durations that belong to it, in ps."""

    track: int
    start: Ps
    end: Ps
    name: str
    args: Mapping[str, Arg]
    times: Mapping[str, Ps] = _NO_TIMES


class Flow(NamedTuple):
    """An arrow from slice number ``source``, at ``leaves`` within it, to the begin of ``target``."""

    kind: str
    source: int
    leaves: Ps
    target: int


class Counter(NamedTuple):
    """A value over time: each holds from its instant on. A point's number is a count of 10^-``digits`` ``unit``."""

    process: str
    name: str
    unit: str
    digits: int
    points: Sequence[tuple[Ps, int]]


class Mark(NamedTuple):
    """Something that happens at an instant, on a track by its number."""

    track: int
    at: Ps
    name: str


@dataclass(slots=True)
class Timeline:
    """A run, or a window of it, as tracks. ``processes``: in the order in which they are shown."""

    processes: Sequence[str]
    keep: Keep
    end: Ps
    """Of the run."""
    tracks: list[Track] = field(default_factory=list)
    slices: list[Slice] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    counters: list[Counter] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    """What is left out, a line each."""
    about: dict[str, object] = field(default_factory=dict)
    """What the file says of the run."""
    _numbers: dict[Track, int] = field(default_factory=dict)

    @property
    def until(self) -> Ps:
        """The end of the window, or of the run if that is earlier."""
        return self.end if self.keep.end is None else min(self.keep.end, self.end)

    def track(self, process: str, thread: str) -> int:
        """The number of a track, made if it is new."""
        key = Track(process, thread)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.tracks)
            self.tracks.append(key)
        return number

    def add(
        self,
        track: int,
        start: Ps,
        end: Ps,
        name: str,
        args: Mapping[str, Arg],
        times: Mapping[str, Ps] = _NO_TIMES,
    ) -> int | None:
        """The number of a new slice; None of one that takes no time, which is not made."""
        if end <= start:
            return None
        self.slices.append(Slice(track, start, end, name, args, times))
        return len(self.slices) - 1

    def flow(self, kind: str, source: int, leaves: Ps, target: int) -> None:
        """An arrow between two slices."""
        self.flows.append(Flow(kind, source, leaves, target))

    def count(self, process: str, name: str, unit: str, points: Sequence[tuple[Ps, int]], digits: int = 0) -> None:
        """A counter, cut to the window; ``points`` in order of time, the last of an instant counts."""
        begin, until = self.keep.begin, self.until
        seen: list[tuple[Ps, int]] = []
        for at, value in points:
            at = max(at, begin)
            if at > until:
                break
            if seen and seen[-1][0] == at:
                seen.pop()
            if not seen or seen[-1][1] != value:
                seen.append((at, value))
        if seen:
            self.counters.append(Counter(process, name, unit, digits, seen))

    def first(self, what: str, most: int, items: Sequence[T], starts: Sequence[Ps]) -> Sequence[T]:
        """``items``, or the ``most`` that begin first, which is said then; ``starts`` rise."""
        if len(items) > most:
            self.leave_out(what, len(items) - most, starts[most])
        return items[:most]

    def leave_out(self, what: str, n: int, begin: Ps) -> None:
        """Say that ``n`` slices, from ``begin`` on, are not in the file."""
        text = f"{n} {what} from {begin / PS_PER_S:.6f} s on are left out"
        self.notices.append(text)
        self.marks.append(Mark(self.track("notes", "notes"), max(begin, self.keep.begin), text))


def cause_times(spent: Sequence[Ps]) -> dict[str, Ps]:
    """By cause, without those that took nothing; in the order of ``CAUSES``, of which there may be the first only."""
    return {cause: n for cause, n in zip(CAUSES, spent, strict=False) if n}
