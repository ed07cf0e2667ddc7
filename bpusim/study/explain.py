"""Where the time of a scenario goes, what bounds it, and what each single change would make of it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from bpusim.errors import BpusimError
from bpusim.metrics import CAUSES, ChatStats, ColdStats, FrameStats, PipelineStats, Result
from bpusim.metrics.explained import Bound, Explained, FirstToken, Interval
from bpusim.metrics.explanation import Change, Explanation, Key, Tried
from bpusim.scenario import ChatSpec, FramesSpec, PipelineSpec, Scenario, StageSpec, load_scenario
from bpusim.study.bounds import Bounds, Usage
from bpusim.study.changes import changes_of
from bpusim.system import simulate
from bpusim.system.load import load_traces
from bpusim.units import PS_PER_S, Ps

__all__ = ["COLD", "FIRST", "FRAME", "TOKEN", "explain", "streams_of"]

FIRST, TOKEN, FRAME = "first token", "each token", "a frame"
COLD = "cold "
"""Before the name of an interval: of those that waited for weights to load."""
_EVENTS = 25_000
"""What a change may cost: about a second of CPU. Longer runs are cut."""

Tell = Callable[[int, int, str], None]
"""Hears (how many runs are done, how many there are, what is run now)."""


def explain(
    path: str | Path, overrides: Sequence[str] = (), *, what_if: bool = True, tell: Tell | None = None
) -> Explanation:
    """Run a scenario, and again with each change that may help.

    Raises :class:`BpusimError` for a scenario that cannot be run; a change that cannot is reported with its row.
    """
    say = tell or _nobody
    scenario = load_scenario(path, overrides)
    say(0, 1, "as it is")
    result = simulate(scenario, records=True)
    streams = streams_of(result, scenario)
    command = shlex.join(["bpusim", "run", str(path), *(w for s in overrides for w in ("--set", s))])
    fps = _frames_per_s(result)
    warnings = [w.text for w in result.warnings]
    done = any(s.intervals for s in streams)
    if not what_if or not done:
        missing = [] if done else ["nothing came to its end before the run did, so no change was tried: lengthen it"]
        return Explanation(
            scenario.name, scenario.about, command, streams, result.decode_tokens_per_s, fps,
            notes=[*warnings, *missing],
        )  # fmt: skip
    changes, untried = changes_of(scenario, load_traces(scenario))
    common, notes = _shortened(scenario, result)
    outputs = {s.name: s.output for s in streams if s.output is not None}
    say(1, len(changes) + 2, "as it is, shorter")
    base = simulate(load_scenario(path, [*overrides, *common])) if common else result
    tried = []
    for k, change in enumerate(changes):
        say(k + 2, len(changes) + 2, change.name)
        shared, beside = ((), result) if change.whole else (common, base)
        tried.append(_tried(path, [*overrides, *shared], change, beside, outputs))
    say(len(changes) + 2, len(changes) + 2, "")
    tried.sort(key=lambda t: (t.ratio is None, t.ratio or 0.0))
    return Explanation(
        scenario.name, scenario.about, command, streams, result.decode_tokens_per_s, fps,
        tried, untried, common, _outcome(Change("as it is", ()), base, base, outputs), [*warnings, *notes],
    )  # fmt: skip


def _nobody(*_: object) -> None:
    pass


def _shortened(scenario: Scenario, result: Result) -> tuple[list[str], list[str]]:
    """(overrides that make what-ifs cheap, what a reader should know of them)."""
    common, notes = [], []
    if scenario.engine.dram == "bank":
        common.append("engine.dram=flow")
        common += ["machine.dram.mapping=null"] if scenario.machine.dram.mapping is not None else []
        notes.append("what-ifs, and what they are compared with, run on the flow model: the bank model takes too long")
    if result.events > _EVENTS:
        until = _rounded_down(result.elapsed * _EVENTS // result.events)
        common.append(f"run.until={until / PS_PER_S:g} s")
        part = f"the first {until / PS_PER_S:g} of {result.elapsed / PS_PER_S:.4g} s"
        notes.append(f"what-ifs run {part}, and are compared with the same stretch of the scenario as it is")
        if scenario.machine.cooling is not None:
            notes.append("heat builds up for longer than that: only the what-if with a fan has all of the run")
    return common, notes


def _rounded_down(duration: Ps) -> Ps:
    """To two digits, in milliseconds; at least one."""
    ms = max(duration // 10**9, 1)
    step = int(10 ** max(len(str(ms)) - 2, 0))
    return ms // step * step * 10**9


def _tried(
    path: str | Path, overrides: Sequence[str], change: Change, base: Result, outputs: Mapping[str, float]
) -> Tried:
    try:
        result = simulate(load_scenario(path, [*overrides, *change.sets]))
    except BpusimError as e:
        what = e.problems[0]
        return Tried(change, refused=what.what + (f"; {what.do}" if what.do else ""))
    return _outcome(change, result, base, outputs)


def _outcome(change: Change, result: Result, base: Result, outputs: Mapping[str, float]) -> Tried:
    before, after = _means(base), _means(result)
    ratios = {
        name: new / old
        for name in base.streams
        if (old := _whole(name, base, outputs)) and (new := _whole(name, result, outputs))
    }
    mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios)) if len(ratios) == len(base.streams) else None
    return Tried(change, after, before, ratios, mean, result.decode_tokens_per_s, _frames_per_s(result))


def _whole(name: str, result: Result, outputs: Mapping[str, float]) -> float | None:
    """Time of a request of as many tokens as the scenario's have on average, of a frame, or of a run to its ends."""
    s = result.streams[name]
    if isinstance(s, ChatStats):
        first = s.ttft_mean_ms if s.ttft_mean_ms is not None else s.cold.mean_ms
        # Where only a file knows how long answers are and none is finished: as long as they are so far.
        more = outputs.get(name, s.tokens / max(s.arrived, 1)) - 1
        if first is None or (more > 0 and s.tpot_mean_ms is None):
            return None
        return first + more * (s.tpot_mean_ms or 0.0)
    if isinstance(s, FrameStats):
        return s.latency_mean_ms if s.latency_mean_ms is not None else s.cold.mean_ms
    ends = [e.mean_ms if e.mean_ms is not None else e.cold.mean_ms for e in s.ends.values()]
    known = [e for e in ends if e is not None]
    return sum(known) if known and len(known) == len(ends) else None


def _means(result: Result) -> dict[Key, Ps]:
    return {
        (name, i.name): i.mean
        for name, (_, intervals) in _intervals(result).items()
        for i in intervals
    }  # fmt: skip


def _frames_per_s(result: Result) -> float:
    return sum(s.fps for s in result.streams.values() if isinstance(s, FrameStats))


# --- what a result says


Kind = Literal["chat", "frames", "pipeline"]


def _intervals(result: Result) -> dict[str, tuple[Kind, list[Interval]]]:
    """Of each stream and each chat stage: what takes time, with its causes; nothing of what never happened."""
    out: dict[str, tuple[Kind, list[Interval]]] = {}
    for name, s in result.streams.items():
        if isinstance(s, FrameStats):
            out[name] = "frames", [*_interval(FRAME, s.latency_mean_ms, s.breakdown_ms), *_cold(FRAME, s.cold)]
        elif isinstance(s, PipelineStats):
            rows: list[Interval] = []
            for stage, e in s.ends.items():
                rows += [*_interval(f"to the end of {stage}", e.mean_ms, e.breakdown_ms)]
                rows += _cold(f"to the end of {stage}", e.cold)
            out[name] = "pipeline", rows
            out |= {f"{name}.{stage}": ("chat", _of_chat(c)) for stage, c in s.chats.items()}
        else:
            out[name] = "chat", _of_chat(s)
    return out


def _of_chat(s: ChatStats) -> list[Interval]:
    return [
        *_interval(FIRST, s.ttft_mean_ms, s.ttft_breakdown_ms),
        *_cold(FIRST, s.cold),
        *_interval(TOKEN, s.tpot_mean_ms, s.breakdown_ms),
    ]


def _interval(name: str, mean: float | None, causes: Mapping[str, float]) -> list[Interval]:
    if mean is None:
        return []
    exact = {c: round(causes[c] * 1e9) for c in CAUSES}
    return [Interval(name, sum(exact.values()), exact)]


def _cold(name: str, cold: ColdStats) -> list[Interval]:
    return _interval(f"{COLD}{name.removeprefix('a ')}", cold.mean_ms, cold.breakdown_ms)


def streams_of(result: Result, scenario: Scenario | None = None) -> list[Explained]:
    """Streams and chat stages of a result, with their bounds if its ``scenario`` is given (and it has records)."""
    bounds = Bounds(scenario, load_traces(scenario), result) if scenario is not None else None
    out = []
    for name, (kind, intervals) in _intervals(result).items():
        plain = Explained(name, kind, intervals, stage=name not in result.streams)
        out.append(_bounded(plain, bounds) if bounds is not None else plain)
    return out


def _bounded(s: Explained, bounds: Bounds) -> Explained:
    spec = _spec(bounds.scenario, s.name)
    found: dict[str, Bound] = {}
    first = output = None
    if isinstance(spec, FramesSpec):
        took = s.interval(FRAME)
        found = {FRAME: bounds.frame(spec.frames, took)} if took is not None else {}
    elif isinstance(spec, PipelineSpec):
        stats = bounds.result.streams[s.name]
        assert isinstance(stats, PipelineStats)
        for stage, part in spec.pipeline.items():
            if part.frames is not None and stage in stats.stages_ms:
                whole = Interval(stage, round(stats.stages_ms[stage] * 1e9), {})
                found[stage] = bounds.frame(part.frames, whole)
    elif spec.chat is not None:
        rows = [r for r in bounds.result.requests or () if r.stream == s.name]
        model = bounds.scenario.models[spec.chat]
        trace = bounds.traces[spec.chat]
        chunk = trace.phase("prefill").tokens
        usage = Usage.of(rows, spec, model.context or trace.header.context, chunk)
        if usage is not None:
            took, each = s.interval(FIRST), s.interval(TOKEN)
            found |= {FIRST: bounds.first_token(spec.chat, usage, took)} if took is not None else {}
            found |= {TOKEN: bounds.token(spec.chat, usage, each)} if each is not None else {}
            first = _first(s, usage, bounds, spec.chat) if rows else None
            output = usage.output
    bound = {name: b for name, b in found.items() if b.ideal}  # none of what is on the CPU alone
    return Explained(s.name, s.kind, s.intervals, bound, first, s.stage, output)


def _first(s: Explained, usage: Usage, bounds: Bounds, model: str) -> FirstToken | None:
    """None where no request has finished but cold ones."""
    stats, took, each = bounds.result.chats[s.name], s.interval(FIRST), s.interval(TOKEN)
    if stats.e2e_mean_ms is None or took is None:
        return None
    chunk = bounds.traces[model].phase("prefill").tokens
    e2e = round(stats.e2e_mean_ms * 1e9)
    tpot = each.mean if each is not None else None
    return FirstToken(took.mean, tpot, e2e, took.at_work, usage.prompt, usage.output, chunk)


def _spec(scenario: Scenario, name: str) -> ChatSpec | FramesSpec | PipelineSpec | StageSpec:
    """Of a stream, or of a stage by ``PIPELINE.STAGE``."""
    if name in scenario.streams:
        return scenario.streams[name]
    pipeline, _, stage = name.rpartition(".")
    found = scenario.streams[pipeline]
    assert isinstance(found, PipelineSpec)
    return found.pipeline[stage]
