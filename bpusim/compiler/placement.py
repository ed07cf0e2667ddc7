"""Where activations live: on the chip while they fit, else in DRAM, and the traffic that follows."""

from __future__ import annotations

from itertools import accumulate

from bpusim.compiler.analyse import Analysis, Draft
from bpusim.compiler.dims import Expr, as_expr
from bpusim.compiler.rules import RULES
from bpusim.compiler.rules.elementwise import ELEMENTWISE
from bpusim.compiler.target import Target
from bpusim.trace.basis import dot, evaluator

__all__ = ["Placement"]

IN_PLACE = {*ELEMENTWISE, "Softmax", *(n for n in RULES if n.endswith("Normalization"))} - {"Where"}
"""Ops whose result may overwrite a same-sized input."""


class Placement:
    """Which activations stay on chip. Greedy in program order: a tensor stays if it fits beside those that live, one
    that grows with the cache if it does when the cache is full.

    An op that works element by element or row by row writes in place of an input that nobody reads after it.
    """

    def __init__(self, drafts: list[Draft], sizes: dict[str, Expr], analysis: Analysis, target: Target) -> None:
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
        self._carried: list[tuple[Expr, int]] = []
        self._place(target.core.activations, target.context)

    def _place(self, capacity: int, context: int) -> None:
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
                full = dot([*size.terms.values()], evaluator([*size.terms])((context,), 1))
                if users and one_call and taken + full <= capacity:
                    if dying:
                        del live[dying]
                    live[name] = full
                    self.on_chip.add(name)
                elif name not in off:
                    off[name] = full
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
        if not self._carried:
            self._sweep()
        return self._carried[at]

    def _sweep(self) -> None:
        """(bytes, tensors) live before every op, in one pass."""
        size, count = [as_expr(0)] * (len(self.drafts) + 1), [0] * (len(self.drafts) + 1)
        for name, made in self.made.items():
            last = self.last.get(name, -1)
            if made < last:
                size[made + 1] += self.sizes[name]
                size[last + 1] -= self.sizes[name]
                count[made + 1] += 1
                count[last + 1] -= 1
        self._carried = list(zip(accumulate(size), accumulate(count), strict=True))
