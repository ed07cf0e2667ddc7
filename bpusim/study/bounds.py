"""The bound in force for each stream: what a pass over its model moves and computes, against what the machine can."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bpusim.metrics import RequestRow, Result
from bpusim.metrics.explained import Bound, Interval
from bpusim.scenario import ChatSpec, FileSpec, LognormalSpec, RegionsSpec, Scenario, StageSpec
from bpusim.system.channels import table_of
from bpusim.system.roof import roof_of
from bpusim.system.streams import parts_of, sequences_most
from bpusim.trace import Trace
from bpusim.trace.roofline import Position, Roof, folded, op_rows, totals
from bpusim.units import PS_PER_S

__all__ = ["Bounds", "Usage", "models_of"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a chat's requests on average, cache entries before a decode step, and its prompts.

    ``prompts``: (tokens, entries before them, how many such), prompts of as many chunks together at their mean.
    """

    prompt: float
    output: float
    kv: float
    prompts: tuple[tuple[int, int, int], ...]

    @classmethod
    def of(cls, rows: Sequence[RequestRow], spec: ChatSpec | StageSpec, context: int, chunk: int) -> Usage | None:
        """Of finished requests; of what the scenario asks for if none has finished, None if a file says that."""
        if not rows:
            prompt, output = _asked(spec.prompt), _asked(spec.output)
            if prompt is None or output is None:
                return None
            return cls(prompt, output, prompt + max(output / 2 - 1, 0), ((max(round(prompt), 1), 0, 1),))
        n, steps, before = len(rows), sum(r.tokens - 1 for r in rows), _pasts(rows, spec, context)
        # The step before token k of an answer (from 1) finds k - 1 entries behind the prompt's.
        entries = sum(
            (r.tokens - 1) * (b + r.prompt) + (r.tokens - 1) * (r.tokens - 2) // 2
            for r, b in zip(rows, before, strict=True)
        )
        alike: dict[int, list[tuple[int, int]]] = {}
        for r, b in zip(rows, before, strict=True):
            alike.setdefault(-(-r.prompt // chunk) if chunk else r.prompt, []).append((r.prompt, b))
        prompts = [
            (round(sum(p for p, _ in group) / len(group)), round(sum(b for _, b in group) / len(group)), len(group))
            for _, group in sorted(alike.items())
        ]
        tokens, answers = sum(r.prompt for r in rows), sum(r.tokens for r in rows)
        return cls(tokens / n, answers / n, entries / steps if steps else 0.0, tuple(prompts))


def _asked(spec: object) -> float | None:
    if isinstance(spec, int):
        return spec
    if isinstance(spec, LognormalSpec):
        return spec.median
    if isinstance(spec, RegionsSpec):
        regions = _asked(spec.regions)
        return None if regions is None else spec.text + spec.per_region * regions
    assert spec is None or isinstance(spec, FileSpec)
    return None


def _pasts(rows: Sequence[RequestRow], spec: ChatSpec | StageSpec, context: int) -> list[int]:
    """Cache entries before each prompt: none, unless a conversation is kept; then users are taken to ask in turn."""
    if not isinstance(spec, ChatSpec) or spec.history != "kept":
        return [0] * len(rows)
    past = [0] * spec.users
    out = []
    for k, r in enumerate(sorted(rows, key=lambda r: r.index)):
        user = k % spec.users
        if past[user] and past[user] + r.prompt + r.tokens > context:
            past[user] = 0
        out.append(past[user])
        past[user] += r.prompt + r.tokens - 1
    return out


@dataclass(slots=True)
class _Work:
    """What a pass, or several, comes to."""

    useful: int = 0
    issued: int = 0
    bytes: int = 0
    cycles: int = 0
    array: int = 0

    def add(self, trace: Trace, at: Position, roof: Roof, resident: int, times: int) -> None:
        """So many passes at a position; ``resident`` bytes of weights are on the core already. Ops on the CPU are left
        out: they are no work of the core."""
        whole = totals([r for r in op_rows(trace, at, roof) if r.unit != "cpu"])
        self.useful += 2 * whole["macs"] * times
        self.bytes += max(whole["bytes"] - resident, 0) * times
        self.cycles += whole["cycles"] * times
        for f in folded(trace, at.phase):
            if f.op.unit != "cpu":
                self.issued += 2 * at.value(f.op.issued) * f.count * times
                self.array += at.value(f.op.mac_cycles) * f.count * times

    def mean(self, n: int) -> _Work:
        """An ``n``-th of it."""
        return _Work(*(x // n for x in (self.useful, self.issued, self.bytes, self.cycles, self.array)))


@dataclass(slots=True)
class Bounds:
    """Makes the bounds of a scenario that has run."""

    scenario: Scenario
    traces: Mapping[str, Trace]
    result: Result
    _roof: Roof = field(init=False)

    def __post_init__(self) -> None:
        self._roof = roof_of(self.scenario.machine)

    def first_token(self, model: str, usage: Usage, took: Interval) -> Bound:
        """Of a first token: the chunks of its prompt, over all prompts."""
        trace = self.traces[model]
        chunk = trace.phase("prefill").tokens
        passes: list[tuple[Position, int]] = []
        for prompt, before, times in usage.prompts:
            sizes = [min(chunk, prompt - at) for at in range(0, prompt, chunk)] if chunk else [prompt]
            for k, tokens in enumerate(sizes):
                at = Position.of(trace, "prefill", before + sum(sizes[:k]), tokens if chunk else None)
                passes.append((at, times))
        n = sum(times for _, _, times in usage.prompts)
        behind = sum(b * times for _, b, times in usage.prompts) / n
        where = f"prefill of {usage.prompt:.4g} tokens" + (f" behind {behind:.4g} in the cache" if behind else "")
        if chunk:
            chunks = sum(times for _, times in passes) / n
            where += f", {chunks:.3g} chunk{'s' * (chunks != 1)} of {chunk}"
        return self._bound(model, "prefill", where, passes, n, took)

    def token(self, model: str, usage: Usage, took: Interval) -> Bound:
        """Of a decode step."""
        batch = self.result.batches.get(model)
        together = max(round(batch.sequences_mean), 1) if batch is not None else 1
        at = Position.of(self.traces[model], "decode", round(usage.kv), None, together)
        return self._bound(model, "decode", str(at), [(at, 1)], 1, took)

    def frame(self, model: str, took: Interval) -> Bound:
        """Of a frame."""
        at = Position.of(self.traces[model], "frame")
        return self._bound(model, "frame", str(at), [(at, 1)], 1, took)

    def _bound(
        self, model: str, phase: str, where: str, passes: Iterable[tuple[Position, int]], n: int, took: Interval
    ) -> Bound:
        """``passes``, each so many times, make ``n`` of what ``took`` so long."""
        trace, roof, machine = self.traces[model], self._roof, self.scenario.machine
        resident = sum(w.resident for w in self.result.weights if w.model == model)
        every = _Work()
        for at, times in passes:
            every.add(trace, at, roof, resident, times)
        work = every.mean(n)
        plan = self.result.splits.get(model)
        own, moved = (len(plan.cores), plan.phases[phase].moved) if plan is not None else (1, 1.0)
        readers = self._readers(model)
        table = table_of(self.scenario)
        alone = min(own * roof.bytes_per_s, table.capacity(own)) if own > 1 else roof.bytes_per_s
        left = max(table.capacity(readers) - self._taken(), 1.0)
        rates = {str(k): r for k, r in machine.cores.mac.rate.items()}
        best = max(rates, key=lambda k: rates[k])
        activation = trace.header.quant.get("activation", best)
        activation = activation if activation in rates else best
        return Bound(
            position=where,
            measured=took.mean,
            causes=took.causes,
            useful=work.useful,
            issued=work.issued,
            bytes=round(work.bytes * moved),
            compute=work.cycles * PS_PER_S // (roof.hz * own),
            array=work.array * PS_PER_S // (roof.hz * own),
            transfer=round(work.bytes * moved * PS_PER_S / alone),
            peak=2.0 * own * machine.cores.mac.rows * machine.cores.mac.cols * float(rates[activation]) * roof.hz,
            activation=activation,
            bytes_per_s=alone,
            readers=readers,
            shared_bytes_per_s=min(alone, left * own / readers),
        )

    def _readers(self, model: str) -> int:
        """Cores and closed-loop masters that may read at the same time, those of ``model`` included."""
        asked = {m for _, spec in parts_of(self.scenario) for m in models_of(spec)}
        cores = {core for m in {model, *asked} for core in self._cores(m)}
        return len(cores) + sum(m.window is not None for m in self.scenario.machine.masters.values())

    def _cores(self, model: str) -> tuple[str, ...]:
        """Cores that run a model at the same time: parts of a pipeline split, and cores of which any will do, no more
        than it ever has sequences."""
        spec = self.scenario.models[model]
        cores = self.scenario.machine.cores.names if spec.cores == ("any",) else spec.cores
        return cores if spec.split == "tensor" else cores[: sequences_most(self.scenario, model)]

    def _taken(self) -> float:
        """B/s that open-loop masters take first, on average."""
        masters = self.scenario.machine.masters.values()
        return sum(m.rate * (m.on / m.period if m.on and m.period else 1.0) for m in masters if m.window is None)


def models_of(spec: object) -> list[str]:
    """Models that a stream or stage asks."""
    return [m for m in (getattr(spec, "chat", None), getattr(spec, "frames", None)) if m is not None]
