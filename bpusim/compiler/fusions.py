"""What a toolchain runs as one op beside convolutions: SwiGLU, attention, a sum with its normalisation.

Each finds its pattern among drafts, all of them on the core and their results within read by nobody else.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from bpusim.compiler.analyse import Draft
from bpusim.compiler.dims import as_expr
from bpusim.compiler.values import Cost
from bpusim.hardware.toolchain import Fusions

__all__ = ["fuse_patterns"]

_NORMS = {"LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"}
_PRODUCTS = {"MatMul", "FusedMatMul"}


class _Flow:
    """Who makes and who reads each tensor, by the place of the draft."""

    def __init__(self, drafts: list[Draft], outputs: Collection[str]) -> None:
        self.drafts = drafts
        self.maker = {o: j for j, d in enumerate(drafts) for o in d.outputs}
        self.readers: dict[str, set[int]] = {}
        for j, d in enumerate(drafts):
            for i in d.inputs:
                self.readers.setdefault(i, set()).add(j)
        for o in outputs:
            self.readers.setdefault(o, set()).add(-1)
        self.groups: dict[int, list[int]] = {}
        """Drafts that run as one, by the place of that one."""
        self.taken: set[int] = set()

    def only(self, tensor: str, *readers: int) -> bool:
        """Whether these alone read it."""
        return self.readers.get(tensor, set()) == set(readers)

    def plain(self, j: int | None, kinds: Collection[str]) -> bool:
        """Whether draft ``j`` is one op of these kinds, on the core, with one result, and in no group yet."""
        if j is None or j in self.taken:
            return False
        d = self.drafts[j]
        return not d.cpu and len(d.nodes) == 1 and len(d.outputs) == 1 and d.nodes[0].type in kinds

    def group(self, at: int, members: list[int]) -> None:
        self.groups[at] = members
        self.taken.update(members)


def fuse_patterns(drafts: list[Draft], outputs: Collection[str], fusions: Fusions) -> list[Draft]:
    """``drafts`` with the patterns that ``fusions`` names as one op each."""
    if not (fusions.swiglu or fusions.attention or fusions.norm_residual):
        return drafts
    flow = _Flow(drafts, outputs)
    for j in range(len(drafts)):
        if fusions.swiglu:
            _swiglu(flow, j)
        if fusions.attention:
            _attention(flow, j)
        if fusions.norm_residual:
            _norm_residual(flow, j)
    out: list[Draft] = []
    for j, d in enumerate(drafts):
        if j in flow.groups:
            out.append(_merged(flow, flow.groups[j]))
        elif j not in flow.taken:
            out.append(d)
    return out


def _merged(flow: _Flow, members: list[int]) -> Draft:
    """One draft of several in order; what only they read stays within. Vector work behind one product overlaps it."""
    parts = [flow.drafts[j] for j in members]
    gemms = [g for d in parts for g in d.cost.gemms]
    made = [o for d in parts for o in d.outputs]
    kept = [o for o in made if not flow.readers.get(o, {-1}) <= set(members)]
    first = parts[0].cost
    cost: Cost = replace(
        first,
        gemms=gemms,
        vec=[w for d in parts for w in d.cost.vec],
        weights=[w for d in parts for w in d.cost.weights],
        kv_read=sum((d.cost.kv_read for d in parts), as_expr(0)),
        kv_write=sum((d.cost.kv_write for d in parts), as_expr(0)),
        fused=bool(first.gemms) and len(gemms) == 1,
    )
    inputs = dict.fromkeys(i for d in parts for i in d.inputs if i not in made)
    return Draft([n for d in parts for n in d.nodes], cost, list(inputs), [*kept[-1:], *kept[:-1]])


def _swiglu(flow: _Flow, j: int) -> None:
    """``(g sigmoid(g)) u`` or ``silu(g) u``: joins the later of the products that make ``g`` and ``u``."""
    if not flow.plain(j, {"Mul"}) or len(flow.drafts[j].inputs) != 2:
        return
    for h, u in (flow.drafts[j].inputs, flow.drafts[j].inputs[::-1]):
        at = flow.maker.get(h)
        if at is None or not flow.only(h, j):
            continue
        if flow.plain(at, {"Silu", "Swish"}):
            g, gate = flow.drafts[at].inputs[0], [at]
        elif flow.plain(at, {"Mul"}) and len(flow.drafts[at].inputs) == 2:
            found = _gate(flow, at)
            if found is None:
                continue
            g, gate = found
        else:
            continue
        makers = [flow.maker.get(g), flow.maker.get(u)]
        if None in makers or not flow.only(g, *gate) or not flow.only(u, j):
            continue
        last = max(m for m in makers if m is not None)
        d = flow.drafts[last]
        if len(d.cost.gemms) == 1 and d.cost.gemms[0].stored and not d.cpu and last not in flow.taken:
            flow.group(last, [last, *gate, j])
            return


def _gate(flow: _Flow, at: int) -> tuple[str, list[int]] | None:
    """(``g``, its Sigmoid and its Mul) of ``g sigmoid(g)``."""
    for g, s in (flow.drafts[at].inputs, flow.drafts[at].inputs[::-1]):
        sigmoid = flow.maker.get(s)
        if sigmoid is None or not flow.plain(sigmoid, {"Sigmoid"}) or not flow.only(s, at):
            continue
        if flow.drafts[sigmoid].inputs == [g]:
            return g, [sigmoid, at]
    return None


def _attention(flow: _Flow, j: int) -> None:
    """Product, scale and mask, softmax, product."""
    if not flow.plain(j, {"Softmax"}):
        return
    readers = flow.readers.get(flow.drafts[j].outputs[0], set())
    end = next(iter(readers)) if len(readers) == 1 else None
    if not flow.plain(end, _PRODUCTS):
        return
    assert end is not None
    chain, at = [j, end], j
    while True:
        before = [m for i in flow.drafts[at].inputs if (m := flow.maker.get(i)) is not None and flow.only(i, at)]
        scaled = [m for m in before if flow.plain(m, {"Mul", "Div", "Add", *_PRODUCTS})]
        if len(scaled) != 1:
            return
        at = scaled[0]
        chain.insert(0, at)
        if flow.drafts[at].nodes[0].type in _PRODUCTS:
            break
    flow.group(end, chain)


def _norm_residual(flow: _Flow, j: int) -> None:
    """A sum and the normalisation that reads it; the sum may have other readers, and is a second result then."""
    if not flow.plain(j, _NORMS) or len(flow.drafts[j].inputs) != 1:
        return
    at = flow.maker.get(flow.drafts[j].inputs[0])
    if at is not None and flow.plain(at, {"Add"}):
        flow.group(at, [at, j])
