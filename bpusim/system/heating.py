"""The heat of a machine: made from a scenario, read out into a result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import simpy

from bpusim.alarm import Routine
from bpusim.cores import HostCluster
from bpusim.dram import FlowChannel
from bpusim.errors import ScenarioError
from bpusim.hardware.heat import CoolingSpec
from bpusim.metrics import HeatStats, Recorder, RunWarning, TripStats
from bpusim.ports import CallCounters, Flow, Work
from bpusim.scenario import Scenario
from bpusim.system.channels import row_bytes
from bpusim.system.clocking import Clocks
from bpusim.system.streams import Streams
from bpusim.thermal import ClockControl, Heat, Meter
from bpusim.units import PS_PER_S, Ps
from bpusim.workload import ChatStream, FrameStream

if TYPE_CHECKING:
    from bpusim.dram.bank.channel import BankChannel

__all__ = ["MeteredRecorder", "cooling_warnings", "heat_of", "heat_stats", "heat_warnings"]


@dataclass(slots=True)
class MeteredRecorder(Recorder):
    """The observer of a run with heat: it counts, and tells a meter of power."""

    meter: Meter | None = field(default=None)

    @property
    def wants_activity(self) -> bool:
        """The meter does."""
        return True

    def call_started(self, core: str, label: str, at: Ps, work: Work) -> None:
        """A core began a call."""
        Recorder.call_started(self, core, label, at, work)
        if self.meter is not None:
            self.meter.call_started(core, at, work)

    def call_ended(self, core: str, label: str, at: Ps, counters: CallCounters) -> None:
        """A core finished a call."""
        Recorder.call_ended(self, core, label, at, counters)
        if self.meter is not None:
            self.meter.call_ended(core, at)

    def flow_started(self, master: str, flow: Flow) -> None:
        """A master began a transfer."""
        if self.meter is not None:
            self.meter.flow_started(master, flow)


def heat_of(
    env: simpy.Environment,
    scenario: Scenario,
    clocks: Clocks,
    controls: Mapping[str, ClockControl],
    recorder: Recorder,
    host: HostCluster,
    channel: FlowChannel | BankChannel,
    routine: Routine,
) -> Heat | None:
    """The heat of the machine; None if nothing is said of it."""
    machine = scenario.machine
    if machine.cooling is None or machine.power is None or not isinstance(recorder, MeteredRecorder):
        return None

    def others() -> int:
        return sum(n for name, n in channel.moved().items() if name in machine.masters)

    slow, power = machine.host.slow, machine.power.host
    watts = power.slow if power.slow is not None else power.active * slow.speed if slow is not None else 0.0
    meter = Meter(
        machine.power, machine.cores, clocks, row_bytes(scenario), others if machine.masters else lambda: 0, host.look,
        (partial(host.look, slow=True), watts) if slow is not None else None,
    )  # fmt: skip
    recorder.meter = meter
    host.metered()
    try:
        return Heat(env, machine.cooling, meter, controls, routine)
    except ValueError as error:
        what = f"machine.cooling: {error}"
        raise ScenarioError(what, place=scenario.where("machine", "cooling"), do="check its capacities") from None


def heat_stats(heat: Heat, controls: Mapping[str, ClockControl], streams: Streams) -> HeatStats:
    """What became of the heat up to now, and of the ``streams`` with it."""
    chats = [c for s in streams.values() for c in s.chats.values()]
    heat.sample()
    now: Ps = heat.env.now  # type: ignore[assignment]  # integer by construction
    going = [s for s in streams.values() if isinstance(s, ChatStream) and not s.over]
    names = heat.names
    return HeatStats(
        ambient_degc=heat.spec.ambient,
        peak_degc=dict(zip(names, heat.peak.tolist(), strict=True)),
        end_degc=dict(zip(names, heat.temperatures.tolist(), strict=True)),
        energy_j=dict(heat.energy),
        elapsed=now,
        tokens=sum(s.record.tokens for s in chats),
        frames=sum(s.record.through for s in streams.values() if isinstance(s, FrameStream)),
        tokens_lost=sum(s.record.tokens_lost(now - s.start) for s in going),
        throttled={name: c.throttled_by(now) for name, c in controls.items()},
        trips=tuple(
            TripStats(z.name, t.spec.type, t.spec.temp, z.time_above(k, now), z.crossings[k], z.first[k])
            for z in heat.zones
            for k, t in enumerate(z.trips)
        ),
        samples=tuple(heat.rows),
        events=tuple((e.at, e.what) for e in heat.events),
        time_constants_s=tuple(heat.time_constants),
        shutdown=str(heat.shutdown.value) if heat.shutdown.triggered else "",
    )


def heat_warnings(stats: HeatStats | None) -> list[RunWarning]:
    """What a user should know of a run's heat."""
    if stats is None or not stats.shutdown:
        return []
    return [RunWarning("thermal-shutdown", f"the run ended at {stats.elapsed / PS_PER_S:.2f} s: {stats.shutdown}")]


def cooling_warnings(scenario: Scenario) -> list[RunWarning]:
    """Trips that air alone keeps crossed, and a fan that nothing turns on."""
    cooling = scenario.machine.cooling
    if cooling is None:
        return []
    used = {name for zone in cooling.zones.values() for t in zone.trips for name in t.devices}
    idle = [RunWarning("idle-fan", "no trip has the fan among its devices: it never turns")]
    return [
        *(idle if cooling.fan is not None and "fan" not in used else []),
        *_below_air(cooling),
    ]


def _below_air(cooling: CoolingSpec) -> list[RunWarning]:
    return [
        RunWarning(
            "trip-below-air",
            f"zone {name}: the trip at {t.temp:g} degC is left only {t.hyst:g} K below, and the air is at "
            f"{cooling.ambient:g} degC: once crossed, it stays so",
        )
        for name, zone in cooling.zones.items()
        for t in zone.trips
        if t.type in ("active", "passive") and t.temp - t.hyst <= cooling.ambient
    ]
