"""What came out of a system that has run, and what a user should know of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bpusim.metrics import (
    BatchStats,
    ChatStats,
    CoreCounters,
    CoreStats,
    DramStats,
    FrameStats,
    HeapStats,
    HeatStats,
    MemoryBlock,
    PhaseStats,
    PipelineStats,
    RequestRow,
    Result,
    RunWarning,
    WeightStats,
)
from bpusim.runtime import HIGH, CoreWaits
from bpusim.scenario import ChatSpec, FramesSpec, Scenario
from bpusim.system.channels import known_error, table_of
from bpusim.system.heating import heat_stats, heat_warnings
from bpusim.system.splits import split_plans
from bpusim.system.streams import parts_of, sequences_most
from bpusim.units import PS_PER_S, Ps, format_quantity
from bpusim.workload import ChatStream, FrameStream, PipelineStream

if TYPE_CHECKING:
    from bpusim.system.build import System

__all__ = ["host_warnings", "machine_warnings", "policy_warnings", "result_of"]

_STUCK = 10
"""A step that takes so many times the mean is worth a warning."""
_BACKLOG = 10
"""So many requests or runs under way at the end, and no fewer than ever before, are a line that grows."""
_DROPPED = 0.01
"""A part of frames that is worth a warning."""


def result_of(system: System, *, partial: bool = False) -> Result:
    """The result of a run that has just ended, or that was stopped (``partial``)."""
    elapsed: Ps = system.env.now
    scenario, machine = system.scenario, system.scenario.machine
    peak = machine.cores.peak_macs_per_s
    streams: dict[str, ChatStats | FrameStats | PipelineStats] = {}
    rows: list[RequestRow] | None = [] if system.records else None
    for name, s in system.streams.items():
        chats = {label: _chat(system, label, chat, elapsed, peak) for label, chat in s.chats.items()}
        if rows is not None:
            rows.extend(row for chat in s.chats.values() for row in chat.record.rows or ())
        if isinstance(s, ChatStream):
            streams[name] = chats[name]
        elif isinstance(s, FrameStream):
            streams[name] = FrameStats.of(s.record, elapsed)
        else:
            stages = {label.removeprefix(f"{name}."): stats for label, stats in chats.items()}
            streams[name] = PipelineStats.of(s.record, elapsed, stages)
    cores = {
        c.name: CoreStats.of(
            system.recorder.cores.get(c.name, CoreCounters()),
            system.recorder.occupied_until(c.name, elapsed),
            elapsed,
            peak,
            _load_log(system, i),
            _waits(system.executor.queues[i].waits),
        )
        for i, c in enumerate(system.cores)
    }
    heat = heat_stats(system.heat, system.controls, system.streams) if system.heat is not None else None
    table, moved, dropped = table_of(scenario), system.channel.moved(), system.channel.dropped()
    dram = DramStats(
        machine.dram.preset,
        scenario.engine.dram,
        table.peak,
        system.recorder.moved_bytes,
        moved,
        elapsed,
        system.channel.latency(),
        dropped,
        {name: m.written for name, m in machine.masters.items()},
        *known_error(scenario, table),
    )
    overload = [
        RunWarning(
            "dram-overload",
            f"{name} lost {n / (n + moved[name]):.1%} of its bytes: masters ask for more than the channel gives",
        )
        for name, n in dropped.items()
        if n
    ]
    if rows is not None:
        rows.sort(key=lambda r: (r.arrived, r.stream))
    return Result(
        scenario.name,
        elapsed,
        system.env.events,
        scenario.engine.seed,
        streams,
        cores,
        dram,
        system.memory.resident,
        system.memory.usable,
        (*system.warnings, *_run_warnings(system, heat, elapsed, partial=partial), *overload),
        rows,
        scenario.about,
        heat,
        system.journal,
        system.detail,
        {
            name: BatchStats(b.most, b.steps, b.sequences / b.steps if b.steps else 0.0)
            for name, b in system.executor.batches.items()
        },
        split_plans(system),
        {h.name: HeapStats(h.bytes, h.used, h.free, {b.name: b.bytes for b in h.blocks}) for h in system.memory.heaps},
        _weights(system) if machine.cores.weights_sram is not None else (),
        partial,
        [MemoryBlock(r.name, r.base, r.bytes) for r in system.memory.regions],
    )


def _run_warnings(system: System, heat: HeatStats | None, now: Ps, *, partial: bool) -> list[RunWarning]:
    text = f"the run was stopped at {now / PS_PER_S:.3f} s, before its end: figures are of what had ended by then"
    stopped = [RunWarning("partial", text)] if partial else []
    return [*stopped, *heat_warnings(heat), *_stuck(system, now), *_growing(system, now)]


def _chat(system: System, label: str, chat: ChatStream, elapsed: Ps, peak: int) -> ChatStats:
    phases = {}
    for phase in ("prefill", "decode"):
        batch = system.executor.batches.get(chat.model.name) if phase == "decode" else None
        who = label if batch is None else batch.name  # its steps are those of all that share it
        counters = system.recorder.labels.get(f"{who}/{phase}", CoreCounters())
        time = chat.record.phase_time(phase, elapsed) if batch is None else batch.busy()
        phases[phase] = PhaseStats.of(counters, time, peak)
    return ChatStats.of(chat.record, elapsed, phases)


def _waits(waits: CoreWaits) -> dict[str, Ps]:
    waits.change()  # up to now
    return {"dram": waits.dram, "host": waits.host, "other_core": waits.elsewhere, "no_work": waits.nothing}


def _weights(system: System) -> list[WeightStats]:
    out = []
    for m in system.models.values():
        for part, (core, trace) in enumerate(m.parts):
            kept = m.on_chip[part][1] if part in m.on_chip else 0
            together = m.team.cores if m.team is not None else (core,)
            name = "any" if m.anywhere else ", ".join(system.cores[c].name for c in together)
            out.append(WeightStats(m.name, name, kept, trace.resident_bytes - kept))
    return out


def _load_log(system: System, core: int) -> list[str]:
    out = []
    for m in system.models.values():
        shared = m.anywhere or (m.team.cores if m.team is not None else ())
        parts = [(c, m.trace) for c in shared] or m.parts
        for k, (at, trace) in enumerate(parts):
            if at == core:
                part = f" part {k + 1} of {len(parts)}" if len(m.parts) > 1 else " (any core)" if m.anywhere else ""
                part = f" share {k + 1} of {len(parts)}" if m.team is not None else part
                size = format_quantity(trace.resident_bytes, "size")
                out.append(f"load success: {m.name}{part}: {trace.header.model}, {size}")
    return out


def machine_warnings(system: System) -> list[RunWarning]:
    """Models that nobody asks, and cores that have none."""
    asked = {m.name for s in system.streams.values() for m in s.models}
    used = {core for m in system.models.values() for core in m.cores}
    unused = [
        RunWarning("unused-model", f"no stream uses model '{name}'; it takes memory and its cores wait for nothing")
        for name in system.models
        if name not in asked
    ]
    return unused + [
        RunWarning(
            "idle-core",
            f"core {c.name} has no model and stays idle; give a model cores: {c.name}, or split one over both",
        )
        for i, c in enumerate(system.cores)
        if i not in used
    ]


def host_warnings(system: System) -> list[RunWarning]:
    """Models over more cores than the host has CPU cores for, and a cut of CPU ops that there are none of."""
    out, options = [], system.scenario.host
    have = system.executor.host.cores()
    kind = "" if options.affinity == "any" else f"{options.affinity} "
    for m in system.models.values():
        need = len(m.team.cores) if m.team is not None else len(m.parts)
        if need > have:
            cores = f"{have} {kind}CPU core{'s' if have > 1 else ''}"
            text = f"model {m.name} is split over {need} cores and the host has {cores}: many runtimes take a host "
            more = f"thread for each and refuse that; give it machine.host.cores: {need}, or split it over fewer"
            out.append(RunWarning("host-threads", text + more))
    cut = options.fallback_parts != 1 or any(_cut(spec) for _, spec in parts_of(system.scenario))
    if system.scenario.machine.host.join_per_part and not cut:
        text = "no host work is cut over cores (parts, host.fallback_parts); machine.host.join_per_part changes nothing"
        out.append(RunWarning("parts-unused", text))
    for m in system.models.values():
        room = sequences_most(system.scenario, m.name)
        if room is not None and room < m.batch:
            text = f"model {m.name} has a batch of {m.batch}, and its streams never have more than {room} "
            out.append(RunWarning("batch-unused", f"{text}sequence{'s' if room > 1 else ''} at a time; lower it"))
    ops = (op for m in system.models.values() for p in m.trace.phases.values() for op in p.ops())
    if options.fallback_parts != 1 and all(op.unit != "cpu" for op in ops):
        text = "no model has an op that falls back to the CPU; host.fallback_parts changes nothing"
        out.append(RunWarning("parts-unused", text))
    return out


def _cut(spec: object) -> bool:
    return getattr(spec, "parts", 1) != 1


def policy_warnings(scenario: Scenario, *, named: bool) -> list[RunWarning]:
    """Keys that the policy does not look at. ``named``: it is the scenario's, and no object of the caller's."""
    out: list[RunWarning] = []
    policy = scenario.policy
    if not named:
        return out
    ranked = [name for name, m in scenario.models.items() if m.priority]
    if ranked and policy in ("fifo", "round_robin", "edf", "least_laxity", "weighted_fair"):
        text = f"policy {policy} looks at no priority; that of {', '.join(ranked)} changes nothing"
        out.append(RunWarning("priority-unused", text))
    if policy in ("edf", "least_laxity") and not any(_due(s) for s in scenario.streams.values()):
        text = f"policy {policy} goes by deadlines and no stream has one: calls are served in order"
        out.append(RunWarning("no-deadlines", text))
    bound = [name for name, m in scenario.models.items() if m.max_call is not None]
    if bound and policy == "fifo":
        text = f"policy fifo interrupts nothing; max_call of {', '.join(bound)} changes nothing"
        out.append(RunWarning("bound-unused", text))
    urgent = [name for name in ranked if scenario.models[name].priority >= HIGH]
    if policy == "priority":
        for name in urgent:
            mine = scenario.models[name]
            others = {n: m for n, m in scenario.models.items() if n != name}
            beside = {n: m for n, m in others.items() if set(m.cores) & {*mine.cores, "any"}}
            spread = [n for n, m in beside.items() if mine.split == m.split == "tensor"]
            if spread:
                text = f"priority {mine.priority} of {name} does not interrupt {', '.join(spread)}: tensor splits that "
                out.append(RunWarning("nothing-to-interrupt", f"{text}share a core take turns, call by call"))
                beside = {n: m for n, m in beside.items() if n not in spread}
            if beside and all(m.max_call is None for m in beside.values()):
                text = f"priority {mine.priority} of {name} can interrupt nothing: {', '.join(beside)} on its core "
                out.append(
                    RunWarning("nothing-to-interrupt", text + "goes to the end of its calls; give it a max_call")
                )
    weighted = [name for name, s in scenario.streams.items() if s.weight != 1]
    if weighted and policy in ("fifo", "round_robin", "priority", "edf", "least_laxity"):
        text = f"policy {policy} looks at no weight; that of {', '.join(weighted)} changes nothing"
        out.append(RunWarning("weight-unused", text))
    return out


def _due(spec: object) -> bool:
    if isinstance(spec, ChatSpec):
        return spec.slo.ttft is not None or spec.slo.tpot is not None
    return bool(spec.deadline) if isinstance(spec, FramesSpec) else bool(getattr(spec, "deadline", None))


def _stuck(system: System, now: Ps) -> list[RunWarning]:
    """Chats whose step in progress takes many times as long as those before: it is in none of their figures."""
    out = []
    for name, chat in ((n, c) for s in system.streams.values() for n, c in s.chats.items()):
        for phase, since in chat.record.open.values():
            done = chat.record.gaps if phase == "decode" else chat.record.ttfts
            if phase != "waiting" and len(done) and (now - since) * len(done) > _STUCK * done.total:
                text = f"{name}: a {phase} step in progress at the end had taken {(now - since) / PS_PER_S:.3g} s, "
                mean = f"those before it {done.total / len(done) / 1e9:.3g} ms on average; latencies leave it out"
                out.append(RunWarning("step-in-progress", text + mean))
                break
    return out


def _growing(system: System, now: Ps) -> list[RunWarning]:
    """Lines that grow, and frames that are dropped: more comes than is served."""
    out = []
    for name, s in system.streams.items():
        if isinstance(s, FrameStream):
            r = s.record
            gone = r.dropped + r.lost
            if gone > _DROPPED * (r.captured + r.lost):
                rate = r.through * PS_PER_S / now if now else 0.0
                part = gone / (r.captured + r.lost)
                text = f"{name}: {part:.1%} of its frames are dropped; {s.rate:g} a second come, {rate:.3g} are served"
                out.append(RunWarning("frames-dropped", text))
            continue
        record = s.record
        backlog, open_ = max(record.present.now, record.backlog), isinstance(s, PipelineStream) or s.open
        if open_ and backlog >= _BACKLOG and backlog > 0.9 * record.present.most:
            what = "runs" if isinstance(s, PipelineStream) else "requests"
            when = "at the end" if record.present.now else "when the last had come"
            text = f"{name}: {backlog} {what} were under way {when}, and never more: "
            out.append(RunWarning("growing-line", f"{text}they come faster than they are served"))
        if isinstance(s, ChatStream) and s.record.rejected:
            text = f"{name}: {s.record.rejected} of {s.record.arrived} requests found the line full and were rejected"
            out.append(RunWarning("requests-rejected", text))
    return out
