"""What differs between two traces: header, tensors, and every op at one position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from bpusim.ports import BUFFER_KINDS
from bpusim.trace.model import Coefs, Header, Trace
from bpusim.trace.roofline import OpRow, Position, Roof, folded, op_rows, totals

__all__ = ["difference"]

_ASIDE = {"command", "source", "report"}
"""Of the header: how a trace was made, not what it is."""
_FIGURES = ("type", "unit", "count", "macs", "cycles", *(f"{k}_bytes" for k in BUFFER_KINDS), "written_bytes")


def difference(
    a: Trace, b: Trace, roof: Roof, *, phase: str | None = None, kv: int = 0, batch: int = 1
) -> list[dict[str, Any]]:
    """From ``a`` to ``b``, at ``kv`` cache entries, in ``phase`` or in all: rows of ``what`` (``header``, ``tensors``,
    ``PHASE: OP``, ``PHASE: total``), ``figure``, ``before``, ``after``. Raises :class:`TraceError`."""
    rows = _table("header", _header(a.header), _header(b.header))
    rows += _table("tensors", _tensors(a), _tensors(b))
    names = list(dict.fromkeys([*a.phases, *b.phases])) if phase is None else [phase]
    for name in names:
        if phase is not None or (name in a.phases and name in b.phases):
            rows += _phase(a, b, name, roof, kv, batch)
        else:
            rows += _table(name, {"phase": "there" if name in a.phases else None},
                           {"phase": "there" if name in b.phases else None})  # fmt: skip
    return rows


def _table(what: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"what": what, "figure": k, "before": a.get(k), "after": b.get(k)}
        for k in dict.fromkeys([*a, *b])
        if a.get(k) != b.get(k)
    ]


def _header(h: Header) -> dict[str, Any]:
    """Flat."""
    out: dict[str, Any] = {}
    for f in fields(Header):
        value = getattr(h, f.name)
        if isinstance(value, Mapping):
            out |= {f"{f.name}.{k}": v for k, v in value.items()} if f.name not in _ASIDE else {}
        elif f.name not in _ASIDE:
            out[f.name] = list(value) if isinstance(value, tuple) else value
    return out


def _tensors(trace: Trace) -> dict[str, int]:
    return {"number": sum(t.count for t in trace.tensors), "resident_bytes": trace.resident_bytes}


def _phase(a: Trace, b: Trace, name: str, roof: Roof, kv: int, batch: int) -> list[dict[str, Any]]:
    at = [Position.of(t, name, kv, batch=batch) for t in (a, b)]
    lists = [op_rows(t, p, roof) for t, p in zip((a, b), at, strict=True)]
    before, after = (dict(zip(_names([r.op for r in rows]), rows, strict=True)) for rows in lists)
    elsewhere = [_costs(t, name) for t in (a, b)]
    empty = [{"empty cache": t.phase(name).empty_cache or None} for t in (a, b)]
    out = _table(name, *empty)
    for op in dict.fromkeys([*before, *after]):
        what = f"{name}: {op}"
        if op not in before or op not in after:
            row = before.get(op) or after[op]
            figures = {"op": f"{row.unit}, {row.count} times"}
            out += _table(what, figures if op in before else {}, figures if op in after else {})
            continue
        here = _table(what, _figures(before[op]), _figures(after[op]))
        if not here and elsewhere[0].get(op) != elsewhere[1].get(op):
            here = _table(what, {"costs elsewhere": "as here"}, {"costs elsewhere": "differ"})
        out += here
    return out + _table(f"{name}: total", *(_whole(rows) for rows in lists))


def _names(ops: Sequence[str]) -> list[str]:
    """Names of ops in order, told apart where they come again."""
    seen: dict[str, int] = {}
    out = []
    for op in ops:
        seen[op] = seen.get(op, 0) + 1
        out.append(op if seen[op] == 1 else f"{op} ({seen[op]})")
    return out


def _figures(row: OpRow) -> dict[str, Any]:
    flat = row.to_dict()
    return {k: flat[k] for k in _FIGURES}


def _whole(rows: list[OpRow]) -> dict[str, Any]:
    return {k: v for k, v in totals(rows).items() if k not in ("operations_per_byte", "compute_us", "dram_us")}


def _costs(trace: Trace, phase: str) -> dict[str, Any]:
    """All costs of every op by term of the basis, zeros left out."""
    basis = trace.phase(phase).basis
    ops = [f.op for f in folded(trace, phase)]
    out: dict[str, Any] = {}
    for name, op in zip(_names([op.id for op in ops]), ops, strict=True):
        tables: dict[str, Mapping[str, Coefs]] = {
            "": {k: getattr(op, k) for k in ("macs", "issued", "cycles", "mac_cycles", "tiles", "scratch")},
            "vec ": op.vec,
            "read ": op.read,
            "write ": op.write,
        }
        found = {
            (head + key, term): c
            for head, table in tables.items()
            for key, coefs in table.items()
            for term, c in zip(basis, coefs, strict=False)
            if c
        }
        out[name] = (found, op.tensors)
    return out
