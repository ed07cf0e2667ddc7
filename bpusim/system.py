"""Builds the SimPy system a scenario describes, runs it, and gathers the result."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import simpy

from bpusim.cores import BpuCore, HostCluster
from bpusim.dram import FlowChannel, arbiter, dram_preset
from bpusim.errors import BpusimError, HardwareError, Problem, ScenarioError, SimulationError, TraceError
from bpusim.hardware import DmaSpec, MachineSpec
from bpusim.metrics import (
    ChatRecord,
    ChatStats,
    CoreCounters,
    CoreStats,
    DramStats,
    FrameRecord,
    FrameStats,
    PhaseStats,
    Recorder,
    RequestRow,
    Result,
    RunWarning,
)
from bpusim.ports import BufferKind, Port
from bpusim.runtime import CoreQueue, Executor, Fifo, MemoryMap, Need, PlacedModel, RuntimeOptions, lay_out, place
from bpusim.scenario import ChatSpec, Scenario, load_scenario
from bpusim.thermal import ClockDomain
from bpusim.trace import Trace, load_trace
from bpusim.units import Ps, format_quantity
from bpusim.workload import ChatStream, FrameStream

if TYPE_CHECKING:
    from bpusim.dram.bank.channel import BankChannel

__all__ = ["System", "simulate"]

_PORTABLE_NAME = re.compile(r"[A-Za-z0-9_]+")


class CountingEnvironment(simpy.Environment):
    """A SimPy environment that counts the events it has processed."""

    events = 0

    def step(self) -> None:
        """Process one event."""
        super().step()
        self.events += 1


@dataclass(slots=True)
class System:
    """A scenario made ready to run once."""

    scenario: Scenario
    env: CountingEnvironment
    recorder: Recorder
    channel: FlowChannel | BankChannel
    cores: Sequence[BpuCore]
    executor: Executor
    streams: Mapping[str, ChatStream | FrameStream]
    models: Mapping[str, PlacedModel]
    memory: MemoryMap
    warnings: list[RunWarning] = field(default_factory=list)

    @classmethod
    def build(cls, scenario: Scenario) -> System:
        """Wire the machine and load the models. Raises a :class:`BpusimError` with every problem found."""
        machine = scenario.machine
        traces = _load_traces(scenario)
        warnings = [w for name in scenario.models for w in _name_warnings(name)]
        models, placing = _place_models(scenario, traces)
        memory = _memory(scenario, models)
        _check_streams(scenario, models)
        env = CountingEnvironment(initial_time=0)
        recorder = Recorder()
        channel = (
            _bank_channel(env, scenario, recorder, models, memory)
            if scenario.engine.dram == "bank"
            else _channel(env, scenario, recorder)
        )
        cores = []
        for name in machine.cores.names:
            port = _port(channel, name, machine.cores.dma, machine)
            cores.append(BpuCore(env, name, machine.cores, ClockDomain(name, machine.cores.clock), port, recorder))
        host = HostCluster(
            env, machine.host, _port(channel, "cpu", machine.host.dma, machine, machine.host.cores), recorder
        )
        options = RuntimeOptions(
            scenario.host.logging == "per_op", scenario.host.memory_pool == "on", scenario.host.submit == "async"
        )
        queues = {i: CoreQueue(env, core, Fifo()) for i, core in enumerate(cores)}
        executor = Executor(env, host, queues, options)
        streams = {name: _stream(name, spec, models) for name, spec in scenario.streams.items()}
        system = cls(scenario, env, recorder, channel, cores, executor, streams, models, memory, warnings + placing)
        system.warnings.extend(system._idle_cores())
        return system

    def run(self) -> Result:
        """Run to the end: all finite streams done, or the scenario's ``until``."""
        env = self.env
        processes = {name: env.process(s.run(self.executor)) for name, s in self.streams.items()}
        finite = [p for name, p in processes.items() if self._finite(name)]
        ends: list[simpy.Event] = [env.all_of(finite)] if finite else []
        if self.scenario.run.until is not None:
            ends.append(env.timeout(self.scenario.run.until))
        try:
            env.run(until=env.any_of(ends))
        except RuntimeError as e:
            if "until" not in str(e):
                raise
            waiting = ", ".join(name for name, p in processes.items() if p.is_alive)
            busy = ", ".join(c.name for c in self.cores if c.busy) or "no core"
            raise SimulationError(
                f"deadlock at {env.now / 1e9:.3f} ms: {waiting} wait and {busy} is in a call"
            ) from None
        return self._result()

    def _finite(self, name: str) -> bool:
        stream = self.streams[name]
        return (stream.requests if isinstance(stream, ChatStream) else stream.count) is not None

    def _idle_cores(self) -> list[RunWarning]:
        asked = {s.model.name for s in self.streams.values()}
        used = {core for m in self.models.values() for core, _ in m.parts}
        unused = [
            RunWarning("unused-model", f"no stream uses model '{name}'; it takes memory and its cores wait for nothing")
            for name in self.models
            if name not in asked
        ]
        return unused + [
            RunWarning(
                "idle-core",
                f"core {c.name} has no model and stays idle; give a model cores: {c.name}, or split one over both",
            )
            for i, c in enumerate(self.cores)
            if i not in used
        ]

    def _result(self) -> Result:
        elapsed: Ps = self.env.now  # type: ignore[assignment]  # integer by construction
        scenario, machine = self.scenario, self.scenario.machine
        peak = machine.cores.peak_macs_per_s
        streams: dict[str, ChatStats | FrameStats] = {}
        requests: list[RequestRow] = []
        for name, s in self.streams.items():
            if isinstance(s, ChatStream):
                phases = {
                    "prefill": self._phase(name, "prefill", s.record.phase_time("prefill", elapsed), peak),
                    "decode": self._phase(name, "decode", s.record.phase_time("decode", elapsed), peak),
                }
                streams[name] = ChatStats.of(s.record, elapsed, phases)
                requests.extend(s.record.requests)
            else:
                streams[name] = FrameStats.of(s.record, elapsed)
        cores = {
            c.name: CoreStats.of(
                self.recorder.cores.get(c.name, CoreCounters()),
                self.recorder.occupied_until(c.name, elapsed),
                elapsed,
                peak,
                self._load_log(i),
            )
            for i, c in enumerate(self.cores)
        }
        preset = dram_preset(machine.dram.preset)
        dram = DramStats(
            preset.name, scenario.engine.dram, preset.peak, self.recorder.moved_bytes, self.channel.moved(), elapsed
        )
        requests.sort(key=lambda r: (r.arrived, r.stream))
        return Result(
            scenario.name,
            elapsed,
            self.env.events,
            scenario.engine.seed,
            streams,
            cores,
            dram,
            self.memory.resident,
            self.memory.usable,
            tuple(self.warnings),
            tuple(requests),
            scenario.about,
        )

    def _phase(self, stream: str, phase: str, duration: Ps, peak: int) -> PhaseStats:
        return PhaseStats.of(self.recorder.labels.get(f"{stream}/{phase}", CoreCounters()), duration, peak)

    def _load_log(self, core: int) -> list[str]:
        out = []
        for m in self.models.values():
            for k, (at, trace) in enumerate(m.parts):
                if at == core:
                    part = f" part {k + 1} of {len(m.parts)}" if len(m.parts) > 1 else ""
                    size = format_quantity(trace.resident_bytes, "size")
                    out.append(f"load success: {m.name}{part}: {trace.header.model}, {size}")
        return out


def simulate(scenario: str | Path | Scenario, *, set: Mapping[str, object] | Sequence[str] | None = None) -> Result:
    """Run a scenario (a file, with overrides by path, or a loaded one) and give its :class:`Result`."""
    if not isinstance(scenario, Scenario):
        scenario = load_scenario(scenario, set or {})
    elif set:
        raise ScenarioError("overrides need a scenario file, not a loaded scenario", do="pass set= to load_scenario")
    return System.build(scenario).run()


def _load_traces(scenario: Scenario) -> dict[str, Trace]:
    problems: list[Problem] = []
    traces: dict[str, Trace] = {}
    loaded: dict[Path, Trace] = {}
    fingerprint = scenario.machine.cores.fingerprint()
    for name in scenario.models:
        path = scenario.trace_path(name)
        try:
            traces[name] = loaded.setdefault(path, load_trace(path)) if path not in loaded else loaded[path]
        except BpusimError as e:
            problems.extend(e.problems)
            continue
        target = traces[name].header.target
        differs = {k: v for k, v in fingerprint.items() if target.get(k) != v}
        if differs:
            what = "; ".join(f"{k} {target.get(k)} where the machine has {v}" for k, v in differs.items())
            command = (
                traces[name].header.command or f"bpusim compile MODEL --machine {scenario.machine.name} -o {path.name}"
            )
            command = command.replace(f"-o {path.name}", f"-o {path}")
            changes = "".join(f" --set 'machine.cores.{k}={_yaml(v)}'" for k, v in differs.items())
            problems.append(
                Problem(
                    f"the trace of model '{name}' is compiled for another core: {what}",
                    scenario.where("models", name, "trace"),
                    f"compile it for this machine, where its source is: {command}{changes}",
                )
            )
    if problems:
        raise TraceError(problems)
    return traces


def _yaml(value: object) -> str:
    """A fingerprint value as ``--set`` reads it back: text that looks like a number needs quotes."""
    number = isinstance(value, str) and re.fullmatch(r"[-+.\d_eE]+", value)
    return f'"{value}"' if number else str(value)


def _name_warnings(name: str) -> list[RunWarning]:
    if _PORTABLE_NAME.fullmatch(name):
        return []
    better = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return [
        RunWarning(
            "model-name",
            f"model name '{name}' is dropped by toolchains that take only letters, digits and '_'; call it '{better}'",
        )
    ]


def _place_models(scenario: Scenario, traces: Mapping[str, Trace]) -> tuple[dict[str, PlacedModel], list[RunWarning]]:
    names = scenario.machine.cores.names
    models: dict[str, PlacedModel] = {}
    warnings: list[RunWarning] = []
    problems: list[Problem] = []
    for name, spec in scenario.models.items():
        trace = traces[name]
        limit = trace.header.context
        if spec.context is not None and limit and spec.context > limit:
            problems.append(
                Problem(
                    f"a context of {spec.context} exceeds the {limit} the trace is compiled for",
                    scenario.where("models", name, "context"),
                    f"write {limit} or less, or compile with --context",
                )
            )
            continue
        try:
            placed, texts = place(name, trace, [names.index(c) for c in spec.cores], spec.split, spec.context or limit)
        except TraceError as e:
            problems.extend(Problem(p.what, scenario.where("models", name), p.do) for p in e.problems)
            continue
        if max(core for core, _ in placed.parts) >= len(names):
            problems.append(
                Problem(
                    f"the trace of model '{name}' is pinned to a core this machine lacks",
                    scenario.where("models", name),
                )
            )
            continue
        models[name] = placed
        warnings.extend(RunWarning("pinned-trace", t) for t in texts)
    if problems:
        raise ScenarioError(problems)
    return models, warnings


def _memory(scenario: Scenario, models: Mapping[str, PlacedModel]) -> MemoryMap:
    needs = []
    for name, model in models.items():
        users = sum(1 for s in scenario.streams.values() if isinstance(s, ChatSpec) and s.chat == name)
        needs.append(Need.of(name, model.trace, model.context, users))
    return lay_out(needs, scenario.machine.dram.usable, scenario.where("models"))


def _check_streams(scenario: Scenario, models: Mapping[str, PlacedModel]) -> None:
    problems = []
    for name, spec in scenario.streams.items():
        wanted = ("prefill", "decode") if isinstance(spec, ChatSpec) else ("frame",)
        key = "chat" if isinstance(spec, ChatSpec) else "frames"
        model = models[spec.chat if isinstance(spec, ChatSpec) else spec.frames]
        if any(p not in model.trace.phases for p in wanted):
            have = ", ".join(model.trace.phases)
            problems.append(
                Problem(
                    f"model '{model.name}' cannot serve {key}: its trace has the phases {have}",
                    scenario.where("streams", name, key),
                    f"name a model compiled from {'an LLM' if key == 'chat' else 'a model that takes frames'}",
                )
            )
        elif isinstance(spec, ChatSpec) and spec.prompt + spec.output > model.context:
            problems.append(
                Problem(
                    f"prompt {spec.prompt} and output {spec.output} exceed the context of {model.context} tokens",
                    scenario.where("streams", name, "prompt"),
                    "shorten them, or compile the model with a longer --context",
                )
            )
    if problems:
        raise ScenarioError(problems)


def _channel(env: simpy.Environment, scenario: Scenario, recorder: Recorder) -> FlowChannel:
    dram = scenario.machine.dram
    try:
        preset = dram_preset(dram.preset)
    except HardwareError as e:
        raise HardwareError(
            Problem(p.what, scenario.where("machine", "dram", "preset"), p.do) for p in e.problems
        ) from None
    return FlowChannel(env, preset.sustained, arbiter(dram.arbitration), recorder, dram.order or ())


def _bank_channel(
    env: simpy.Environment,
    scenario: Scenario,
    recorder: Recorder,
    models: Mapping[str, PlacedModel],
    memory: MemoryMap,
) -> BankChannel:
    from bpusim.dram.bank.channel import BankChannel
    from bpusim.dram.bank.model import Controller
    from bpusim.dram.timing import channel

    dram = scenario.machine.dram
    found = channel(dram.preset, scenario.where("machine", "dram", "preset"))
    if dram.arbitration not in ("proportional", "strict"):
        place = scenario.where("machine", "dram", "arbitration")
        raise ScenarioError(f"{dram.arbitration} arbitration is not modelled at bank fidelity yet", place=place)
    regions: dict[str, dict[BufferKind, tuple[int, int]]] = {}
    spare = (memory.usable, max(dram.capacity - memory.usable, 1 << 26))
    for i, name in enumerate((*scenario.machine.cores.names, "cpu")):
        mine = [m for m, placed in models.items() if any(core == i for core, _ in placed.parts)]

        def stretch(part: str, mine: list[str] = mine) -> tuple[int, int]:
            found = [r for r in memory.regions if r.name in {f"{m}.{part}" for m in mine}]
            low = min((r.base for r in found), default=spare[0])
            return (low, max(r.base + r.bytes for r in found) - low) if found else spare

        regions[name] = {
            "weights": stretch("weights"),
            "kv": stretch("kv"),
            "spill": stretch("workspace"),
            "io": stretch("workspace"),
        }
    return BankChannel(env, found, recorder, Controller(strict=dram.arbitration == "strict"), regions)


def _port(channel: FlowChannel | BankChannel, name: str, dma: DmaSpec, machine: MachineSpec, slots: int = 1) -> Port:
    """A port; ``slots`` transfers of it may be under way at a time."""
    if isinstance(channel, FlowChannel):
        return channel.port(name, dma.window, dma.latency + dram_preset(machine.dram.preset).latency, dma.port)
    return channel.port(name, dma.window, dma.latency, dma.port, slots)


def _stream(name: str, spec: Any, models: Mapping[str, PlacedModel]) -> ChatStream | FrameStream:
    if isinstance(spec, ChatSpec):
        requests = None if spec.requests == "forever" else spec.requests
        return ChatStream(
            name, models[spec.chat], spec.prompt, spec.output, requests, spec.start, spec.think, ChatRecord()
        )
    return FrameStream(
        name,
        models[spec.frames],
        spec.rate,
        spec.count,
        spec.queue,
        spec.drop,
        spec.before,
        spec.after,
        spec.start,
        FrameRecord(),
    )
