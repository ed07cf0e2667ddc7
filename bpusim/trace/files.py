"""Trace files: JSON Lines, one op a line, so that a line number is a position.

A header line, tensor lines, then phases of op lines with ``{"repeat":36}`` ... ``{"end":"repeat"}`` around repeated
layers, and a last line with the line count, so that truncation is seen. The reader refuses what it does not know.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from bpusim.errors import Place, Problem, TraceError, did_you_mean
from bpusim.trace.basis import is_term
from bpusim.trace.model import SCHEMA_VERSION, UNITS, Coefs, Header, Op, Phase, Repeat, Tensor, Trace

__all__ = ["dump_trace", "load_trace", "save_trace"]

_HEADER = {"bpusim_trace", *(f.name for f in fields(Header))}
_TENSOR = {"tensor", "bytes", "count", "role", "shared_by"}
_PHASE = {"phase", "tokens", "basis", "empty_cache"}
_REPEAT = {"repeat", "name", "carry", "carry_tensors"}
_OP = {
    "op",
    "type",
    "nodes",
    "unit",
    "macs",
    "issued",
    "cycles",
    "mac_cycles",
    "vec",
    "read",
    "write",
    "tiles",
    "scratch",
    "tensors",
}
_MOST = 10_000
"""Passes of a repeat: far more layers than any model has."""
_SHARED = 16
"""Traces that are kept for the next scenario of this process: with their tables a megabyte or less each."""
_COEFS = ("macs", "issued", "cycles", "mac_cycles", "tiles", "scratch")


def dump_trace(trace: Trace) -> Iterator[str]:
    """The lines of a trace file."""
    h = trace.header
    head: dict[str, Any] = {"bpusim_trace": SCHEMA_VERSION, "model": h.model}
    plain = Header(model="", target={})
    for key in (f.name for f in fields(Header) if f.name != "model"):
        value = getattr(h, key)
        if value != getattr(plain, key) or key in ("target", "cores", "kv"):
            head[key] = value
    lines: list[dict[str, Any]] = [head]
    for t in trace.tensors:
        row: dict[str, Any] = {"tensor": t.name, "bytes": t.bytes}
        row |= {"count": t.count} if t.count != 1 else {}
        row |= {"role": t.role} if t.role else {}
        row |= {"shared_by": t.shared_by} if t.shared_by else {}
        lines.append(row)
    for phase in trace.phases.values():
        row = {"phase": phase.name, "tokens": phase.tokens, "basis": phase.basis}
        lines.append(row | ({"empty_cache": True} if phase.empty_cache else {}))
        for item in phase.items:
            if isinstance(item, Repeat):
                lines.append(
                    {"repeat": item.count, "name": item.name, "carry": item.carry, "carry_tensors": item.carry_tensors}
                )
                lines.extend(_op_line(op) for op in item.body)
                lines.append({"end": "repeat"})
            else:
                lines.append(_op_line(item))
        lines.append({"end": "phase"})
    lines.append({"end": "trace", "lines": len(lines) + 1})
    return (json.dumps(line, separators=(",", ":"), ensure_ascii=False) for line in lines)


def _op_line(op: Op) -> dict[str, Any]:
    row: dict[str, Any] = {"op": op.id, "type": op.type, "unit": op.unit}
    if op.nodes:
        row["nodes"] = op.nodes
    for key in _COEFS:
        value = getattr(op, key)
        if value and not (key == "tiles" and value == (1,)):
            row[key] = value
    for key in ("vec", "read", "write"):
        if table := getattr(op, key):
            row[key] = table
    if op.tensors:
        row["tensors"] = op.tensors
    return row


def save_trace(trace: Trace, path: Path) -> None:
    """Write ``trace`` to ``path``; an existing file is replaced only when all is written."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", text=True)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.writelines(line + "\n" for line in dump_trace(trace))
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load_trace(path: str | Path, *, shared: bool = False) -> Trace:
    """Read and check a trace file. Raises :class:`TraceError` with file and line of what is wrong.

    ``shared``: the same object as before if the file still says the same, with all that has been worked out of it.
    """
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as e:
        raise TraceError(f"cannot read the trace: {e.strerror}", place=Place(str(path))) from None
    except UnicodeDecodeError:
        raise TraceError("not a trace: the file is not UTF-8 text", place=Place(str(path))) from None
    return _shared(str(path), text) if shared else _Reader(str(path), text).read()


# NOTE: for speed. Points of a study run the same few traces. By text: a time stamp may stay when a file changes.
@lru_cache(maxsize=_SHARED)
def _shared(file: str, text: str) -> Trace:
    return _Reader(file, text).read()


class _Reader:
    """One pass over the lines of a file."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.lines = text.split("\n")
        self.whole = self.lines[-1] == ""
        if self.whole:
            self.lines.pop()
        self.line = 0
        self.basis: tuple[str, ...] = ()
        self.tensors: dict[str, Tensor] = {}

    def fail(self, what: str, do: str = "", line: int | None = None) -> NoReturn:
        at = self.line if line is None else line
        raise TraceError(Problem(what, Place(self.file, at), do or "compile the model again"))

    def next(self) -> dict[str, Any]:
        if self.line >= len(self.lines):
            self.fail("the trace ends here without its last line: it was cut short", "copy or compile it again")
        raw = self.lines[self.line]
        self.line += 1
        try:
            row = json.loads(
                raw,
                parse_constant=lambda name: self.fail(f"'{name}' is not a number here"),
                object_pairs_hook=self.unique,
            )
        except (ValueError, RecursionError):  # not JSON, a number of thousands of digits, or endless nesting
            if self.line == len(self.lines) and not self.whole:
                self.fail("the trace is cut short in this line", "copy or compile it again")
            self.fail("not a line of JSON" if self.line > 1 else "not a trace: the first line is not JSON")
        if not isinstance(row, dict):
            self.fail("not a JSON object")
        return row

    def unique(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        row = dict(pairs)
        if len(row) != len(pairs):
            keys = [k for k, _ in pairs]
            self.fail(f"key '{next(k for k in keys if keys.count(k) > 1)}' is there twice")
        return row

    def read(self) -> Trace:
        header = self.header(self.next())
        phases: dict[str, Phase] = {}
        while True:
            row = self.next()
            if "tensor" in row:
                tensor = self.tensor(row)
                if tensor.name in self.tensors:
                    self.fail(f"tensor '{tensor.name}' is listed twice")
                self.tensors[tensor.name] = tensor
            elif "phase" in row:
                phase = self.phase(row)
                if phase.name in phases:
                    self.fail(f"phase '{phase.name}' is there twice")
                phases[phase.name] = phase
            elif row.get("end") == "trace":
                self.check(row, {"end", "lines"})
                if row.get("lines") != self.line:
                    self.fail(
                        f"this is line {self.line}, but the trace had {row.get('lines')}: lines are missing or added"
                    )
                if self.line != len(self.lines):
                    self.fail("there is text after the last line", line=self.line + 1)
                if not phases:
                    self.fail("the trace has no phase")
                trace = Trace(header, tuple(self.tensors.values()), phases, self.file)
                self.consistent(trace)
                return trace
            else:
                self.unknown(row, "a tensor, a phase, or the end of the trace")

    def consistent(self, trace: Trace) -> None:
        """What the header and the tensors say must be what the ops say."""
        h = trace.header
        for phase in trace.phases.values():
            for item in phase.items:
                if not isinstance(item, Repeat):
                    continue
                for name in {b[2:] for op in item.body for b in op.read if b.startswith("w:")}:
                    if "{i" in name and self.tensors[name].count != item.count:
                        what = f"phase '{phase.name}' repeats {item.count} times"
                        self.fail(f"{what} what reads tensor '{name}', of which there are {self.tensors[name].count}")
        if h.chunk and "prefill" in trace.phases and trace.phases["prefill"].tokens != h.chunk:
            self.fail(f"the header has a chunk of {h.chunk}, phase 'prefill' one of {trace.phases['prefill'].tokens}")
        if "decode" in trace.phases:
            layers, written = trace.phases["decode"].cache()
            if (layers, written) != (h.layers, h.kv_bytes_per_token):
                what = f"{h.layers} layers and {h.kv_bytes_per_token} B of cache a token"
                self.fail(f"the header has {what}, phase 'decode' writes {written} B in {layers} layers")

    def header(self, row: dict[str, Any]) -> Header:
        version = row.get("bpusim_trace")
        if version is None:
            self.fail("not a trace: the first line has no 'bpusim_trace'", "name a file that 'bpusim compile' wrote")
        if not _is_int(version) or version < 1:
            self.fail(f"trace schema {version!r} is none that there ever was")
        if version > SCHEMA_VERSION:
            self.fail(
                f"trace schema {version} is newer than {SCHEMA_VERSION}, the newest this bpusim reads",
                "update bpusim or compile the model again",
            )
        self.check(row, _HEADER)
        target = row.get("target")
        if not isinstance(target, dict):
            self.fail("the header has no target")
        cores = row.get("cores", "any")
        if isinstance(cores, list) and cores and all(_is_int(c) and c >= 0 for c in cores):
            cores = tuple(cores)
        elif cores != "any":
            self.fail(f'cores is {cores!r}; it is "any" or a list of core numbers')
        if row.get("kv", "valid") not in ("valid", "capacity"):
            self.fail(f'kv is {row["kv"]!r}; it is "valid" or "capacity"')
        return Header(
            model=self.word(row, "model"),
            target=target,
            source=self.table(row, "source"),
            command=str(row.get("command", "")),
            cores=cores,
            quant=self.table(row, "quant"),
            context=self.count(row, "context", 0),
            chunk=self.count(row, "chunk", 0),
            kv=row.get("kv", "valid"),
            kv_bytes_per_token=self.count(row, "kv_bytes_per_token", 0),
            layers=self.count(row, "layers", 0),
            vocab=self.count(row, "vocab", 0),
            workspace=self.count(row, "workspace", 0),
            report=self.table(row, "report"),
        )

    def tensor(self, row: dict[str, Any]) -> Tensor:
        self.check(row, _TENSOR)
        shared = row.get("shared_by", [])
        if not isinstance(shared, list) or not all(isinstance(s, str) for s in shared):
            self.fail("shared_by is not a list of names")
        return Tensor(
            self.word(row, "tensor"),
            self.count(row, "bytes"),
            self.count(row, "count", 1),
            str(row.get("role", "")),
            tuple(shared),
        )

    def phase(self, row: dict[str, Any]) -> Phase:
        self.check(row, _PHASE)
        name, tokens = self.word(row, "phase"), self.count(row, "tokens", 0)
        basis = row.get("basis")
        if not isinstance(basis, list) or not basis:
            self.fail("the phase has no basis")
        for term in basis:
            if not isinstance(term, str) or not is_term(term):
                self.fail(
                    f"{term!r} is not in the closed list of basis terms", "update bpusim or compile the model again"
                )
        empty = row.get("empty_cache", False)
        if not isinstance(empty, bool):
            self.fail(f"empty_cache is {empty!r}; it is true or false")
        self.basis = tuple(basis)
        items: list[Op | Repeat] = []
        while True:
            row = self.next()
            if "op" in row:
                items.append(self.op(row))
            elif "repeat" in row:
                items.append(self.repeat(row))
            elif row == {"end": "phase"}:
                return Phase(name, tokens, self.basis, tuple(items), empty)
            else:
                self.unknown(row, "an op, a repeat, or the end of the phase")

    def repeat(self, row: dict[str, Any]) -> Repeat:
        self.check(row, _REPEAT)
        count = self.count(row, "repeat")
        carry, tensors = self.coefs(row, "carry"), self.count(row, "carry_tensors", 0)
        if count > _MOST:
            self.fail(f"{count} passes are more than {_MOST}")
        body: list[Op] = []
        begin = self.line
        while True:
            inner = self.next()
            if "op" in inner:
                body.append(self.op(inner))
            elif inner == {"end": "repeat"}:
                break
            else:
                self.unknown(inner, "an op or the end of the repeat")
        if count < 1 or not body:
            self.fail("the repeat is empty", line=begin)
        return Repeat(count, str(row.get("name", "")), tuple(body), carry, tensors)

    def op(self, row: dict[str, Any]) -> Op:
        self.check(row, _OP)
        unit = row.get("unit")
        if unit not in UNITS:
            self.fail(f"unit {unit!r} is not one of {', '.join(UNITS)}")
        nodes = row.get("nodes", [])
        if not isinstance(nodes, list) or not all(isinstance(n, str) for n in nodes):
            self.fail("nodes is not a list of names")
        vec = {k: self.numbers(v, f"vec.{k}") for k, v in self.table(row, "vec").items()}
        return Op(
            id=self.word(row, "op"),
            type=self.word(row, "type"),
            unit=unit,
            nodes=tuple(nodes),
            macs=self.coefs(row, "macs"),
            issued=self.coefs(row, "issued"),
            cycles=self.coefs(row, "cycles"),
            mac_cycles=self.coefs(row, "mac_cycles"),
            vec=vec,
            read=self.buffers(row, "read"),
            write=self.buffers(row, "write"),
            tiles=self.coefs(row, "tiles", (1,)),
            scratch=self.coefs(row, "scratch"),
            tensors=self.count(row, "tensors", 0),
        )

    def buffers(self, row: dict[str, Any], side: str) -> dict[str, Coefs]:
        out = {}
        for name, value in self.table(row, side).items():
            head, _, rest = name.partition(":")
            if not (name == "kv" or (head in ("w", "spill", "io") and rest)):
                self.fail(f"{side} of buffer '{name}': buffers are w:TENSOR, kv, spill:NAME and io:NAME")
            if head == "w" and rest not in self.tensors:
                self.fail(f"{side} of tensor '{rest}', which is not listed", did_you_mean(rest, list(self.tensors)))
            out[name] = self.numbers(value, f"{side}.{name}")
        return out

    def check(self, row: Mapping[str, Any], known: set[str]) -> None:
        for key in row:
            if key not in known:
                self.fail(f"unknown key '{key}'", did_you_mean(key, sorted(known)))

    def unknown(self, row: Mapping[str, Any], wanted: str) -> NoReturn:
        first = next(iter(row), "")
        self.fail(f"a line that begins with '{first}' where {wanted} should be")

    def word(self, row: Mapping[str, Any], key: str) -> str:
        value = row.get(key)
        if not isinstance(value, str) or not value or any("\ud800" <= c <= "\udfff" for c in value):
            self.fail(f"'{key}' must be a name")
        return value

    def table(self, row: Mapping[str, Any], key: str) -> dict[str, Any]:
        value = row.get(key, {})
        if not isinstance(value, dict):
            self.fail(f"'{key}' must be an object")
        return value

    def count(self, row: Mapping[str, Any], key: str, default: int | None = None) -> int:
        value = row.get(key, default)
        if not _is_int(value) or value < 0:
            self.fail(f"'{key}' must be a whole number of zero or more")
        return int(value)

    def coefs(self, row: Mapping[str, Any], key: str, default: Coefs = ()) -> Coefs:
        return self.numbers(row[key], key) if key in row else default

    def numbers(self, value: Any, key: str) -> Coefs:
        if not isinstance(value, list) or not all(_is_int(v) and 0 <= v < 2**53 for v in value):
            self.fail(f"'{key}' must be a list of whole numbers of zero or more")
        if len(value) > len(self.basis):
            self.fail(f"'{key}' has {len(value)} coefficients for a basis of {len(self.basis)}")
        return tuple(value)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
