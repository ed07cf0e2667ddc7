"""The compiled op trace: what a model costs on one target, independent of clock, DRAM, host and heat."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from bpusim.errors import TraceError
from bpusim.ports import BufferKind
from bpusim.trace.basis import evaluator

if TYPE_CHECKING:
    from bpusim.trace.program import CallProgram, Program
    from bpusim.trace.table import PhaseTable

__all__ = ["SCHEMA_VERSION", "UNITS", "Coefs", "Header", "Op", "Phase", "Repeat", "Tensor", "Trace", "buffer_kind"]

SCHEMA_VERSION = 1

Coefs = tuple[int, ...]
"""Coefficients over the phase's basis; missing ones are zero."""

Unit = Literal["mac", "vector", "dma", "cpu"]
UNITS: tuple[Unit, ...] = ("mac", "vector", "dma", "cpu")


def buffer_kind(buffer: str) -> BufferKind:
    """Kind of a buffer by its name: ``w:TENSOR``, ``kv``, ``spill:NAME`` or ``io:NAME``."""
    head = buffer.partition(":")[0]
    kinds: dict[str, BufferKind] = {"w": "weights", "kv": "kv", "spill": "spill", "io": "io"}
    return kinds[head]


@dataclass(frozen=True, slots=True)
class Op:
    """One op in program order.

    ``macs`` are useful multiply-accumulates (real tokens), ``issued`` those the array works through (padded chunk,
    rounded edges). ``cycles`` is the op's compute time in core cycles, ``mac_cycles`` the array's part of it; of a
    cpu op, measured cycles of a CPU core beside those of its elements. ``vec`` counts vector elements by class.
    ``read`` and ``write`` are DRAM bytes by buffer; ``tiles`` the pieces in which the DMA fetches the reads;
    ``scratch`` bytes of activations live on chip while it runs. ``tensors`` (cpu ops) counts the tensors that cross
    between accelerator and CPU around it.
    """

    id: str
    type: str
    unit: Unit
    nodes: tuple[str, ...] = ()
    macs: Coefs = ()
    issued: Coefs = ()
    cycles: Coefs = ()
    mac_cycles: Coefs = ()
    vec: Mapping[str, Coefs] = field(default_factory=dict)
    read: Mapping[str, Coefs] = field(default_factory=dict)
    write: Mapping[str, Coefs] = field(default_factory=dict)
    tiles: Coefs = (1,)
    scratch: Coefs = ()
    tensors: int = 0


@dataclass(frozen=True, slots=True)
class Repeat:
    """``count`` equal passes over ``body``. ``carry`` is the bytes live from one pass to the next, in
    ``carry_tensors`` tensors: what a split between two passes hands over."""

    count: int
    name: str
    body: tuple[Op, ...]
    carry: Coefs = ()
    carry_tensors: int = 0


@dataclass(frozen=True, slots=True)
class Phase:
    """Ops in program order for one way of running the model. ``tokens`` is the chunk that padded costs assume;
    ``empty_cache``: it holds for the first tokens of a sequence only, as some graphs' masks do."""

    name: str
    tokens: int
    basis: tuple[str, ...]
    items: tuple[Op | Repeat, ...]
    empty_cache: bool = False

    def ops(self) -> Iterator[Op]:
        """Every op once, repeated bodies not unrolled."""
        for item in self.items:
            if isinstance(item, Repeat):
                yield from item.body
            else:
                yield item

    def cache(self) -> tuple[int, int]:
        """(ops that write the KV cache, bytes they write for one token), repeats unrolled."""
        layers, written = 0, 0
        at = evaluator(self.basis)((0,), 1)
        for item in self.items:
            body, count = (item.body, item.count) if isinstance(item, Repeat) else ((item,), 1)
            layers += count * sum("kv" in op.write for op in body)
            rows = [op.write["kv"] for op in body if "kv" in op.write]
            written += count * sum(c * v for row in rows for c, v in zip(row, at, strict=False))
        return layers, written


@dataclass(frozen=True, slots=True)
class Tensor:
    """A weight tensor: stored bytes, how many alike (``{i}`` in the name), and who uses it when it is tied."""

    name: str
    bytes: int
    count: int = 1
    role: str = ""
    shared_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Header:
    """What the whole trace says of itself."""

    model: str
    target: Mapping[str, Any]
    source: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""
    cores: str | tuple[int, ...] = "any"
    quant: Mapping[str, str] = field(default_factory=dict)
    context: int = 0
    chunk: int = 0
    kv: Literal["valid", "capacity"] = "valid"
    kv_bytes_per_token: int = 0
    layers: int = 0
    vocab: int = 0
    workspace: int = 0
    report: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Trace:
    """A compiled model. Treat it as read-only; ``file`` is where it was read from, for messages."""

    header: Header
    tensors: tuple[Tensor, ...]
    phases: Mapping[str, Phase]
    file: str = ""
    _tables: dict[str, PhaseTable] = field(default_factory=dict, repr=False, compare=False)

    @property
    def resident_bytes(self) -> int:
        """Bytes of weights in memory: each unique tensor once."""
        return sum(t.bytes * t.count for t in self.tensors)

    def phase(self, name: str) -> Phase:
        """The phase called ``name``; :class:`TraceError` names those there are."""
        try:
            return self.phases[name]
        except KeyError:
            known = ", ".join(self.phases)
            raise TraceError(f"{self.file or self.header.model} has no phase '{name}'", do=f"it has: {known}") from None

    def table(self, phase: str) -> PhaseTable:
        """The phase's coefficients as arrays, made once."""
        if phase not in self._tables:
            from bpusim.trace.table import PhaseTable

            self._tables[phase] = PhaseTable.build(self.phase(phase), self._capacity())
        return self._tables[phase]

    def _capacity(self) -> int | None:
        """Bytes of activations that its core keeps on chip, if it says so."""
        size = self.header.target.get("activations")
        return int(str(size).partition(" ")[0]) if size is not None else None

    def calls(self, phase: str, kvs: Sequence[int]) -> list[CallProgram]:
        """The one call of a token's ``phase`` at each of these positions, as ``bind`` makes them one by one."""
        return self.table(phase).calls(self._read(kvs, self.phase(phase).tokens), 1)

    def bind(self, phase: str, *, kv: int | tuple[int, ...] = 0, tokens: int = 1) -> Program:
        """The phase at one position: ``kv`` cache entries before the step and ``tokens`` real tokens.

        ``kv`` of several sequences makes one step for all of them: it reads the weights once, each one's cache, and
        ``tokens`` tokens of each. With ``kv: capacity`` in the header the graph is static and reads its whole compiled
        cache. Raises :class:`TraceError` for an unknown phase, more tokens than its chunk, or more sequences than its
        costs are known for, and for entries before a phase that holds over an empty cache only.
        """
        kvs = kv if isinstance(kv, tuple) else (kv,)
        found = self.phase(phase)
        chunk = found.tokens
        if tokens > chunk > 0:
            raise TraceError(
                f"{tokens} tokens do not fit the {chunk} of phase '{phase}'", do="bind one chunk at a time"
            )
        if found.empty_cache and any(kvs):
            raise TraceError(
                f"phase '{phase}' holds over an empty cache only, not behind {max(kvs)} entries",
                do="read the whole prompt in one chunk: compile the model with a longer --chunk",
            )
        return (self._tables.get(phase) or self.table(phase)).bind(self._read(kvs, chunk), tokens)

    def _read(self, kvs: Sequence[int], chunk: int) -> tuple[int, ...]:
        """How many cache entries before a step are read where there are so many."""
        if self.header.kv == "capacity":
            return (max(self.header.context - chunk, 0),) * len(kvs)
        return tuple(kvs)

    def split(self, parts: int | Sequence[int]) -> tuple[Trace, ...]:
        """Cut between layers: into ``parts`` even pieces, or pieces of the given numbers of layers.

        The pieces sum to the whole but for the hand-over: each piece but the last writes the live activations,
        each but the first reads them. Raises :class:`TraceError` when there are not that many layers.
        """
        depths = {max((i.count for i in p.items if isinstance(i, Repeat)), default=0) for p in self.phases.values()}
        total = max(depths, default=0)
        if isinstance(parts, int):
            counts = [total * (k + 1) // parts - total * k // parts for k in range(parts)]
        else:
            counts = list(parts)
        if len(depths) != 1 or sum(counts) != total or min(counts, default=0) < 1:
            what = f"cannot split {self.header.model} into {counts} layers"
            if len(depths) != 1:
                has = " and ".join(str(d) for d in sorted(depths))
                raise TraceError(
                    f"{what}: its phases have {has} repeated layers", do="only equal ones are cut together"
                )
            raise TraceError(
                f"{what}: it has {total} repeated layers",
                do=f"give one number of layers per core, {total} in all"
                if total
                else "only models with repeated layers split",
            )
        cut = {name: _split_phase(phase, counts) for name, phase in self.phases.items()}
        layered = {b for p in self.phases.values() for op in _main(p).body for b in op.read}
        out = []
        for k, layers in enumerate(counts):
            phases = {name: replace(self.phases[name], items=pieces[k]) for name, pieces in cut.items()}
            used = {b for p in phases.values() for op in p.ops() for b in op.read}
            tensors = tuple(
                replace(t, count=layers) if t.count == total and f"w:{t.name}" in layered else t
                for t in self.tensors
                if f"w:{t.name}" in used
            )
            deep, kv = phases["decode"].cache() if "decode" in phases else (layers, 0)
            header = replace(self.header, model=f"{self.header.model}[{k}]", layers=deep, kv_bytes_per_token=kv)
            out.append(Trace(header, tensors, phases, self.file))
        return tuple(out)


def _main(phase: Phase) -> Repeat:
    return max((i for i in phase.items if isinstance(i, Repeat)), key=lambda r: r.count)


def _split_phase(phase: Phase, counts: Sequence[int]) -> list[tuple[Op | Repeat, ...]]:
    main = _main(phase)
    at = phase.items.index(main)
    buffer = "io:handover"
    give = Op("handover_out", "Handover", "dma", write={buffer: main.carry}, tensors=main.carry_tensors)
    take = Op("handover_in", "Handover", "dma", read={buffer: main.carry}, tensors=main.carry_tensors)
    pieces: list[tuple[Op | Repeat, ...]] = []
    for k, count in enumerate(counts):
        head: tuple[Op | Repeat, ...] = phase.items[:at] if k == 0 else (take,)
        tail: tuple[Op | Repeat, ...] = phase.items[at + 1 :] if k == len(counts) - 1 else (give,)
        pieces.append((*head, replace(main, count=count), *tail))
    return pieces
