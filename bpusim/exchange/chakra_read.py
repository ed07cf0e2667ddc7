"""A Chakra execution trace of one device as a trace.

Nodes run one after another, in an order that their dependencies allow, that of the file where it is one. A
``COMP_NODE`` is an op: on the CPU if ``is_cpu_op`` says so or is not there (as Chakra's own reader has it), else on the
array if it has ``num_ops``, else on the vector unit. A load goes to the first op that waits for it, a store to the op
it waits for; others are ops of the DMA. A duration is the op's whole time, as in a measured profile.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bpusim.errors import Place, Problem, TraceError
from bpusim.exchange.chakra_schema import NODE_TYPES, read_messages, value_of
from bpusim.exchange.chakra_write import COUNTS
from bpusim.exchange.measured import measured_cycles
from bpusim.exchange.table import MOST, unique
from bpusim.hardware import CoreSpec
from bpusim.trace import Header, Op, Phase, Tensor, Trace
from bpusim.trace.model import UNITS, Unit
from bpusim.trace.roofline import Roof

if TYPE_CHECKING:
    from bpusim.compiler.target import Target

__all__ = ["import_chakra"]

_COMP, _LOAD, _STORE, _META = (
    NODE_TYPES.index(n) for n in ("COMP_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "METADATA_NODE")
)
_HEADS = ("w:", "spill:", "io:")


@dataclass(slots=True)
class _Item:
    """A node with its attributes, and for an op the buffers that its loads and stores move."""

    node: Any
    attrs: dict[str, Any]
    read: dict[str, int] = field(default_factory=dict)
    write: dict[str, int] = field(default_factory=dict)

    @property
    def where(self) -> str:
        return f"node {self.node.id} '{self.node.name}'"


def import_chakra(
    path: Path, core: CoreSpec, roof: Roof, *, name: str | None = None, command: str = ""
) -> tuple[Trace, list[str]]:
    """(a trace of one phase, ``frame``; warnings of what the nodes do not say). Raises :class:`TraceError`."""
    from bpusim.compiler.target import Target

    metadata, nodes = read_messages(path)
    about = {a.name: value_of(a) for a in metadata.attr}
    place = Place(str(path))
    items = _ordered([_Item(n, {a.name: value_of(a) for a in n.attr}) for n in nodes], place)
    tensors: dict[str, Tensor] = {}
    made = _attached(items, tensors, place)
    ids = unique([i.node.name or f"node {i.node.id}" for i in made])
    warnings: list[str] = []
    ops = [_op(i, id_, roof, Target(core, "int8", 1), warnings, place) for i, id_ in zip(made, ids, strict=True)]
    work = sum({b: n for i in made for b, n in {**i.read, **i.write}.items() if not b.startswith("w:")}.values())
    header = Header(
        model=name or str(about.get("bpusim_model") or path.stem),
        target=_target(about, core),
        source={
            "file": path.name,
            "format": "chakra",
            "version": metadata.version,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            **({"position": about["bpusim_position"]} if "bpusim_position" in about else {}),
        },
        command=command,
        workspace=_count(about, "bpusim_workspace", work, place, "the metadata"),
    )
    return Trace(header, tuple(tensors.values()), {"frame": Phase("frame", 0, ("1",), tuple(ops))}), warnings


def _target(about: Mapping[str, Any], core: CoreSpec) -> dict[str, Any]:
    """What the cycles are for: the core of the trace that was exported, else this one."""
    try:
        target = json.loads(about.get("bpusim_target") or "null")
    except (ValueError, TypeError):
        target = None
    return target if isinstance(target, dict) else core.fingerprint()


def _ordered(items: Sequence[_Item], place: Place) -> list[_Item]:
    """Nodes so that each is behind what it depends on; those of the file's order that are free go first."""
    problems = []
    index = {i.node.id: k for k, i in enumerate(items)}
    if len(index) != len(items):
        raise TraceError("two nodes have the same id", place=place)
    for i in items:
        kind = i.node.type
        if kind not in (_COMP, _LOAD, _STORE, _META):
            name = NODE_TYPES[kind] if kind < len(NODE_TYPES) else str(kind)
            what = f"{i.where} is a {name}: this is a machine of one device, of compute and memory nodes"
            problems.append(Problem(what, place, "export the part of the trace that runs on one device"))
        lost = [d for d in (*i.node.data_deps, *i.node.ctrl_deps) if d not in index]
        if lost:
            problems.append(Problem(f"{i.where} depends on node {lost[0]}, which is not there", place))
    if problems:
        raise TraceError(problems)
    waits = [{index[d] for d in (*i.node.data_deps, *i.node.ctrl_deps)} for i in items]
    after: list[list[int]] = [[] for _ in items]
    for k, those in enumerate(waits):
        for d in those:
            after[d].append(k)
    left = [len(w) for w in waits]
    free = [k for k, n in enumerate(left) if not n]
    order: list[int] = []
    while free:
        k = heapq.heappop(free)
        order.append(k)
        for a in after[k]:
            left[a] -= 1
            if not left[a]:
                heapq.heappush(free, a)
    if len(order) != len(items):
        stuck = next(i for i, n in zip(items, left, strict=True) if n)
        raise TraceError(f"{stuck.where} waits for itself: its dependencies go in a circle", place=place)
    return [items[k] for k in order]


def _attached(items: Sequence[_Item], tensors: dict[str, Tensor], place: Place) -> list[_Item]:
    """The ops, with the buffers of their loads and stores; transfers that no op has a part in are ops themselves."""
    by_id = {i.node.id: i for i in items}
    reader: dict[int, _Item] = {}
    for i in items:
        if i.node.type == _COMP:
            for d in (*i.node.data_deps, *i.node.ctrl_deps):
                reader.setdefault(d, i)
    stored: dict[int, str] = {}
    made = []
    for i in items:
        kind, node = i.node.type, i.node
        if kind == _COMP:
            if size := _count(i.attrs, "tensor_size", 0, place, i.where):
                i.read[f"spill:{node.name or node.id}"] = size
            made.append(i)
        elif kind in (_LOAD, _STORE):
            size = _count(i.attrs, "tensor_size", 0, place, i.where)
            deps = [by_id[d] for d in (*node.data_deps, *node.ctrl_deps)]
            sources = [stored[d.node.id] for d in deps if d.node.id in stored]
            buffer = _buffer(i, sources[0] if kind == _LOAD and sources else f"spill:{node.name or node.id}")
            stored |= {node.id: buffer} if kind == _STORE else {}
            ops = [d for d in deps if d.node.type == _COMP]
            owner = reader.get(node.id) if kind == _LOAD else (ops[-1] if ops else None)
            if owner is None:
                owner = i
                made.append(i)
            side = owner.read if kind == _LOAD else owner.write
            side[buffer] = side.get(buffer, 0) + size
            if buffer.startswith("w:"):
                whole = _count(i.attrs, "bpusim_tensor_bytes", size, place, i.where)
                tensors[buffer] = Tensor(buffer[2:], whole, role=str(i.attrs.get("bpusim_role") or ""))
    return made


def _buffer(i: _Item, other: str) -> str:
    """What a transfer moves: as it was exported, else ``other``."""
    named = i.attrs.get("bpusim_buffer")
    good = isinstance(named, str) and (named == "kv" or any(named.startswith(h) and named != h for h in _HEADS))
    return str(named) if good else other


def _count(attrs: Mapping[str, Any], name: str, default: int, place: Place, where: str) -> int:
    """A whole number of zero or more."""
    value = attrs.get(name, default)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MOST:
        raise TraceError(f"{where}: {name} is {value!r}", place=place, do="give a whole number of zero or more")
    return value


def _op(i: _Item, id_: str, roof: Roof, target: Target, warnings: list[str], place: Place) -> Op:
    def count(name: str, default: int = 0) -> int:
        return _count(i.attrs, name, default, place, i.where)

    macs = -(-count("num_ops") // 2)
    unit = _unit(i, macs)
    moved = sum(i.read.values()) + sum(i.write.values())
    if moved >= MOST:
        raise TraceError(f"{i.where}: {moved} bytes are more than can be counted", place=place)
    costs = {c: count(f"bpusim_{c}") for c in COUNTS}
    if "bpusim_cycles" not in i.attrs and i.node.type == _COMP:
        ps = int(i.node.duration_micros) * 10**6
        cycles, _ = measured_cycles(ps, moved, macs, roof, roof.hz, on_cpu=unit == "cpu")
        if not ps and macs:
            cycles = -(-macs // roof.macs_per_cycle) if unit == "mac" else 0
            warnings.append(f"{place}: {i.where} has no duration: its {macs} MACs are done at the peak of this machine")
        if cycles >= MOST:
            raise TraceError(f"{i.where}: the duration is longer than can be counted", place=place)
        costs |= {"cycles": cycles, "mac_cycles": cycles if unit == "mac" else 0, "issued": macs}
    if "bpusim_tiles" not in i.attrs:
        from bpusim.compiler.dims import as_expr

        costs["tiles"] = int(target.tiles(as_expr(sum(i.read.values()))))
    vec = {n.removeprefix("bpusim_vec_"): count(n) for n in i.attrs if n.startswith("bpusim_vec_")}
    for c in vec:
        if c not in roof.cpu_cycles:
            raise TraceError(f"{i.where}: unknown class of vector work '{c}'", place=place)
    return Op(
        id=id_,
        type=str(i.attrs.get("bpusim_type") or "Measured"),
        unit=unit,
        macs=_coefs(macs),
        cycles=_coefs(costs["cycles"]),
        mac_cycles=_coefs(costs["mac_cycles"]),
        issued=_coefs(costs["issued"]),
        tiles=_coefs(costs["tiles"]) or (1,),
        scratch=_coefs(costs["scratch"]),
        vec={c: (n,) for c, n in vec.items()},
        read={b: (n,) for b, n in i.read.items()},
        write={b: (n,) for b, n in i.write.items()},
        tensors=count("bpusim_tensors"),
    )


def _unit(i: _Item, macs: int) -> Unit:
    named = i.attrs.get("bpusim_unit")
    known = next((u for u in UNITS if u == named), None)
    if known is not None:
        return known
    if i.node.type != _COMP:
        return "dma"
    return "cpu" if i.attrs.get("is_cpu_op", True) else "mac" if macs else "vector"


def _coefs(n: int) -> tuple[int, ...]:
    return (n,) if n else ()
