"""The loop of heat: activity to power, power to temperature, temperature to clocks and fan.

Temperatures are worked out when somebody looks (a zone's poll, a sample, a change of a clock) from all that happened
since. Leakage follows the temperature in steps of its own, small against the heat path's time constants and against
what doubles it: between two of them all power is constant but for what activity changes, so temperatures are exact,
and do not depend on how often zones are polled or rows are written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import simpy

from bpusim.alarm import Routine
from bpusim.hardware.heat import CoolingSpec, LinkSpec, ZoneSpec
from bpusim.ports import HeatSample
from bpusim.thermal.devices import CoolingDevice, Fan, Group
from bpusim.thermal.governors import PowerOf, Trip, governor_of
from bpusim.thermal.network import Network
from bpusim.thermal.power import Meter
from bpusim.units import PS_PER_S, Ps

__all__ = ["Heat", "HeatEvent", "Zone", "nodes_of"]


_BURNT = 500.0
"""degC that no board survives: solder melts at 220, and nothing here is modelled beyond."""
_STEP: Ps = PS_PER_S
_STEPS = 500
_WARMER = 2.0
"""Leakage is brought up to date once a second, or so many times in the slowest time constant, or whenever a core
is so many kelvin warmer or colder, whichever is soonest."""


@dataclass(frozen=True, slots=True)
class HeatEvent:
    """A trip crossed or left, or a cooling device in another state."""

    at: Ps
    what: str


@dataclass(slots=True)
class Zone:
    """A thermal zone at work. Of each trip: time above it up to the last look, how often it was crossed, when first."""

    name: str
    spec: ZoneSpec
    sensor: list[int]
    trips: list[Trip]
    looked: Ps = 0
    above: list[Ps] = field(default_factory=list)
    crossings: list[int] = field(default_factory=list)
    first: list[Ps | None] = field(default_factory=list)

    def time_above(self, k: int, now: Ps) -> Ps:
        """Time with trip ``k`` crossed up to ``now``, as far as looks tell."""
        return self.above[k] + (now - self.looked if self.trips[k].crossed else 0)


def nodes_of(spec: CoolingSpec, cores: Sequence[str]) -> dict[str, list[str]]:
    """Names of nodes in a heat path by those in the machine file: ``cores`` stands for one at each."""
    return {name: list(cores) if name == "cores" else [name] for name in spec.nodes}


def _network(spec: CoolingSpec, nodes: Mapping[str, list[str]], level: int) -> Network:
    """The heat path with the fan at ``level``."""
    capacities = {n: spec.nodes[name].capacity for name, many in nodes.items() for n in many}
    links = [
        (a, b, _resistance(spec, link, level))
        for link in spec.links
        for a in nodes.get(link.between[0], [link.between[0]])
        for b in nodes.get(link.between[1], [link.between[1]])
        if a != b
    ]
    return Network(capacities, links, spec.ambient)


def _resistance(spec: CoolingSpec, link: LinkSpec, level: int) -> float:
    fan = spec.fan
    if fan is None or not level or set(fan.link) != set(link.between):
        return link.resistance
    return fan.levels[level - 1].resistance


class Heat:
    """The heat of a machine while it runs. ``controls``: cooling devices by name, one of each core among them.

    ``shutdown`` succeeds with a text when a critical trip is crossed, or when leakage heats faster than heat leaves.
    """

    def __init__(
        self,
        env: simpy.Environment,
        spec: CoolingSpec,
        meter: Meter,
        controls: Mapping[str, CoolingDevice],
        routine: Routine | None = None,
    ) -> None:
        self.env = env
        self._routine = routine or Routine(env)
        self.spec = spec
        self.meter = meter
        self.progress: Callable[[], Mapping[str, tuple[int, Ps]]] = dict
        """What the samples tell of each stream."""
        self.rows: list[HeatSample] = []
        self.events: list[HeatEvent] = []
        self.shutdown = simpy.Event(env)
        self.energy: dict[str, float] = dict.fromkeys((*meter.parts, "leakage", "board", "fan"), 0.0)
        """J so far by component; standby of DRAM and CPUs is in theirs, the cores' leakage apart."""
        self._nodes = nodes_of(spec, meter.names)
        self._networks: dict[int, Network] = {}
        self._level = 0
        self._fan_spec = spec.fan
        fan = {"fan": Fan(len(spec.fan.levels), self._turn)} if spec.fan is not None else {}
        cores = [controls[name] for name in meter.names]
        self.devices: dict[str, CoolingDevice] = {**controls, "cores": Group("cores", cores), **fan}
        self.names = self._network.names
        at = {name: k for k, name in enumerate(self.names)}
        self._node_of = np.array([at[self._heated(part)] for part in meter.parts])
        self._core_nodes = {core: at[self._heated(core)] for core in meter.names}
        self._board_node = at[self._heated("board")]
        general = sorted(spec.start, key="cores".__ne__)  # a single core has the last word
        start = {n: spec.start[name] for name in general for n in self._nodes.get(name, [name])}
        self.temperatures = np.array([start.get(n, spec.ambient) for n in self.names])
        self.peak = self.temperatures.copy()
        """The highest temperature of each node seen at a look."""
        self._at: Ps = 0
        self._sampled: tuple[Ps, dict[str, float]] = (0, dict(self.energy))
        self._leaks_at = self._of_cores()
        self._standby = meter.standby(self._leaks_at)
        for clock in meter.clocks.values():
            clock.before_change = self.look
            clock.on_change(self._other_voltage)
        self.zones = [
            Zone(
                name, z, [at[n] for n in self._nodes.get(z.sensor, [z.sensor])], [Trip(t) for t in z.trips],
                above=[0] * len(z.trips), crossings=[0] * len(z.trips), first=[None] * len(z.trips),
            )
            for name, z in spec.zones.items()
        ]  # fmt: skip
        for zone in self.zones:
            governor = governor_of(zone.spec, zone.trips, self.devices, self._powers(zone.spec))
            self._poll(zone, governor.look, 0)
        self._sample_later()
        self._step = min(_STEP, round(self.time_constants[0] * PS_PER_S / _STEPS)) or 1
        if meter.spec.cores.leakage:
            self._leak_later(self._step)

    @property
    def _network(self) -> Network:
        if self._level not in self._networks:
            self._networks[self._level] = _network(self.spec, self._nodes, self._level)
        return self._networks[self._level]

    @property
    def time_constants(self) -> list[float]:
        """Of the heat path as it is now, in seconds, the slowest first."""
        return self._network.time_constants

    def _heated(self, part: str) -> str:
        """The node that the power of a component heats."""
        source = "cores" if part in self.meter.names else part
        name = next(n for n, node in self.spec.nodes.items() if source in node.takes)
        return part if name == "cores" else name

    def _of_cores(self) -> dict[str, float]:
        return {core: float(self.temperatures[k]) for core, k in self._core_nodes.items()}

    def _fan_watts(self) -> float:
        fan = self._fan_spec
        return fan.levels[self._level - 1].power if fan is not None and self._level else 0.0

    def _turn(self, level: int) -> None:
        self.look()
        self._level = level

    def look(self) -> None:
        """Bring temperatures and energies up to now."""
        now: Ps = self.env.now  # type: ignore[assignment]  # integer by construction
        if now == self._at:
            return
        seconds = (now - self._at) / PS_PER_S
        pulses, spent = self.meter.take(now)
        pulses.node[:] = self._node_of[pulses.node]
        watts = np.zeros(len(self.names))
        for core, k in self._core_nodes.items():
            watts[k] += self._standby[core]
        for part in ("dram", "host", "board"):
            watts[self._board_node if part == "board" else self._node_of[self.meter.parts.index(part)]] += (
                self._standby[part]
            )
        self.temperatures = self._network.after(self.temperatures, seconds, watts, pulses)
        self.peak = np.maximum(self.peak, self.temperatures)
        hottest = int(self.temperatures.argmax())
        if self.temperatures[hottest] > _BURNT:
            self._shut_down(f"thermal runaway: {self.names[hottest]} is above {_BURNT:g} degC and getting hotter")
        for part, joules in spent.items():
            self.energy[part] += joules
        for part, w in self._standby.items():
            self.energy["leakage" if part in self._core_nodes else part] += w * seconds
        self.energy["fan"] += self._fan_watts() * seconds
        self._at = now

    def _sample_later(self) -> None:
        self._routine.alarm(self.spec.sample, self._sample)

    def _sample(self) -> None:
        self.sample()
        self._sample_later()

    def sample(self) -> None:
        """A row of ``thermal.csv``."""
        self.look()
        now, (since, before) = self._at, self._sampled
        if now == since:
            return
        seconds = (now - since) / PS_PER_S
        watts = {part: (n - before[part]) / seconds for part, n in self.energy.items()}
        clocks = {name: clock.hz for name, clock in self.meter.clocks.items()}
        temperatures = dict(zip(self.names, self.temperatures.tolist(), strict=True))
        self.rows.append(HeatSample(now, temperatures, watts, clocks, self._level, self.progress()))
        self._sampled = now, dict(self.energy)

    def _leak_later(self, step: Ps) -> None:
        self._routine.alarm(step, lambda: self._leak(step))

    def _leak(self, step: Ps) -> None:
        """Leakage goes by the present temperature from here on."""
        self.look()
        if not self.shutdown.triggered:
            before, self._leaks_at = self._leaks_at, self._of_cores()
            self._standby = self.meter.standby(self._leaks_at)
            fastest = max(abs(now - then) for now, then in zip(self._leaks_at.values(), before.values(), strict=True))
            self._leak_later(min(self._step, max(round(step * _WARMER / fastest), 1)) if fastest else self._step)

    def _other_voltage(self, _hz: int) -> None:
        self._standby = self.meter.standby(self._leaks_at)

    def _poll(self, zone: Zone, act: Callable[[int, Ps], None], delay: Ps) -> None:
        def look() -> None:
            if not self.shutdown.triggered:
                self._look(zone, act)
                passive = any(t.crossed and t.spec.type == "passive" for t in zone.trips)
                self._poll(zone, act, zone.spec.passive_polling if passive else zone.spec.polling)

        self._routine.alarm(delay, look)

    def _look(self, zone: Zone, act: Callable[[int, Ps], None]) -> None:
        self.look()
        now, interval = self._at, self._at - zone.looked
        milli = round(float(self.temperatures[zone.sensor].max()) * 1000)
        for k, trip in enumerate(zone.trips):
            before = trip.crossed
            if before:
                zone.above[k] += interval
            if trip.look(milli) != before:
                verb = "crossed" if trip.crossed else "left"
                if trip.crossed:
                    zone.crossings[k] += 1
                    zone.first[k] = now if zone.first[k] is None else zone.first[k]
                self._note(f"{zone.name}: {trip.spec.type} trip at {trip.spec.temp:g} degC {verb}")
        zone.looked = now
        states = {name: d.state for name, d in self.devices.items()}
        act(milli, interval)
        for name, device in self.devices.items():
            if device.state != states[name] and name != "cores":
                self._note(f"{name}: cooling state {states[name]} -> {device.state}")
        critical = next((t for t in zone.trips if t.crossed and t.spec.type == "critical"), None)
        if critical is not None:
            hottest = self.names[max(zone.sensor, key=lambda k: float(self.temperatures[k]))]
            self._shut_down(
                f"{zone.name}: {hottest} reached {milli / 1000:.1f} degC, critical is {critical.spec.temp:g} degC"
            )

    def _shut_down(self, why: str) -> None:
        if not self.shutdown.triggered:
            self.shutdown.succeed(why)

    def _note(self, what: str) -> None:
        self.events.append(HeatEvent(self._at, what))

    def _powers(self, zone: ZoneSpec) -> dict[str, PowerOf]:
        names = {n for t in zone.trips for n in t.devices} if zone.governor == "power_allocator" else set()
        return {n: self._power_of(n) for n in names}

    def _power_of(self, name: str) -> PowerOf:
        """What a device draws, and would in another state: its load stays as it is, its clock and voltage change."""
        if name == "cores":
            each = [self._power_of(core) for core in self.meter.names]
            return PowerOf(lambda: sum(p.now() for p in each), lambda state: sum(p.at_state(state) for p in each))
        clock, at, before, watts = self.meter.clocks[name], self._at, self.energy[name], 0.0

        def now() -> float:
            nonlocal at, before, watts
            if self._at > at:
                watts = (self.energy[name] - before) * PS_PER_S / (self._at - at)
                at, before = self._at, self.energy[name]
            return watts

        def at_state(state: int) -> float:
            point = clock.points[min(state, len(clock.points) - 1)]
            return watts * point.volts**2 * point.speed / (clock.volts**2 * clock.speed)

        return PowerOf(now, at_state)
