"""A phase at one position as a Chakra execution trace.

An op is a ``COMP_NODE``; each buffer that it reads a ``MEM_LOAD_NODE`` before it and each that it writes a
``MEM_STORE_NODE`` behind it, with the bytes as ``tensor_size``. Data dependencies are those through memory; ops run in
program order, each behind the one before by a control dependency, and around an op on the CPU so do its loads.
``num_ops`` is 2 a MAC. ``duration_micros`` is whole microseconds, rounded up; what Chakra has no field for, such as
exact cycles, stands in attributes ``bpusim_*``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bpusim.errors import TraceError
from bpusim.exchange.chakra_schema import NODE_TYPES, VERSION, attribute, messages, write_messages
from bpusim.trace import Op, Repeat, Trace
from bpusim.trace.roofline import Position, Roof, op_time
from bpusim.units import PS_PER_S

__all__ = ["COUNTS", "export_chakra"]

COUNTS = ("cycles", "mac_cycles", "issued", "tiles", "scratch")
"""Costs of an op that go into attributes."""
_PASS = re.compile(r"\{i(?:\+(\d+))?\}")


def export_chakra(trace: Trace, at: Position, roof: Roof, path: Path) -> int:
    """Write the phase, repeats unrolled; the number of nodes. Raises :class:`TraceError`, also for a phase without ops:
    a file without nodes is none that can be read."""
    if not trace.phase(at.phase).items:
        raise TraceError(f"phase '{at.phase}' of '{trace.header.model}' has no op to export", do="export another")
    writer = _Writer(trace, at, roof)
    for op, k in _unrolled(trace, at.phase):
        writer.op(op, k)
    h = trace.header
    about: dict[str, Any] = {
        "schema": "bpusim",
        "bpusim_model": h.model,
        "bpusim_position": str(at),
        "bpusim_target": json.dumps(dict(h.target), separators=(",", ":")),
        "bpusim_workspace": h.workspace,
        "bpusim_clock_hz": roof.hz,
    }
    metadata = messages().metadata(version=VERSION, attr=[attribute(k, v) for k, v in about.items()])
    write_messages(path, [metadata, *writer.nodes])
    return len(writer.nodes)


def _unrolled(trace: Trace, phase: str) -> Iterator[tuple[Op, int | None]]:
    """Ops in program order with the number of their pass, None outside repeats."""
    for item in trace.phase(phase).items:
        if isinstance(item, Repeat):
            yield from ((op, k) for k in range(item.count) for op in item.body)
        else:
            yield item, None


class _Writer:
    """Nodes in program order."""

    def __init__(self, trace: Trace, at: Position, roof: Roof) -> None:
        self.at, self.roof = at, roof
        self.tensors = {t.name: t for t in trace.tensors}
        self.nodes: list[Any] = []
        self.made: dict[str, int] = {}
        """The store that last wrote a buffer."""
        self.before: int | None = None
        """The op before."""
        self.gate: list[int] = []
        """What the loads of this call wait for: the op on the CPU before it."""

    def node(self, kind: str, name: str, duration: int, attrs: dict[str, Any], data: list[int], ctrl: list[int]) -> int:
        made = messages().node(
            id=len(self.nodes) + 1,
            name=name,
            type=NODE_TYPES.index(kind),
            duration_micros=-(-duration // 10**6),
            data_deps=data,
            ctrl_deps=ctrl,
            attr=[attribute(k, v, "int64" if k == "num_ops" else "uint64") for k, v in attrs.items()],
        )
        self.nodes.append(made)
        return int(made.id)

    def op(self, op: Op, k: int | None) -> None:
        """An op with its loads and stores."""
        value = self.at.value
        on_cpu = op.unit == "cpu"
        name = op.id if k is None else f"{op.id}[{k}]"
        behind = [self.before] if on_cpu and self.before is not None else self.gate
        loads = []
        for buffer, coefs in op.read.items():
            if size := value(coefs):
                data = [self.made[buffer]] if buffer in self.made else []
                loads.append(self.memory("MEM_LOAD_NODE", f"{name} reads", buffer, k, size, on_cpu, data, behind))
        attrs: dict[str, Any] = {
            "is_cpu_op": on_cpu,
            "num_ops": 2 * value(op.macs),
            "tensor_size": 0,  # the bytes are those of the nodes around it
            "bpusim_type": op.type,
            "bpusim_unit": op.unit,
            **{f"bpusim_{c}": value(getattr(op, c)) for c in COUNTS},
            "bpusim_tensors": op.tensors,
            **{f"bpusim_vec_{c}": value(v) for c, v in op.vec.items()},
        }
        ctrl = [self.before] if self.before is not None else []
        compute, _ = op_time(op, self.at, self.roof)
        me = self.node("COMP_NODE", name, compute, attrs, loads, ctrl)
        stores = []
        for buffer, coefs in op.write.items():
            if size := value(coefs):
                stores.append(self.memory("MEM_STORE_NODE", f"{name} writes", buffer, k, size, on_cpu, [me], []))
                self.made[buffer] = stores[-1]
        self.before = me
        self.gate = (stores or [me]) if on_cpu else self.gate

    def memory(
        self, kind: str, what: str, buffer: str, k: int | None, size: int, on_cpu: bool, data: list[int],
        ctrl: list[int],
    ) -> int:  # fmt: skip
        """A transfer of one buffer."""
        rate = self.roof.cpu_bytes_per_s if on_cpu else self.roof.bytes_per_s
        own = buffer
        attrs: dict[str, Any] = {"is_cpu_op": on_cpu, "tensor_size": size}
        if tensor := self.tensors.get(buffer.removeprefix("w:")) if buffer.startswith("w:") else None:
            own = _instance(buffer, k) if k is not None and tensor.count > 1 else buffer
            attrs |= {"bpusim_tensor_bytes": tensor.bytes, "bpusim_role": tensor.role}
        attrs["bpusim_buffer"] = own
        return self.node(kind, f"{what} {own}", round(size * PS_PER_S / rate), attrs, data, ctrl)


def _instance(buffer: str, k: int) -> str:
    """The tensor that pass ``k`` of a repeat reads."""
    own = _PASS.sub(lambda m: str(k + int(m[1] or 0)), buffer)
    return own if own != buffer else f"{buffer}@{k}"
