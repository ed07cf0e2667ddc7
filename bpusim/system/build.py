"""Builds the SimPy system a scenario describes, runs it, and gathers the result."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from heapq import heapify
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import simpy

from bpusim.alarm import Routine
from bpusim.cores import BpuCore, HostCluster, Merge, PlanBook
from bpusim.dram import FlowChannel
from bpusim.errors import ScenarioError, SimulationError
from bpusim.metrics import Both, Detail, Keep, Recorder, Result, RunWarning
from bpusim.ports import Observer
from bpusim.runtime import CoreQueue, Event, Executor, MemoryMap, PlacedModel, Policy, RuntimeOptions, policy_maker
from bpusim.scenario import Scenario, load_scenario
from bpusim.system.channels import channel_of, channel_warnings, port_of
from bpusim.system.clocking import clock_warnings, clocks_of, control_clocks
from bpusim.system.cruise import Cruise
from bpusim.system.heating import MeteredRecorder, cooling_warnings, heat_of
from bpusim.system.load import check_streams, load_traces, load_weights, memory_of, name_warnings, place_models
from bpusim.system.outcome import host_warnings, machine_warnings, policy_warnings, result_of
from bpusim.system.progress import Progress
from bpusim.system.streams import Streams, laid_on, lengths_of, log_steps, streams_of
from bpusim.thermal import ClockControl, Heat
from bpusim.units import Ps
from bpusim.workload import Slots

if TYPE_CHECKING:
    from bpusim.dram.bank.channel import BankChannel

__all__ = ["SLICE", "System", "simulate"]

SLICE = 64
"""Events between two looks at a run: a millisecond or two of wall time, some tenths of a second of the bank model."""


class CountingEnvironment(simpy.Environment):
    """A SimPy environment that counts the events it has processed."""

    events = 0
    cruise: Cruise | None = None
    """Takes steps ahead where nothing else happens."""
    now = property(attrgetter("_now"))  # asked dozens of times a token: without a Python frame each time

    def leap(self, now: Ps, to_come: list[Any]) -> None:
        """All before ``now`` has happened, and this is ``to_come``, in any order."""
        self._now = now
        self._queue[:] = to_come
        heapify(self._queue)

    def run_to(self, end: simpy.Event, stop: Callable[[], bool] | None = None) -> bool:
        """Process events until ``end`` is one of them, or ``stop()``, asked before the first event and after every
        :data:`SLICE`, says so; False if there are none left before that."""
        step, events, cruise = self.step, self.events, self.cruise
        # Events come and go by the thousand and leave no cycles: looking for some so often costs a tenth of a run.
        often = gc.get_threshold()
        gc.set_threshold(100_000, *often[1:])
        try:
            while end.callbacks is not None and not (stop is not None and stop()):
                look = events + SLICE
                while events < look:
                    step()
                    events += 1
                    if end.callbacks is None:
                        break
                    if cruise is not None and cruise.ready():
                        events += cruise.run()
        except simpy.core.EmptySchedule:
            return False
        finally:
            gc.set_threshold(*often)
            self.events = events
        return True


@dataclass(slots=True)
class System:
    """A scenario made ready to run once."""

    scenario: Scenario
    env: CountingEnvironment
    recorder: Recorder
    channel: FlowChannel | BankChannel
    cores: Sequence[BpuCore]
    executor: Executor
    streams: Streams
    slots: Sequence[Slots]
    models: Mapping[str, PlacedModel]
    memory: MemoryMap
    controls: Mapping[str, ClockControl]
    heat: Heat | None
    records: bool
    """Whether the result has a row of every request."""
    journal: list[Event] | None
    """What happened to each call, if it is to be kept."""
    detail: Detail | None
    """What each op and transfer did, if it is to be kept."""
    warnings: list[RunWarning] = field(default_factory=list)

    @classmethod
    def build(
        cls,
        scenario: Scenario,
        *,
        records: bool = False,
        policy: Policy | type | str | None = None,
        journal: bool = False,
        detail: Keep | None = None,
    ) -> System:
        """Wire the machine and load the models. Raises a :class:`BpusimError` with every problem found.

        ``records``: keep a row of every request, not only their statistics. ``policy``: another than the scenario's;
        each core gets a copy of it. ``journal``: keep what happened to each call. ``detail``: how much to keep of what
        each op and transfer did.
        """
        machine = scenario.machine
        traces = load_traces(scenario)
        warnings = [w for name in scenario.models for w in name_warnings(name)]
        models, placing = place_models(scenario, traces)
        memory = memory_of(scenario, models)
        lengths = lengths_of(scenario)
        check_streams(scenario, models, lengths)
        env = CountingEnvironment(initial_time=0)
        recorder = MeteredRecorder() if machine.cooling is not None else Recorder()
        kept = Detail(detail) if detail is not None else None
        observer: Observer = Both(recorder, kept) if kept is not None else recorder
        clocks = clocks_of(scenario)
        channel = channel_of(env, scenario, observer, models, memory)
        cores, plans = [], PlanBook()
        sleep = machine.clocks.cores.sleep if machine.clocks.cores is not None else None
        for name in machine.cores.names:
            port = port_of(channel, name, machine.cores.dma)
            core = BpuCore(
                env, name, machine.cores, clocks[name], port, observer,
                merge=_merge(scenario), plans=plans, sleep=(sleep.after, sleep.wake) if sleep is not None else None,
            )  # fmt: skip
            cores.append(core)
        loads = any(m.load is not None for m in scenario.models.values())
        slow = machine.host.slow.cores if machine.host.slow is not None else 0
        cpu = port_of(channel, "cpu", machine.host.dma, machine.host.cores + slow + loads)
        host = HostCluster(env, machine.host, cpu, observer, clocks["host"], scenario.host.affinity)
        load_weights(env, scenario, models, host)
        routine = Routine(env)
        controls = control_clocks(env, scenario, clocks, recorder, host, channel, routine)
        heat = heat_of(env, scenario, clocks, controls, recorder, host, channel, routine)
        options = RuntimeOptions(
            scenario.host.logging == "per_op", scenario.host.memory_pool == "on", scenario.host.submit == "async",
            laid_on(host, scenario.host.fallback_parts),
        )  # fmt: skip
        make = _maker(scenario, policy)
        events: list[Event] | None = [] if journal else None
        queues = {i: CoreQueue(env, core, _made(make), events) for i, core in enumerate(cores)}
        executor = Executor(env, host, queues, options)
        if isinstance(channel, FlowChannel) and channel.plain and events is None and scenario.engine.merge != "off":
            env.cruise = Cruise(env, channel, executor)
        streams, slots = streams_of(env, scenario, models, lengths, host, records=records)
        if kept is not None:
            log_steps(streams, kept.log)
            if isinstance(channel, FlowChannel):
                channel.tell()
        system = cls(
            scenario,
            env,
            recorder,
            channel,
            cores,
            executor,
            streams,
            slots,
            models,
            memory,
            controls,
            heat,
            records,
            events,
            kept,
            warnings + placing,
        )
        if heat is not None:
            heat.progress = system._done
        system.warnings.extend(machine_warnings(system) + policy_warnings(scenario, named=policy is None))
        system.warnings.extend(host_warnings(system))
        system.warnings.extend(channel_warnings(scenario) + clock_warnings(scenario) + cooling_warnings(scenario))
        return system

    def run(self, watch: Callable[[Progress], bool] | None = None) -> Result:
        """Run to the end: all finite streams done, or the scenario's ``until``.

        ``watch``: told how far the run is before the first event and after every :data:`SLICE`; if it says True, the
        run ends there, and its result is partial.
        """
        env = self.env
        for m in self.models.values():
            if m.loader is not None and m.loader.terms.early:
                env.process(m.loader.early())
        processes = {name: env.process(s.run(self.executor)) for name, s in self.streams.items()}
        finite = [processes[name] for name, s in self.streams.items() if s.finite]
        ends: list[simpy.Event] = [env.all_of(finite)] if finite else []
        if self.scenario.run.until is not None:
            ends.append(env.timeout(self.scenario.run.until))
        if self.heat is not None:
            ends.append(self.heat.shutdown)
        end, stop = env.any_of(ends), partial(watch, Progress(self)) if watch is not None else None
        if not env.run_to(end, stop):
            waiting = ", ".join(name for name, p in processes.items() if p.is_alive)
            lines = [f"; {text}" for text in (s.standing() for s in self.slots) if text]
            busy = ", ".join(c.name for c in self.cores if c.busy) or "no core"
            greedy = ", ".join(name for name, n in self.channel.dropped().items() if n)
            why = f"the DRAM channel is taken by {greedy}" if greedy else f"{busy} is in a call"
            do = "lower their rate, or end the run by run: {until: 1 s} to count what they drop" if greedy else ""
            waits = f"{waiting} wait, and {why}{''.join(lines)}"
            raise SimulationError(f"deadlock at {env.now / 1e9:.3f} ms: {waits}", do=do)
        if self.detail is not None:
            self.detail.close(env.now)
        return result_of(self, partial=not end.processed)

    def _done(self) -> dict[str, tuple[int, Ps]]:
        """Decode tokens, frames or runs so far by stream, and the sum of their times."""
        times = {name: s.record.times for name, s in self.streams.items()}
        return {name: (len(t), t.total) for name, t in times.items()}


def simulate(
    scenario: str | Path | Scenario,
    *,
    set: Mapping[str, object] | Sequence[str] | None = None,
    records: bool = False,
    policy: Policy | type | str | None = None,
    journal: bool = False,
    detail: Keep | None = None,
    watch: Callable[[Progress], bool] | None = None,
) -> Result:
    """Run a scenario (a file, with overrides by path, or a loaded one) and give its :class:`Result`.

    With ``records`` it has a row of every request; without, statistics alone, and memory does not grow with the run.
    ``policy``: in place of the scenario's: a name, a class, or an object with ``pick(ready, core)``, of which each core
    gets a copy, so that the object itself stays as it is.
    With ``journal`` the result has what happened to each call, with ``detail`` what each op and transfer did.
    ``watch``: told how far the run is, every 64 events, or up to 1,100 where steps are taken ahead; if it says True,
    the run ends there and the result, of what had ended by then, is ``partial``.
    """
    if not isinstance(scenario, Scenario):
        scenario = load_scenario(scenario, set or {})
    elif set:
        raise ScenarioError("overrides need a scenario file, not a loaded scenario", do="pass set= to load_scenario")
    return System.build(scenario, records=records, policy=policy, journal=journal, detail=detail).run(watch)


def _merge(scenario: Scenario) -> Merge:
    """At bank fidelity nobody knows a rate ahead, and lines compete one by one: only what cannot stall is merged."""
    engine = scenario.engine
    return "exact" if engine.dram == "bank" and engine.merge == "on" else engine.merge


def _maker(scenario: Scenario, policy: Policy | type | str | None) -> Callable[[], Policy]:
    """What makes the policy of each core."""
    if policy is None:
        return scenario.make_policy
    if isinstance(policy, str):
        try:
            return policy_maker(policy, scenario.file.parent)
        except ValueError as failure:
            what, _, do = str(failure).partition("; ")
            raise ScenarioError(f"policy: {what}", do=do) from None
    make = policy if isinstance(policy, type) else partial(deepcopy, policy)
    if not callable(getattr(policy, "pick", None)):
        raise ScenarioError(f"{policy!r} is no policy", do="give it a method pick(ready, core)")
    return make


def _made(make: Callable[[], Policy]) -> Policy:
    try:
        return make()
    except Exception as error:
        what = f"policy {getattr(make, '__name__', make)}: it cannot be made: {type(error).__name__}: {error}"
        raise ScenarioError(what, do="make it without arguments, or pass an object from Python") from error
