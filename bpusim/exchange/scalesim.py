"""SCALE-Sim topologies (v2, v3) as traces: each layer lowered to this machine's array.

Read as SCALE-Sim's own reader does (``scalesim/topology_utils.py``): a convolution gives
``ceil((ifmap - filter + stride) / stride)`` outputs each way, padding being part of the ifmap; a layer with ``DP`` in
its name is depthwise, ``Num Filter`` filters for each channel; a GEMM is ``M, N, K``. Layers run one after another and,
as SCALE-Sim has it, each fetches its ifmap and filters from DRAM and writes its ofmap there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from bpusim.errors import Place, Problem, TraceError
from bpusim.exchange.table import MOST, Line, read_lines, unique, whole
from bpusim.hardware import CoreSpec
from bpusim.hardware.spec import ActivationType
from bpusim.trace import Header, Op, Phase, Tensor, Trace

if TYPE_CHECKING:
    from bpusim.compiler.quant import Plan
    from bpusim.compiler.target import Target

__all__ = ["Layer", "import_scalesim", "read_topology"]

_CONV = ("ifmap height", "ifmap width", "filter height", "filter width", "channels", "num filter")
_PLANS = ("int4", "int8", "fp16")
_RATIO = re.compile(r"(\d+):(\d+)")


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer as ``groups`` products ``m x k`` by ``k x n``, with the elements of its ifmap."""

    name: str
    kind: str
    """``Conv``, ``DepthwiseConv`` or ``Gemm``."""
    m: int
    k: int
    n: int
    groups: int
    ifmap: int
    line: int

    @property
    def macs(self) -> int:
        """As SCALE-Sim counts them."""
        return self.m * self.k * self.n * self.groups

    @property
    def ofmap(self) -> int:
        """Elements that it makes."""
        return self.m * self.n * self.groups


def read_topology(path: Path) -> list[Layer]:
    """The layers of a topology file. Raises one :class:`TraceError` with every bad row."""
    header, *lines = read_lines(path)
    names = [" ".join(c.lower().split()) for c in _filled(header.cells)]
    gemm = names[1:4] == ["m", "n", "k"]
    if not gemm and not (len(names) >= 8 and all(a.startswith(b) for a, b in zip(names[1:7], _CONV, strict=True))):
        raise TraceError(
            "not a SCALE-Sim topology: its header names neither M, N, K nor IFMAP Height to Strides",
            place=Place(str(path), header.number),
            do="write 'Layer, M, N, K,' or 'Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, "
            "Channels, Num Filter, Strides,'",
        )
    problems: list[Problem] = []
    layers = [(_gemm if gemm else _conv)(names, line, Place(str(path), line.number), problems) for line in lines]
    if problems:
        raise TraceError(problems)
    return layers


def _filled(cells: Sequence[str]) -> list[str]:
    """Cells without the empty one behind the last comma, or the remark that SCALE-Sim skips there."""
    out = list(cells)
    while out and (not out[-1] or out[-1].startswith("#")):
        out.pop()
    return out


def _numbers(names: list[str], line: Line, place: Place, problems: list[Problem], first: int) -> tuple[list[int], bool]:
    """(the ``first`` numbers behind the name, each 1 or more; whether all is well)."""
    cells = _filled(line.cells)
    before = len(problems)
    if not line.cells[0]:
        problems.append(Problem("a layer without a name", place, "name it in the first column"))
    if len(cells) < first + 1:
        what = f"{len(cells)} columns where the topology has {first + 1} or more"
        problems.append(Problem(what, place, f"give {', '.join(names[1 : first + 1])}"))
        return [1] * first, False
    values = [whole(c, names[i], place, problems, least=1) for i, c in enumerate(cells[1 : first + 1], start=1)]
    lost = [c for name, c in zip_longest(names, cells, fillvalue="") if c and not name]
    if lost:
        what = f"'{lost[0]}' is in no column that the header names"
        problems.append(Problem(what, place, "name the column, or take it out: SCALE-Sim skips what ends a row"))
    return values, len(problems) == before


def _gemm(names: list[str], line: Line, place: Place, problems: list[Problem]) -> Layer:
    (m, n, k), good = _numbers(names, line, place, problems, 3)
    groups = 1
    for name, cell in zip(names[4:], _filled(line.cells)[4:], strict=False) if good else ():
        if "batch" in name and ":" not in cell:
            groups = whole(cell, name, place, problems, least=1)
        else:
            _dense(name, cell, place, problems)
    return Layer(line.cells[0], "Gemm", m, k, n, groups, m * k * groups, line.number)


def _conv(names: list[str], line: Line, place: Place, problems: list[Problem]) -> Layer:
    (high, wide, fh, fw, channels, filters, stride), good = _numbers(names, line, place, problems, 7)
    across = stride
    for name, cell in zip(names[8:], _filled(line.cells)[8:], strict=False) if good else ():
        if "stride" in name:
            across = whole(cell, name, place, problems, least=1)
        elif "batch" in name:
            if cell != "1":
                what = f"{name} is '{cell}'"
                problems.append(Problem(what, place, "give 1: SCALE-Sim does not batch convolutions"))
        else:
            _dense(name, cell, place, problems)
    for what, size, window in (("height", high, fh), ("width", wide, fw)) if good else ():
        if window > size:
            text = f"a filter {what} of {window} on an ifmap of {size}"
            problems.append(Problem(text, place, "enlarge the ifmap, padding included"))
    m = -(-(high - fh + stride) // stride) * -(-(wide - fw + across) // across)
    depthwise = "DP" in line.cells[0]  # where SCALE-Sim looks, too
    groups, k = (channels, fh * fw) if depthwise else (1, fh * fw * channels)
    kind = "DepthwiseConv" if depthwise else "Conv"
    return Layer(line.cells[0], kind, m, k, filters, groups, high * wide * channels, line.number)


def _dense(name: str, cell: str, place: Place, problems: list[Problem]) -> None:
    """The array has no sparse mode: only N:N is the same layer here."""
    match = _RATIO.fullmatch(cell)
    if cell != "1" and not (match and match[1] == match[2]):
        what = f"{name} is '{cell}': the array of this machine skips no zeros"
        problems.append(Problem(what, place, "give 1:1, or leave the column out"))


def import_scalesim(
    path: Path, core: CoreSpec, *, activation: ActivationType = "int8", quant: str = "int8", name: str | None = None,
    command: str = "",
) -> Trace:  # fmt: skip
    """A topology as a trace of one phase, ``frame``. Raises :class:`TraceError`."""
    from bpusim.compiler.quant import Plan
    from bpusim.compiler.target import Target

    if activation not in core.mac.rate:
        raise TraceError(
            f"the target has no rate for {activation} activations", do="it has: " + ", ".join(core.mac.rate)
        )
    if quant not in _PLANS:
        raise TraceError(f"a topology has no types of its own for plan '{quant}'", do="known: " + ", ".join(_PLANS))
    layers = read_topology(path)
    plan, target = Plan(quant), Target(core, activation, 1)  # type: ignore[arg-type]  # one of _PLANS
    width = target.activation_bytes
    ids = unique([x.name for x in layers])
    ops, tensors = [], []
    for j, (layer, id_) in enumerate(zip(layers, ids, strict=True)):
        last = j == len(layers) - 1
        source, sink = f"spill:{ids[j - 1]}" if j else "io:ifmap", "io:ofmap" if last else f"spill:{id_}"
        op, tensor = _lower(layer, id_, plan, target, source, sink)
        if max(op.issued[0], op.cycles[0], *(c[0] for c in (*op.read.values(), *op.write.values()))) >= MOST:
            raise TraceError(f"layer '{layer.name}' is larger than can be counted", place=Place(str(path), layer.line))
        ops.append(op)
        tensors.append(tensor)
    return Trace(
        Header(
            model=name or path.stem,
            target=core.fingerprint(),
            source={"file": path.name, "format": "scalesim", "sha256": hashlib.sha256(path.read_bytes()).hexdigest()},
            command=command,
            quant=plan.describe(activation, 16),
            workspace=max((x.ifmap + x.ofmap) * width for x in layers),
        ),
        tuple(tensors),
        {"frame": Phase("frame", 0, ("1",), tuple(ops))},
    )


def _lower(layer: Layer, id_: str, plan: Plan, target: Target, source: str, sink: str) -> tuple[Op, Tensor]:
    from bpusim.compiler.costs import Cost, Gemm, VecWork
    from bpusim.compiler.dims import as_expr
    from bpusim.compiler.quant import WeightUse

    conv = layer.kind != "Gemm"
    gemm = Gemm(as_expr(layer.m), as_expr(layer.k), as_expr(layer.n), layer.groups, stored=True)
    cost = Cost([gemm], [VecWork({"convert": 1}, as_expr(layer.ofmap))], fused=conv)
    cycles, mac_cycles, issued, vec = target.compute(cost)
    weights = plan.bytes(WeightUse(id_, "conv" if conv else "linear", layer.n * layer.groups, layer.k, 0))
    read = {source: layer.ifmap * target.activation_bytes, f"w:{id_}": weights}
    basis = ("1",)
    op = Op(
        id=id_,
        type=layer.kind,
        unit="mac",
        nodes=(layer.name,),
        macs=(layer.macs,),
        issued=issued.coefs(basis),
        cycles=cycles.coefs(basis),
        mac_cycles=mac_cycles.coefs(basis),
        vec={c: e.coefs(basis) for c, e in vec.items()},
        read={b: (n,) for b, n in read.items()},
        write={sink: (layer.ofmap * target.activation_bytes,)},
        tiles=target.tiles(as_expr(sum(read.values()))).coefs(basis),
    )
    return op, Tensor(id_, weights, role="conv" if conv else "linear")
