"""The clocks of a machine: their operating points, and who picks one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import simpy

from bpusim.alarm import Routine
from bpusim.cores import HostCluster
from bpusim.dram import FlowChannel
from bpusim.errors import Problem, ScenarioError
from bpusim.hardware import ClockSpec
from bpusim.metrics import Recorder, RunWarning
from bpusim.scenario import Scenario
from bpusim.scenario.problems import problem_at
from bpusim.system.channels import table_of
from bpusim.thermal import ClockControl, ClockDomain, points_of
from bpusim.units import PS_PER_S, format_quantity

if TYPE_CHECKING:
    from bpusim.dram.bank.channel import BankChannel

__all__ = ["Clocks", "clock_warnings", "clocks_of", "control_clocks"]

Clocks = Mapping[str, ClockDomain]
"""By name: each core, ``host``, ``dram``."""


def _made_for(scenario: Scenario) -> dict[str, tuple[ClockSpec | None, int]]:
    """What is said of each kind of clock, and the Hz its unit was made for; of the memory, its command clock."""
    machine = scenario.machine
    spec, memory = machine.clocks, round(PS_PER_S / table_of(scenario).clock)
    return {
        "cores": (spec.cores, machine.cores.clock),
        "host": (spec.host, machine.host.clock),
        "dram": (spec.dram, memory),
    }


def clocks_of(scenario: Scenario) -> dict[str, ClockDomain]:
    """The clock domains, each at its fastest. Raises :class:`ScenarioError` where there is no slower point to go to."""
    kinds = _made_for(scenario)
    _check(scenario, kinds)
    units = dict.fromkeys(scenario.machine.cores.names, kinds["cores"]) | {k: kinds[k] for k in ("host", "dram")}
    return {name: ClockDomain(name, hz, points_of(spec, hz)) for name, (spec, hz) in units.items()}


def _check(scenario: Scenario, kinds: Mapping[str, tuple[ClockSpec | None, int]]) -> None:
    problems: list[Problem] = []

    def report(what: str, do: str, *path: str | int) -> None:
        problems.append(problem_at(scenario.where(*path), path, what, do))

    for kind, (spec, hz) in kinds.items():
        if spec is not None and spec.fixed is not None and spec.fixed > hz:
            made = format_quantity(hz, "frequency")
            report(f"the unit is made for {made}", "name a point at or below that", "machine", "clocks", kind, "fixed")
    cooling = scenario.machine.cooling
    for name, zone in cooling.zones.items() if cooling is not None else ():
        for k, trip in enumerate(zone.trips):
            for n, device in enumerate(trip.devices):
                spec, hz = kinds.get("cores" if device in scenario.machine.cores.names else device, (None, 0))
                if spec is not None and spec.points[-1].clock >= hz:
                    made = format_quantity(hz, "frequency")
                    report(
                        f"'{device}' has no operating point below its clock of {made}",
                        "give it one (of the memory: its command clock, half of LPDDR4's transfers)"
                        if device == "dram" else "give it one, or take it out",
                        "machine", "cooling", "zones", name, "trips", k, "devices", n,
                    )  # fmt: skip
    if problems:
        raise ScenarioError(problems)


def clock_warnings(scenario: Scenario) -> list[RunWarning]:
    """What a user should know of the clocks."""
    out: list[RunWarning] = []
    for kind, (spec, hz) in _made_for(scenario).items():
        if spec is None:
            continue
        made, top = format_quantity(hz, "frequency"), spec.points[0].clock
        if kind != "dram" and hz > top:
            text = f"{kind} run at {made}, above their highest operating point: their voltage is extrapolated"
            out.append(RunWarning("voltage-extrapolated", text))
        if kind == "dram" and top > hz and _changes(scenario, "dram", spec):
            text = f"the memory's command clock is {made}: its points above that are left out"
            out.append(RunWarning("dram-points", text))
    return out


def control_clocks(
    env: simpy.Environment,
    scenario: Scenario,
    clocks: Clocks,
    recorder: Recorder,
    host: HostCluster,
    channel: FlowChannel | BankChannel,
    routine: Routine,
) -> dict[str, ClockControl]:
    """Who picks the point of each clock."""
    spec, cores = scenario.machine.clocks, scenario.machine.cores.names
    if _changes(scenario, "host", spec.host):
        host.governed()
    if isinstance(channel, FlowChannel):
        made = clocks["dram"].hz
        channel.governed = _changes(scenario, "dram", spec.dram)
        clocks["dram"].on_change(lambda hz: channel.set_clock(hz / made))

    def busy_core(name: str) -> float:
        return recorder.occupied_until(name, env.now) / PS_PER_S  # type: ignore[arg-type]  # integer by construction

    loads: dict[str, Callable[[], float]] = {name: partial(busy_core, name) for name in cores}
    loads |= {"host": host.awake, "dram": channel.busy if isinstance(channel, FlowChannel) else lambda: 0.0}
    specs = {**dict.fromkeys(cores, spec.cores), "host": spec.host, "dram": spec.dram}
    return {name: ClockControl(env, clock, specs[name], loads[name], routine) for name, clock in clocks.items()}


def _changes(scenario: Scenario, name: str, spec: ClockSpec | None) -> bool:
    """Whether the clock ``name`` may ever be another than the fastest."""
    cooling = scenario.machine.cooling
    zones = cooling.zones.values() if cooling is not None else ()
    return spec is not None and (
        spec.governor != "performance" or any(name in t.devices for z in zones for t in z.trips)
    )
