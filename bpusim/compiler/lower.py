"""Drafts become a phase of the trace: fusion, placement of activations, traffic, and folded layers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bpusim.compiler.analyse import Analysis, Draft
from bpusim.compiler.dims import Expr, as_expr
from bpusim.compiler.fold_layers import find_repeats
from bpusim.compiler.graph import ELEMENT_BITS, INTEGER, Node
from bpusim.compiler.quant import Plan, WeightUse
from bpusim.compiler.rules import RULES
from bpusim.compiler.rules.elementwise import ELEMENTWISE
from bpusim.compiler.target import Target
from bpusim.compiler.values import Cost
from bpusim.trace.model import Coefs, Op, Phase, Repeat

__all__ = ["Lowered", "fuse", "lower"]

_EPILOGUE = {"BatchNormalization", "Relu", "Clip", "LeakyRelu", "HardSwish", "HardSigmoid", "Sum", "Add", "Sigmoid", "Mul"}
"""Elementwise ops that toolchain 1.0 computes as a convolution's results leave the array."""

IN_PLACE = {*ELEMENTWISE, "Softmax", *(n for n in RULES if n.endswith("Normalization"))} - {"Where"}
"""Ops whose result may overwrite a same-sized input."""

_TERMS = ("1", "tokens", "kv", "tokens*kv", "tokens^2")


@dataclass(slots=True)
class Lowered:
    """A phase with what the header and the report need."""

    phase: Phase
    weights: dict[str, WeightUse]
    instances: dict[str, list[str]]
    """Name in the trace -> the stored tensors behind it (one per pass of a repeat)."""
    users: dict[str, list[str]]
    workspace: int
    kv_bytes_per_token: int
    spilled: list[str] = field(default_factory=list)


def fuse(drafts: list[Draft]) -> list[Draft]:
    """Merge normalisation, activation and residual addition into the convolution right before them.

    A batch norm's parameters fold into the convolution's weights and bias. Only where the convolution's result has no
    other reader and the other operands are already there.
    """
    readers: dict[str, int] = {}
    for d in drafts:
        for i in d.inputs:
            readers[i] = readers.get(i, 0) + 1
    out: list[Draft] = []
    for d in drafts:
        last = out[-1] if out else None
        if (
            last is not None and last.cost.fused and not last.cpu and not d.cpu and d.nodes[0].type in _EPILOGUE
            and len(last.outputs) == 1 and last.outputs[0] in d.inputs and readers[last.outputs[0]] == 1
        ):  # fmt: skip
            norm = d.nodes[0].type == "BatchNormalization"
            weights = list(last.cost.weights)
            vec = list(last.cost.vec)
            if norm and not any(u.role == "bias" for u, _ in weights):
                weights.append((replace(d.cost.weights[0][0], role="bias"), None))  # the folded shift, one a channel
            if not norm:
                weights += d.cost.weights
                vec += d.cost.vec
            others = [i for i in d.inputs if i != last.outputs[0]]
            out[-1] = Draft(
                [*last.nodes, *d.nodes],
                Cost(last.cost.gemms, vec, weights, fused=True),
                list(dict.fromkeys([*last.inputs, *others])),
                d.outputs,
            )
        else:
            out.append(d)
    return out


def lower(name: str, analysis: Analysis, drafts: list[Draft], plan: Plan, target: Target, tokens: int) -> Lowered:
    """Place activations, charge traffic, fold repeated layers."""
    drafts = _with_rope(drafts)
    sizes = _sizes(analysis, drafts, target)
    place = _Placement(drafts, sizes, analysis, target.core.activations)
    kv_bytes = 2 if plan.name != "keep" else ELEMENT_BITS[analysis.kv_dtype] // 8
    ops: list[_RawOp] = []
    weights: dict[str, WeightUse] = {}
    users: dict[str, list[str]] = {}
    kv_per_token = 0
    names = _op_names(drafts)
    for j, d in enumerate(drafts):
        read, write = place.traffic(j)
        for use, rows in d.cost.weights:
            weights.setdefault(use.tensor, use)
            if use.role in ("linear", "head") or weights[use.tensor].stored < use.stored:
                weights[use.tensor] = use
            users.setdefault(use.tensor, []).append(names[j])
            taken = as_expr(plan.bytes(use)) if rows is None else rows.padded(target.chunk) * plan.row_bytes(use)
            key = f"w:{use.tensor}"
            read[key] = read.get(key, as_expr(0)) + taken
        for use in d.cost.resident:
            users.setdefault(use.tensor, [])
        if d.cost.kv_read.terms:
            read["kv"] = d.cost.kv_read.padded(target.chunk) * kv_bytes
        if d.cost.kv_write.terms:
            write["kv"] = d.cost.kv_write.padded(target.chunk) * kv_bytes
            kv_per_token += d.cost.kv_write.terms.get("tokens", d.cost.kv_write.terms.get("1", 0)) * kv_bytes
        ops.append(_raw(d, names[j], read, write, place.live_bytes(j), place.crossing_tensors(j), target))
    phase, instances = _fold(name, ops, place, tokens)
    return Lowered(phase, weights, instances, users, place.workspace, kv_per_token, place.spilled)


def _with_rope(drafts: list[Draft]) -> list[Draft]:
    """A prologue that reads the RoPE rows of this step once; every layer uses them from the chip."""
    tables: dict[str, WeightUse] = {}
    for d in drafts:
        for use in d.cost.resident:
            tables.setdefault(use.tensor, use)
    if not tables:
        return drafts
    rows = next(w.rows for d in drafts if d.cost.resident for w in d.cost.vec if w.per.get("mul") == 2 and w.per.get("add") == 1)
    node = Node("RotaryRows", "", "rope", (), ("rope",), {})
    cost = Cost(weights=[(use, rows) for use in tables.values()])
    prologue = Draft([node], cost, [], ["rope"])
    return [prologue, *(replace(d, inputs=[*d.inputs, "rope"]) if d.cost.resident else d for d in drafts)]


def _sizes(analysis: Analysis, drafts: list[Draft], target: Target) -> dict[str, Expr]:
    """Padded bytes of every activation."""
    out: dict[str, Expr] = {}
    for d in drafts:
        for n in (*d.inputs, *d.outputs):
            if n == "rope":
                out[n] = sum((rows.padded(target.chunk) * (u.k * 2) for u, rows in d.cost.weights if rows is not None), as_expr(0)) if n in d.outputs else out[n]
                continue
            value = analysis.values[n]
            width = ELEMENT_BITS[value.dtype] // 8 if value.dtype in INTEGER else target.activation_bytes
            out[n] = value.elements.padded(target.chunk) * width
    return out


class _Placement:
    """Which activations stay on chip. Greedy in program order: a tensor stays if it fits beside those that live.

    An op that works element by element or row by row writes in place of an input that nobody reads after it.
    """

    def __init__(self, drafts: list[Draft], sizes: dict[str, Expr], analysis: Analysis, capacity: int) -> None:
        self.drafts, self.sizes = drafts, sizes
        self.made = {o: j for j, d in enumerate(drafts) for o in d.outputs}
        self.last = {i: j for j, d in enumerate(drafts) for i in d.inputs}
        self.graph_inputs = set(analysis.inputs)
        self.graph_outputs = set(analysis.outputs)
        segment, self.segment = 0, []
        for d in drafts:
            if d.cpu:
                segment += 1
            self.segment.append(segment)
            if d.cpu:
                segment += 1
        self.readers: dict[str, list[int]] = {}
        for j, d in enumerate(drafts):
            for i in d.inputs:
                self.readers.setdefault(i, []).append(j)
        self.on_chip: set[str] = set()
        self.spilled: list[str] = []
        self.workspace = 0
        self._live = [0] * len(drafts)
        self._place(capacity)

    def _place(self, capacity: int) -> None:
        live: dict[str, int] = {}
        off: dict[str, int] = {}
        for j, d in enumerate(self.drafts):
            for name in (*(i for i in d.inputs if i in self.graph_inputs and i not in live), *d.outputs):
                if name not in self.last and name not in self.graph_outputs:
                    continue
                size = self.sizes[name]
                users = self.readers.get(name, [])
                one_call = not d.cpu and all(self.segment[u] == self.segment[j] for u in users)
                dying = self._dies_in_place(j, name, live)
                taken = sum(live.values()) - (live[dying] if dying else 0)
                if users and one_call and size.is_const and taken + int(size) <= capacity:
                    if dying:
                        del live[dying]
                    live[name] = int(size)
                    self.on_chip.add(name)
                elif name not in off:
                    off[name] = int(size.terms.get("1", 0))
                    if name not in self.graph_inputs and name not in self.graph_outputs:
                        self.spilled.append(name)
            self._live[j] = sum(live.values())
            self.workspace = max(self.workspace, sum(off.values()))
            for table in (live, off):
                for name in [n for n in table if self.last.get(n, j) <= j and n not in self.graph_outputs]:
                    del table[name]

    def _dies_in_place(self, j: int, name: str, live: dict[str, int]) -> str | None:
        """An on-chip input of op ``j`` whose space output ``name`` may take over."""
        d = self.drafts[j]
        if d.cpu or name not in d.outputs or d.nodes[-1].type not in IN_PLACE:
            return None
        fresh = {o for o in d.outputs if o in live}
        for i in d.inputs:
            if i in live and i not in fresh and self.last[i] == j and self.sizes[i] == self.sizes[name]:
                return i
        return None

    def _buffer(self, name: str) -> str:
        return f"io:{name}" if name in self.graph_inputs or name in self.graph_outputs else f"spill:{name}"

    def traffic(self, j: int) -> tuple[dict[str, Expr], dict[str, Expr]]:
        """(reads, writes) of op ``j`` by buffer, activations only."""
        d = self.drafts[j]
        read: dict[str, Expr] = {}
        for i in d.inputs:
            first = self.readers[i][0] == j
            if i not in self.on_chip or (i in self.graph_inputs and first):
                read[self._buffer(i)] = self.sizes[i]
        write = {
            self._buffer(o): self.sizes[o]
            for o in d.outputs
            if (o in self.last and o not in self.on_chip) or o in self.graph_outputs
        }
        return read, write

    def live_bytes(self, j: int) -> int:
        """On-chip activations while op ``j`` runs."""
        return self._live[j]

    def crossing_tensors(self, j: int) -> int:
        """For a CPU op: tensors that the runtime hands over around it (its own, and those carried past it)."""
        if not self.drafts[j].cpu:
            return 0
        own = len(self.drafts[j].inputs) + len(self.drafts[j].outputs)
        past = [n for n, m in self.made.items() if m < j < self.last.get(n, -1) and n not in self.drafts[j].inputs]
        return own + len(past)

    def carry(self, at: int) -> tuple[Expr, int]:
        """(bytes, tensors) live between ops ``at - 1`` and ``at``."""
        names = [n for n, m in self.made.items() if m < at <= self.last.get(n, -1)]
        return sum((self.sizes[n] for n in names), as_expr(0)), len(names)


@dataclass(slots=True)
class _RawOp:
    """An op with costs as expressions, before the basis is known and layers are folded."""

    id: str
    draft: Draft
    macs: Expr
    cycles: Expr
    mac_cycles: Expr
    issued: Expr
    vec: dict[str, Expr]
    read: dict[str, Expr]
    write: dict[str, Expr]
    tiles: Expr
    scratch: int
    tensors: int

    @property
    def unit(self) -> str:
        if self.draft.cpu:
            return "cpu"
        return "mac" if self.draft.cost.gemms else "vector" if self.draft.cost.vec else "dma"

    def exprs(self) -> list[Expr]:
        return [self.macs, self.cycles, self.mac_cycles, self.issued, self.tiles, *self.vec.values(), *self.read.values(), *self.write.values()]


def _raw(
    d: Draft, name: str, read: dict[str, Expr], write: dict[str, Expr], scratch: int, tensors: int, target: Target
) -> _RawOp:
    macs = sum((g.macs for g in d.cost.gemms), as_expr(0))
    cycles, mac_cycles, issued, vec = target.compute(d.cost)
    if d.cpu:
        # The CPU works on floats: every element that comes in or goes out is converted.
        moved = sum((e for e in (*read.values(), *write.values())), as_expr(0))
        elements = Expr({t: c // target.activation_bytes for t, c in moved.terms.items()})
        vec = {**vec, "convert": vec.get("convert", as_expr(0)) + elements}
        issued, cycles, mac_cycles = sum((g.macs.padded(target.chunk) for g in d.cost.gemms), as_expr(0)), as_expr(0), as_expr(0)
    total = sum(read.values(), as_expr(0))
    return _RawOp(name, d, macs, cycles, mac_cycles, issued, vec, read, write, target.tiles(total), scratch, tensors)


def _op_names(drafts: list[Draft]) -> list[str]:
    """The tail of each node's path; unnamed nodes by their output."""
    out = []
    for d in drafts:
        node = d.nodes[0]
        parts = [p for p in (node.name or node.outputs[0]).split("/") if p]
        out.append("/".join(parts[-2:]) if len(parts) > 1 else (parts or [node.type])[0])
    return out


def _fold(name: str, ops: list[_RawOp], place: _Placement, tokens: int) -> tuple[Phase, dict[str, list[str]]]:
    makers = {o: j for j, op in enumerate(ops) for o in op.draft.outputs}
    shared = _use_counts(ops)
    signatures = [_signature(op, makers, shared) for op in ops]
    basis = _basis(ops, [place.carry(s + p)[0] for s, p, _ in find_repeats(signatures)])
    instances: dict[str, list[str]] = {}
    items: list[Op | Repeat] = []
    seen: dict[str, int] = {}
    at = 0
    for start, period, count in [*find_repeats(signatures), (len(ops), 0, 0)]:
        items.extend(_op(ops[j : j + 1], basis, instances, seen, ops, makers) for j in range(at, start))
        if count:
            body = [_op(ops[start + b : start + period * count : period], basis, instances, seen, ops, makers) for b in range(period)]
            carry, tensors = place.carry(start + period)
            label = "layers" if period > 1 else body[0].id
            items.append(Repeat(count, label, tuple(body), carry.coefs(basis), tensors))
        at = start + period * count
    return Phase(name, tokens, basis, tuple(items)), instances


def _use_counts(ops: list[_RawOp]) -> dict[str, int]:
    out: dict[str, int] = {}
    for op in ops:
        for use, _ in op.draft.cost.weights:
            out[use.tensor] = out.get(use.tensor, 0) + 1
    return out


def _signature(op: _RawOp, makers: dict[str, int], shared: dict[str, int]) -> tuple[object, ...]:
    """Equal for ops that cost the same and move the same bytes of the same kinds of buffers.

    Who made a spilled tensor is left out: the first layer reads the embedding where the others read their predecessor.
    """

    def key(buffer: str) -> object:
        head, _, rest = buffer.partition(":")
        if head == "w":
            return ("w", rest if shared[rest] > 1 else "")
        return (head, rest in makers or rest)

    def side(table: dict[str, Expr]) -> tuple[object, ...]:
        return tuple((key(b), e) for b, e in table.items())

    return (
        op.draft.type, op.unit, op.macs, op.cycles, op.mac_cycles, op.issued, tuple(op.vec.items()), side(op.read), side(op.write),
        op.tiles, op.tensors,
    )  # fmt: skip


def _basis(ops: list[_RawOp], extra: list[Expr]) -> tuple[str, ...]:
    used = {t for op in ops for e in op.exprs() for t in e.terms} | {t for e in extra for t in e.terms}
    ceil = sorted((t for t in used if t not in _TERMS), key=lambda t: int(re.findall(r"\d+", t)[0]))
    return ("1", *(t for t in _TERMS[1:] if t in used), *ceil)


def _op(
    passes: Sequence[_RawOp], basis: tuple[str, ...], instances: dict[str, list[str]], seen: dict[str, int],
    ops: list[_RawOp], makers: dict[str, int],
) -> Op:  # fmt: skip
    """One op line for one or more passes of a repeat; the second pass tells how passes are wired to each other."""
    op, wired = passes[0], passes[min(1, len(passes) - 1)]
    seen[op.id] = seen.get(op.id, 0) + 1
    ident = op.id if seen[op.id] == 1 else f"{op.id}#{seen[op.id]}"

    def rename(buffer: str, k: int) -> str:
        head, _, rest = buffer.partition(":")
        if head == "w":
            all_names = [list(p.read)[k].partition(":")[2] for p in passes]
            label = template(all_names) or f"{ident}[{len(passes)}]"
            instances[label] = list(dict.fromkeys(all_names))
            return f"w:{label}"
        return f"{head}:{ops[makers[rest]].id}" if rest in makers else buffer

    def side(table: dict[str, Expr]) -> dict[str, Coefs]:
        out: dict[str, Coefs] = {}
        for k, (b, e) in enumerate(table.items()):
            out[rename(b, k)] = e.coefs(basis)
        return out

    names: list[str] = []
    for n in range(len(op.draft.nodes)):
        every = [p.draft.nodes[n].name or p.draft.nodes[n].outputs[0] for p in passes]
        same = template(every)
        names.extend([same] if same else every)
    return Op(
        id=ident, type=op.draft.type, unit=op.unit, nodes=tuple(names),  # type: ignore[arg-type]
        macs=op.macs.coefs(basis), issued=op.issued.coefs(basis), cycles=op.cycles.coefs(basis),
        mac_cycles=op.mac_cycles.coefs(basis), vec={c: e.coefs(basis) for c, e in op.vec.items()},
        read=side(wired.read), write=side(wired.write), tiles=op.tiles.coefs(basis),
        scratch=as_expr(max(p.scratch for p in passes)).coefs(basis),
        tensors=op.tensors,
    )  # fmt: skip


def template(names: Sequence[str]) -> str | None:
    """One name for all: themselves if equal, else with ``{i}`` (or ``{i+n}``) for a number that counts up; else None."""
    if len(set(names)) == 1:
        return names[0]
    parts = [re.split(r"(\d+)", n) for n in names]
    if len({len(p) for p in parts}) != 1:
        return None
    out = []
    for column in zip(*parts, strict=True):
        if len(set(column)) == 1:
            out.append(column[0])
            continue
        if not all(c.isdigit() for c in column) or [int(c) for c in column] != list(range(int(column[0]), int(column[0]) + len(names))):
            return None
        out.append("{i}" if int(column[0]) == 0 else f"{{i+{int(column[0])}}}")
    return "".join(out)


