"""A KV cache that the graph itself joins: ``Concat`` of a past that comes in and new entries, given back as present.

The runtime keeps one buffer for both, as it does for ``GroupQueryAttention``: new entries are written behind the old
ones. What reads the result reads the old entries from the cache, and the new ones where they were made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bpusim.compiler.dims import Expr
from bpusim.compiler.graph import Graph, Node
from bpusim.compiler.rules import RULES
from bpusim.compiler.values import Context, Cost, VecWork

if TYPE_CHECKING:
    from bpusim.compiler.analyse import Analysis, Draft

__all__ = ["Appended", "append", "is_append", "join_appends", "read_appended"]

_PAST = "past_sequence_length"


@dataclass(frozen=True, slots=True)
class Appended:
    """What a joined cache is made of: how many old elements, and the tensor of the new ones."""

    past: Expr
    new: str


def is_append(node: Node, graph: Graph) -> bool:
    """Whether ``node`` joins a cache: an input that grows by steps, new entries behind it, the result given back."""
    if node.domain or node.type != "Concat" or len(node.inputs) != 2 or node.outputs[0] not in graph.outputs:
        return False
    dims, axis = graph.inputs.get(node.inputs[0], (0, ()))[1], node.attrs.get("axis", 1)
    return bool(-len(dims) <= axis < len(dims) and dims[axis] == _PAST)


def append(analysis: Analysis) -> Callable[[Context], Cost | None]:
    """The cost rule: the new entries are written. Sizes of the past that nobody bound are those of the new entries."""

    def rule(ctx: Context) -> Cost | None:
        name, new = ctx.node.inputs[0], ctx.value(1)
        for unbound, known in zip(ctx.value(0).dims, new.dims, strict=False):
            if len(unbound.terms) == 1 and _is_unbound(unbound) and not _is_unbound(known):
                _settle(analysis, unbound, known)
        past = analysis.values[name]
        ctx.inputs = [past, new]
        RULES["Concat"](ctx)
        analysis.caches[ctx.node.outputs[0]] = Appended(past.elements, new.storage)
        return Cost(
            vec=[VecWork({"convert": 1}, new.elements)],
            weights=ctx.part(new, new.elements),
            kv_write=new.elements,
            cache_inputs=(0,),
            cache_outputs=(0,),
        )

    return rule


def _is_unbound(size: Expr) -> bool:
    return any(t.startswith("?") for t in size.terms)


def _settle(analysis: Analysis, unbound: Expr, known: Expr) -> None:
    """Put ``known`` in the place of a size that nobody bound, in all that has been worked out so far."""
    for name, v in analysis.values.items():
        if unbound in v.dims or unbound in (v.const or ()):
            dims = tuple(known if d == unbound else d for d in v.dims)
            const = None if v.const is None else tuple(known if c == unbound else c for c in v.const)
            analysis.values[name] = replace(v, dims=dims, const=const)
    (term,) = unbound.terms
    analysis.notes.append(f"the size '{term[1:]}' of a cache is taken from the entries that join it: {known}")


def read_appended(inputs: list[str], cost: Cost, caches: dict[str, Appended]) -> None:
    """Charge what an op reads of joined caches: the old entries to the cache, the new ones to what made them."""
    for name in [i for i in inputs if i in caches]:
        cost.kv_read = cost.kv_read + caches[name].past
        at = inputs.index(name)
        inputs[at : at + 1] = [] if caches[name].new in inputs else [caches[name].new]


def join_appends(analysis: Analysis) -> None:
    """Make one op of the appends of a layer: those whose entries first meet in the same op, keys and values.

    A layer of the cache is one for the host, who hands its addresses over. The op stands where the last of them did.
    """
    if analysis.caches:
        what = "of a past and new entries: these are written behind it in one buffer, and nothing is copied"
        analysis.notes.append(f"{len(analysis.caches)} x Concat {what}")
    makers = {o: d for d in analysis.drafts for n in d.nodes for o in n.outputs if o in analysis.caches}
    carried: dict[str, frozenset[str]] = {}
    done: set[str] = set()
    for draft in list(analysis.drafts):
        sources = [analysis.values[i].storage or i for n in draft.nodes for i in n.needs if i in analysis.values]
        seen = frozenset(c for s in sources for c in ({s} if s in makers else carried.get(s, frozenset()))) - done
        if any(draft is d for d in makers.values()):  # what its entries are made of is of layers before
            done |= seen
        elif len(seen) > 1:
            done |= seen
            _join(analysis, [makers[c] for c in seen])
        elif seen:
            carried |= dict.fromkeys(draft.outputs, seen)


def _join(analysis: Analysis, parts: list[Draft]) -> None:
    places = sorted(next(j for j, d in enumerate(analysis.drafts) if d is p) for p in parts)
    drafts = [analysis.drafts[j] for j in places]
    if any(d.cpu for d in drafts):  # a call each
        return
    last = drafts[-1]
    last.nodes = [n for d in drafts for n in d.nodes]
    last.inputs = list(dict.fromkeys(i for d in drafts for i in d.inputs))
    last.cost = Cost(
        vec=[w for d in drafts for w in d.cost.vec],
        weights=[w for d in drafts for w in d.cost.weights],
        kv_write=sum((d.cost.kv_write for d in drafts[1:]), drafts[0].cost.kv_write),
        cache_inputs=(0,),
        cache_outputs=(0,),
    )
    for j in reversed(places[:-1]):
        del analysis.drafts[j]
