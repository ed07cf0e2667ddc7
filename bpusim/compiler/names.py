"""Names that stand for all passes of a repeated layer: of ops, weights and activations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bpusim.compiler.repeats import Run
from bpusim.trace.model import Coefs, Op

if TYPE_CHECKING:
    from bpusim.compiler.dims import Expr
    from bpusim.compiler.layers import RawOp

__all__ = ["Namer", "template"]


class Namer:
    """Gives ops and buffers names that stand for all passes of a repeat and never for two different things."""

    def __init__(self, ops: list[RawOp], runs: Sequence[Run], makers: dict[str, int]) -> None:
        self.ops, self.makers = ops, makers
        self.instances: dict[str, list[str]] = {}
        first = list(range(len(ops)))
        for start, period, count in runs:
            for j in range(start, start + period * count):
                first[j] = start + (j - start) % period
        seen: dict[str, int] = {}
        self.idents: list[str] = []
        for j, op in enumerate(ops):
            if first[j] != j:
                self.idents.append(self.idents[first[j]])
                continue
            seen[op.id] = seen.get(op.id, 0) + 1
            self.idents.append(op.id if seen[op.id] == 1 else f"{op.id}#{seen[op.id]}")
        self.called: dict[str, str] = {}
        """Results with another name than their own, by their own."""
        self._call_carried(runs)

    def _own(self, tensor: str) -> str:
        """A result by the op that makes it, and which of its results it is."""
        j = self.makers[tensor]
        which = self.ops[j].draft.outputs.index(tensor)
        return self.idents[j] + (f".{which}" if which else "")

    def _name(self, own: str) -> str:
        while own in self.called:
            own = self.called[own]
        return own

    def _call_carried(self, runs: Sequence[Run]) -> None:
        """What an op of a repeat reads in one place, whatever made it in each pass, has one name: that of the first.

        So the first pass reads what was written ahead of the repeat, and the others what the pass before them wrote,
        under a name that was written.
        """
        order: dict[str, int] = {}
        for j, op in enumerate(self.ops):
            for o in op.draft.outputs:
                order.setdefault(self._own(o), j)
        for start, period, count in runs:
            for b in range(start, start + period):
                for column in zip(*(op.read for op in self.ops[b : start + period * count : period]), strict=True):
                    parts = [buffer.partition(":") for buffer in column]
                    tensors = [rest for head, _, rest in parts if head != "w" and rest in self.makers]
                    names = {self._name(self._own(t)) for t in tensors}
                    first = min(names, key=lambda n: order[n], default="")
                    self.called |= dict.fromkeys(names - {first}, first)

    def weight(self, names: list[str], ident: str) -> str:
        """A label for the stored tensors ``names``, one per pass."""
        label = template(names) or f"{ident}[{len(names)}]"
        distinct = list(dict.fromkeys(names))
        base, n = label, 1
        while self.instances.get(label, distinct) != distinct:
            n += 1
            label = f"{base}#{n}"
        self.instances[label] = distinct
        return label

    def activation(self, buffer: str) -> str:
        """A spilled or input/output tensor by the op that makes it, or made the first of those behind it."""
        head, _, rest = buffer.partition(":")
        return f"{head}:{self._name(self._own(rest))}" if rest in self.makers else buffer

    def op(self, passes: Sequence[RawOp], at: int, basis: tuple[str, ...]) -> Op:
        """One op line for one or more passes of a repeat; the second tells how passes are wired to each other."""
        op, wired = passes[0], passes[min(1, len(passes) - 1)]
        ident = self.idents[at]

        def side(tables: list[dict[str, Expr]], own: dict[str, Expr]) -> dict[str, Coefs]:
            out: dict[str, Coefs] = {}
            for k, (buffer, e) in enumerate(own.items()):
                if buffer.startswith("w:"):
                    label = "w:" + self.weight([list(t)[k].partition(":")[2] for t in tables], ident)
                else:
                    label = self.activation(buffer)
                    while label in out:  # results of two passes of one repeat
                        label += "'"
                out[label] = e.coefs(basis)
            return out

        names: list[str] = []
        for n in range(len(op.draft.nodes)):
            every = [p.draft.nodes[n].name or p.draft.nodes[n].outputs[0] for p in passes]
            same = template(every)
            names.extend([same] if same else every)
        return Op(
            id=ident,
            type=op.draft.type,
            unit=op.unit,
            nodes=tuple(names),
            macs=op.macs.coefs(basis),
            issued=op.issued.coefs(basis),
            cycles=op.cycles.coefs(basis),
            mac_cycles=op.mac_cycles.coefs(basis),
            vec={c: e.coefs(basis) for c, e in op.vec.items()},
            read=side([p.read for p in passes], wired.read),
            write=side([p.write for p in passes], wired.write),
            tiles=op.tiles.coefs(basis),
            scratch=max((p.scratch.coefs(basis) for p in passes), key=sum),
            tensors=op.tensors,
        )


def template(names: Sequence[str]) -> str | None:
    """One name for all: themselves if equal, or with ``{i}`` (``{i+n}``) for a number that counts up; else None."""
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
        if not all(c.isdigit() for c in column) or [int(c) for c in column] != list(
            range(int(column[0]), int(column[0]) + len(names))
        ):
            return None
        out.append("{i}" if int(column[0]) == 0 else f"{{i+{int(column[0])}}}")
    return "".join(out)
