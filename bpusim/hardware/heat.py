"""What heats a machine, what cools it, and the clocks it may run at: specs only, named as in the Linux kernel."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

from bpusim.units import (
    Duration,
    Energy,
    EnergyPerByte,
    Frequency,
    HeatCapacity,
    Power,
    Temperature,
    TemperatureDifference,
    ThermalResistance,
    Voltage,
)

__all__ = [
    "AMBIENT",
    "SOURCES",
    "ClockSpec",
    "ClocksSpec",
    "CoolingSpec",
    "CorePowerSpec",
    "DramPowerSpec",
    "FanLevelSpec",
    "FanSpec",
    "GovernorKind",
    "HostPowerSpec",
    "LinkSpec",
    "NodeSpec",
    "PointSpec",
    "PowerSpec",
    "SleepSpec",
    "TripSpec",
    "ZoneSpec",
]

STRICT = ConfigDict(extra="forbid", strict=True)
AMBIENT = "ambient"
"""The node whose temperature is given."""
PER_CORE = "cores"
"""A node of this name stands for one at each core, named like the core."""
Source = Literal["cores", "host", "dram", "board"]
SOURCES: tuple[Source, ...] = ("cores", "host", "dram", "board")
"""What turns power into heat; a fan's power leaves with its air."""
GovernorKind = Literal["step_wise", "power_allocator", "bang_bang", "user_space"]

Period = Annotated[Duration, Field(ge=10**9)]
Clock = Annotated[Frequency, Field(gt=0)]
Volts = Annotated[Voltage, Field(gt=0)]
Resistance = Annotated[ThermalResistance, Field(gt=0)]
Capacity = Annotated[HeatCapacity, Field(gt=0)]
Degrees = Annotated[Temperature, Field(ge=-100, le=300)]
"""Beyond, no part of a board works, and what is said of it means nothing."""
Gain = Annotated[float, Field(ge=0, strict=False)]


def _about(text: str) -> Any:
    return Field(description=text)


@dataclass(frozen=True, slots=True, config=STRICT)
class CorePowerSpec:
    """Power of a BPU core at the highest of its operating points; voltages and clocks below it save."""

    busy: Annotated[Power, _about("Clock tree and control while a call runs")]
    mac: Annotated[Energy, _about("A unit of the array, for each cycle in which the array works")]
    vector: Annotated[Energy, _about("A lane of the vector unit, for each cycle in which it works")]
    move: Annotated[EnergyPerByte, _about("DMA and scratchpad, by byte from or to the DRAM")]
    leakage: Annotated[Power, _about("Leakage at 25 degC")]
    doubles: Annotated[TemperatureDifference, Field(ge=5), _about("Leakage doubles over so many kelvin")]


@dataclass(frozen=True, slots=True, config=STRICT)
class DramPowerSpec:
    """Power of the DRAM devices, their interface included."""

    background: Annotated[Power, _about("Standby and refresh")]
    per_byte: Annotated[EnergyPerByte, _about("Reading or writing, interface included, rows open")]
    activate: Annotated[Energy, _about("Opening and closing a row in all devices")]


@dataclass(frozen=True, slots=True, config=STRICT)
class HostPowerSpec:
    """Power of the CPU cluster at the highest of its operating points."""

    idle: Annotated[Power, _about("The cluster with all cores asleep")]
    active: Annotated[Power, _about("Each core that works, on top")]
    slow: Annotated[Power | None, _about("Each slow core that works; active times its speed if absent")] = None


@dataclass(frozen=True, slots=True, config=STRICT)
class PowerSpec:
    """Where the board's power goes."""

    board: Annotated[Power, _about("All else on the board, always on: regulators, interfaces, storage")]
    cores: Annotated[CorePowerSpec, _about("Each BPU core")]
    dram: Annotated[DramPowerSpec, _about("The memory")]
    host: Annotated[HostPowerSpec, _about("The CPU cluster")]


@dataclass(frozen=True, slots=True, config=STRICT)
class PointSpec:
    """An operating point."""

    clock: Annotated[Clock, _about("Frequency")]
    voltage: Annotated[Volts | None, _about("Supply voltage; it stays as it is if absent")] = None


@dataclass(frozen=True, slots=True, config=STRICT)
class SleepSpec:
    """An idle unit falls asleep, and the first work after that waits for it. What it draws stays as it was."""

    after: Annotated[Duration, Field(gt=0), _about("Idle for so long, it falls asleep")]
    wake: Annotated[Duration, _about("From the first work to its start")]


@dataclass(frozen=True, slots=True, config=STRICT)
class ClockSpec:
    """A clock domain: the points it may run at, and who picks one.

    ``governor`` as in cpufreq and devfreq: the highest (performance), the lowest (powersave), the one of ``fixed``
    (userspace), or by load (simple_ondemand): the highest when more than ``up`` of the time is busy, else the lowest at
    which ``up`` less ``down`` would be. Cooling may always force a lower one.
    """

    points: Annotated[list[PointSpec], Field(min_length=1), _about("Operating points, from the highest down")]
    governor: Annotated[
        Literal["performance", "powersave", "userspace", "simple_ondemand"], _about("Who picks the point")
    ] = "performance"
    fixed: Annotated[Clock | None, _about("userspace: the clock of the point to run at")] = None
    polling: Annotated[Period, _about("simple_ondemand: from one look at the load to the next")] = 50 * 10**9
    up: Annotated[
        int, Field(ge=1, le=100), _about("simple_ondemand: percent busy that calls for the highest point")
    ] = 90
    down: Annotated[int, Field(ge=0, le=99), _about("simple_ondemand: percent below that before a lower point")] = 5
    transition: Annotated[Duration, _about("From the choice of another point to its effect")] = 0
    sleep: Annotated[SleepSpec | None, _about("Falls asleep when idle; never if absent")] = None

    @model_validator(mode="after")
    def _consistent(self) -> ClockSpec:
        clocks = [p.clock for p in self.points]
        if any(a <= b for a, b in itertools.pairwise(clocks)):
            raise ValueError("points are out of order; list them from the highest clock down, each once")
        volts = [p.voltage for p in self.points]
        if any(v is None for v in volts) != all(v is None for v in volts):
            raise ValueError("some points have a voltage and some have none; give all of them one")
        if all(v is not None for v in volts) and volts != sorted(volts, key=lambda v: -(v or 0)):
            raise ValueError("a lower clock has a higher voltage; check the points")
        if (self.governor == "userspace") != (self.fixed is not None):
            raise ValueError("governor: userspace and fixed go together; write both, or neither")
        if self.fixed is not None and self.fixed not in clocks:
            raise ValueError(f"fixed: no point runs at {self.fixed / 1e6:g} MHz; name the clock of one of them")
        if self.down >= self.up:
            raise ValueError("down must be less than up, or no load would call for a lower point")
        return self


@dataclass(frozen=True, slots=True, config=STRICT)
class ClocksSpec:
    """The clock domains. One that is absent runs at its unit's clock, always."""

    cores: Annotated[ClockSpec | None, _about("Each BPU core has one of its own, all alike")] = None
    host: Annotated[ClockSpec | None, _about("The CPU cluster")] = None
    dram: Annotated[ClockSpec | None, _about("The memory's command clock (LPDDR4: half its transfers a second)")] = None

    @model_validator(mode="after")
    def _can_sleep(self) -> ClocksSpec:
        for name, unit in (("host", self.host), ("dram", self.dram)):
            if unit is not None and unit.sleep is not None:
                raise ValueError(f"{name}: only cores have a sleep so far; remove it")
        return self


@dataclass(frozen=True, slots=True, config=STRICT)
class NodeSpec:
    """A lump of the heat path with one temperature."""

    capacity: Annotated[Capacity, _about("Heat it takes to warm it")]
    takes: Annotated[list[Source], _about("Whose power heats it: cores, host, dram, board")] = Field(
        default_factory=list
    )


@dataclass(frozen=True, slots=True, config=STRICT)
class LinkSpec:
    """Between two nodes, or a node and ``ambient``."""

    between: Annotated[tuple[str, str], Field(strict=False), _about("The two nodes")]
    resistance: Annotated[Resistance, _about("Thermal resistance")]


@dataclass(frozen=True, slots=True, config=STRICT)
class FanLevelSpec:
    """What a level of the fan comes to."""

    resistance: Annotated[Resistance, _about("Of the fan's link at this level")]
    power: Annotated[Power, _about("What the fan takes")]


@dataclass(frozen=True, slots=True, config=STRICT)
class FanSpec:
    """A fan: it lowers the resistance of one link. Its power is the board's, but its air takes that heat along."""

    link: Annotated[tuple[str, str], Field(strict=False), _about("The link it cools, by its two nodes")]
    levels: Annotated[list[FanLevelSpec], Field(min_length=1), _about("Levels above off, from the slowest up")]

    @model_validator(mode="after")
    def _consistent(self) -> FanSpec:
        ohms = [level.resistance for level in self.levels]
        if any(a <= b for a, b in itertools.pairwise(ohms)):
            raise ValueError("levels are out of order; each must have less resistance than the one before")
        return self


def _apart(devices: Sequence[str]) -> None:
    """Refuses devices of which one is another, or part of it."""
    for k, name in enumerate(devices):
        if name in devices[:k]:
            raise ValueError(f"devices: {name} is there twice; remove one")
        if PER_CORE in devices and re.fullmatch(r"bpu\d+", name):
            raise ValueError(f"devices: {name} is one of the cores already; name all cores or single ones")


@dataclass(frozen=True, slots=True, config=STRICT)
class TripSpec:
    """A temperature at which something is done, until it is ``hyst`` below it."""

    temp: Annotated[Degrees, _about("Where it is crossed")]
    type: Annotated[
        Literal["active", "passive", "hot", "critical"],
        _about("Cool with a fan, by slowing down, tell, or end the run"),
    ]
    hyst: Annotated[TemperatureDifference, _about("How far below it is left again")] = 0.0
    devices: Annotated[list[str], _about("Cooling devices: cores, one core, host, dram, fan")] = Field(
        default_factory=list
    )

    @model_validator(mode="after")
    def _consistent(self) -> TripSpec:
        acts = self.type in ("active", "passive")
        if acts and not self.devices:
            raise ValueError(f"a trip of type {self.type} needs devices; write devices: [cores]")
        if not acts and self.devices:
            raise ValueError(f"a trip of type {self.type} has no devices; make it passive, or remove them")
        if self.type == "active" and self.devices != ["fan"]:
            raise ValueError("a trip of type active switches a fan; write devices: [fan], or make it passive")
        _apart(self.devices)
        return self


@dataclass(frozen=True, slots=True, config=STRICT)
class ZoneSpec:
    """A sensor, its trips, and the governor that acts on them."""

    sensor: Annotated[str, _about("Node whose temperature it reads, or one core; cores: the hottest of them")]
    trips: Annotated[list[TripSpec], _about("Trips, from the lowest temperature up")]
    governor: Annotated[GovernorKind, _about("How cooling devices follow the temperature")] = "step_wise"
    polling: Annotated[Period, _about("From one look to the next")] = 10**12
    passive_polling: Annotated[Period, _about("The same while a passive trip is crossed")] = 250 * 10**9
    sustainable: Annotated[
        Annotated[Power, Field(gt=0)] | None,
        _about("power_allocator: what its devices may take at the last passive trip"),
    ] = None
    k_po: Annotated[Gain | None, _about("power_allocator: W/K above it; from sustainable if absent")] = None
    k_pu: Annotated[Gain | None, _about("power_allocator: W/K below it; from sustainable if absent")] = None
    k_i: Annotated[Gain | None, _about("power_allocator: W/K for each look; a tenth of k_pu if absent")] = None
    k_d: Annotated[Gain | None, _about("power_allocator: W/K for a kelvin a second; none if absent")] = None
    cutoff: Annotated[
        TemperatureDifference | None, _about("power_allocator: k_i acts only so near below the trip; 0 K if absent")
    ] = None

    @model_validator(mode="after")
    def _consistent(self) -> ZoneSpec:
        self._ordered()
        kinds = [t.type for t in self.trips]
        acting = [t for t in self.trips if t.devices]
        if kinds.count("critical") > 1 or kinds.count("hot") > 1:
            raise ValueError("more than one hot or critical trip; keep one of each")
        if self.governor == "power_allocator":
            if "active" in kinds or "passive" not in kinds:
                raise ValueError("power_allocator needs passive trips and no active ones; use step_wise for a fan")
            if any("fan" in t.devices for t in self.trips):
                raise ValueError("power_allocator cannot deal power to a fan; use step_wise, or take it out")
            gains = self.k_po is not None and self.k_pu is not None
            if kinds.count("passive") == 1 and self.trips[kinds.index("passive")].temp <= 0 and not gains:
                raise ValueError("k_po and k_pu cannot follow from one trip at 0 degC or below; write them")
            _apart(list(dict.fromkeys(n for t in acting for n in t.devices)))
            if self.sustainable is None:
                raise ValueError("power_allocator needs sustainable: what its devices may draw, such as 3 W")
        elif self.governor == "bang_bang" and len(acting) != 1:
            raise ValueError("bang_bang switches at one trip with devices; give it one, or use step_wise")
        if self.governor != "power_allocator" and any(
            given is not None for given in (self.sustainable, self.k_po, self.k_pu, self.k_i, self.k_d, self.cutoff)
        ):
            raise ValueError(f"sustainable, cutoff and k_po to k_d mean nothing to {self.governor}; remove them")
        return self

    def _ordered(self) -> None:
        for lower, upper in zip(self.trips, self.trips[1:], strict=False):
            if upper.temp <= lower.temp:
                raise ValueError(
                    f"trips are out of order: {upper.temp:g} degC after {lower.temp:g}; list them from the lowest up"
                )
            if upper.hyst >= upper.temp - lower.temp:
                raise ValueError(
                    f"the hysteresis of the trip at {upper.temp:g} degC, {upper.hyst:g} K, reaches below the trip at "
                    f"{lower.temp:g}; make it smaller than the gap"
                )


@dataclass(frozen=True, slots=True, config=STRICT)
class CoolingSpec:
    """The way of the heat from the machine to the air, and what watches over it."""

    nodes: Annotated[dict[str, NodeSpec], Field(min_length=1), _about("Nodes by name; cores: one at each core")]
    links: Annotated[list[LinkSpec], Field(min_length=1), _about("What joins them to each other and to ambient")]
    zones: Annotated[dict[str, ZoneSpec], _about("Thermal zones by name")] = Field(default_factory=dict)
    fan: Annotated[FanSpec | None, _about("A fan; none if absent")] = None
    ambient: Annotated[Degrees, _about("Temperature of the air")] = 25.0
    start: Annotated[dict[str, Degrees], _about("Temperatures at the start by node or core; ambient if absent")] = (
        Field(default_factory=dict)
    )
    sample: Annotated[
        Period, _about("From a row of thermal.csv to the next; leakage follows the temperature so often")
    ] = 10**12

    @model_validator(mode="after")
    def _consistent(self) -> CoolingSpec:
        if AMBIENT in self.nodes:
            raise ValueError("ambient is no node of its own: its temperature is given; rename the node")
        for source in SOURCES:
            takers = [n for n, node in self.nodes.items() if source in node.takes]
            if len(takers) != 1:
                found = f"{' and '.join(takers)} take it" if takers else "no node takes it"
                raise ValueError(f"the power of {source} must heat one node, and {found}; see takes")
        for name, node in self.nodes.items():
            if name == PER_CORE and any(s != "cores" for s in node.takes):
                raise ValueError("a node at each core takes only the power of cores; move the others")
        self._known([n for link in self.links for n in link.between], "links")
        for k, link in enumerate(self.links):
            if link.between[0] == link.between[1]:
                raise ValueError(f"links: {link.between[0]} is joined to itself; name two nodes")
            if any(set(link.between) == set(other.between) for other in self.links[:k]):
                raise ValueError(f"links: {' and '.join(link.between)} are joined twice; write one resistance for both")
        if self.fan is not None:
            self._known(self.fan.link, "fan")
            if not any(set(link.between) == set(self.fan.link) for link in self.links):
                raise ValueError(f"fan: no link joins {' and '.join(self.fan.link)}; name one of the links")
            off = next(li.resistance for li in self.links if set(li.between) == set(self.fan.link))
            if self.fan.levels[0].resistance >= off:
                raise ValueError(f"fan: its first level has no less resistance than its link without it, {off:g} K/W")
        self._reach_ambient()
        self._known([zone.sensor for zone in self.zones.values()], "sensor", ambient=False, one=True)
        self._known(self.start, "start", ambient=False, one=True)
        return self

    def _known(self, names: Iterable[str], where: str, *, ambient: bool = True, one: bool = False) -> None:
        """``one``: one core's node may be meant; whether there is such a core is the scenario's to say."""
        known = [*self.nodes, *([AMBIENT] if ambient else []), *(["bpu0"] if one and PER_CORE in self.nodes else [])]
        for name in names:
            if name not in known and not ("bpu0" in known and re.fullmatch(r"bpu\d+", name)):
                raise ValueError(f"{where}: no node is named '{name}'; name one of {', '.join(known)}")

    def _reach_ambient(self) -> None:
        reached, more = {AMBIENT}, True
        while more:
            new = {n for link in self.links if reached & set(link.between) for n in link.between} - reached
            reached |= new
            more = bool(new)
        lost = [n for n in self.nodes if n not in reached]
        if lost:
            raise ValueError(f"no link leads from {lost[0]} to ambient, so it would only get hotter; add one")
