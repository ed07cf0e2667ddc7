"""What a plan does to a model's weights: noise by layer, and which layers gain most by int8 for what it costs."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bpusim.compiler.build import Compiled
from bpusim.compiler.quant import Plan
from bpusim.compiler.rounding import decibels, noise
from bpusim.compiler.weight_data import Layer, find_layers
from bpusim.errors import CompileError, Place, did_you_mean

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LayerNoise", "QuantReport", "quant_report"]

_FEW = (1, 8)
"""Samples that are held against all of them."""


@dataclass(slots=True)
class LayerNoise:
    """A layer under the plan. dB are signal to noise, infinite where nothing is lost.

    ``calibrated_db``: of the layer's output, by number of samples. ``gain_db``, ``more_bytes``, ``more_us``: what int8
    brings and costs (a read of the layer); None and 0 where the layer is as wide already. ``ranks``: place by gain a
    byte, from 1, by ``weights`` alone and by number of samples.
    """

    tensor: str
    node: str
    role: str
    rows: int
    k: int
    width: str
    bytes: int
    sqnr_db: float
    calibrated_db: dict[str, float] = field(default_factory=dict)
    gain_db: float | None = None
    more_bytes: int = 0
    more_us: float = 0.0
    ranks: dict[str, int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """For JSON and CSV: infinite ratios are None."""
        row = asdict(self)
        row["calibrated_db"] = {n: _known(v) for n, v in self.calibrated_db.items()}
        return row | {n: _known(row[n]) for n in ("sqnr_db", "gain_db")}


def _known(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


@dataclass(frozen=True, slots=True)
class QuantReport:
    """All layers in program order, and why some could not be read."""

    plan: str
    bytes_per_s: float
    layers: list[LayerNoise]
    skipped: dict[str, str]
    samples: tuple[str, ...]
    """Numbers of samples compared, the last is all; empty without calibration."""

    @property
    def ranked(self) -> list[LayerNoise]:
        """Layers that int8 would help, the most dB a byte first, as all samples say (or the weights alone)."""
        by = self.samples[-1] if self.samples else "weights"
        return sorted((r for r in self.layers if r.ranks), key=lambda r: r.ranks[by])

    def moved(self, by: str) -> tuple[int, float]:
        """(layers whose rank ``by`` is not that of all samples, the largest change of a layer's SQNR in dB)."""
        last = self.samples[-1]
        places = sum(r.ranks[by] != r.ranks[last] for r in self.layers if r.ranks)
        changes = [
            abs((r.sqnr_db if by == "weights" else r.calibrated_db[by]) - r.calibrated_db[last])
            for r in self.layers
            if r.calibrated_db and isfinite(r.calibrated_db[last])
        ]
        return places, max(changes, default=0.0)


def quant_report(
    compiled: Compiled, plan: Plan, path: Path, bytes_per_s: float, calibration: Path | None
) -> QuantReport:
    """The noise of ``plan`` in every linear layer, head and convolution. Raises :class:`CompileError`.

    Weights are read a part of a matrix at a time, calibration one array at a time. ``bytes_per_s``: of a core alone.
    """
    if plan.name == "keep":
        raise CompileError("--quant-report: the plan 'keep' rounds nothing", do="choose one, such as --quant int4")
    weights = {n: u for n, u in compiled.weights.items() if u.role in ("linear", "head", "conv")}
    layers, skipped = find_layers(compiled.model, compiled.graph, weights, path)
    if not layers:
        why = next(iter(skipped.values()), "it has no linear layers and no convolutions")
        what = f"--quant-report: the model has no weights that can be read ({why})"
        raise CompileError(what, place=Place(str(path)), do="use a file with its weights")
    given = _Calibration(calibration, layers) if calibration is not None else None
    rows = [_row(layer, plan, given, bytes_per_s) for layer in layers]
    samples = tuple(_counts(1)) if given is not None else ()
    out = QuantReport(plan.name, bytes_per_s, [r for r, _ in rows], skipped, samples)
    for by in ("weights", *samples):
        gains = [(r, g.get(by, g["weights"])) for r, g in rows if g]
        gains.sort(key=lambda pair: -pair[1] / max(pair[0].more_bytes, 1))
        for place, (r, _) in enumerate(gains, 1):
            r.ranks[by] = place
    return out


def _row(
    layer: Layer, plan: Plan, given: _Calibration | None, bytes_per_s: float
) -> tuple[LayerNoise, dict[str, float]]:
    """(a layer, dB gained at int8 by what it is judged by; empty where it is as wide already)."""
    use = layer.use
    width = plan.width(use)
    assert width is not None
    more = replace(width, bits=8)
    widths = [width, more] if width.bits < 8 else [width]
    signal, errors = noise(layer.take, use.rows, use.k, widths)
    ratios = {"weights": [decibels(float(signal[0]), float(e[0])) for e in errors]}
    array = given.array(layer) if given is not None else None
    if given is not None and array is not None:
        flat = array.reshape(-1, array.shape[-1]).astype(np.float64)
        signal, errors = noise(layer.take, use.rows, use.k, widths, flat)
        each = len(flat) // len(array)
        for label, n in _counts(len(array)).items():
            part = slice(0, n * each)
            ratios[label] = [decibels(float(signal[part].sum()), float(e[part].sum())) for e in errors]
    row = LayerNoise(
        use.tensor, layer.node, use.role, use.rows, use.k, str(width), plan.bytes(use), ratios["weights"][0],
        {n: r[0] for n, r in ratios.items() if n != "weights"},
    )  # fmt: skip
    if len(widths) == 1:
        return row, {}
    gains = {n: _gain(*r) for n, r in ratios.items()}
    row.gain_db = gains[list(gains)[-1]]
    row.more_bytes = use.rows * more.row_bytes(use.k) - row.bytes
    row.more_us = row.more_bytes / bytes_per_s * 1e6
    return row, gains


def _counts(samples: int) -> dict[str, int]:
    """Samples taken, by label."""
    return {**{str(n): min(n, samples) for n in _FEW}, "all": samples}


def _gain(now: float, then: float) -> float:
    """dB gained; none where nothing was lost."""
    return 0.0 if now in (inf, then) else then - now


class _Calibration:
    """Activations of an ``.npz``, by the name of what a layer reads, of its weight, or of its node."""

    def __init__(self, path: Path, layers: Sequence[Layer]) -> None:
        self.place = Place(str(path))
        try:
            loaded = np.load(path, allow_pickle=False)
        except OSError as e:
            raise CompileError(f"cannot read the calibration: {e.strerror or e}", place=self.place) from None
        except (ValueError, zipfile.BadZipFile):
            loaded = None
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise CompileError("not an .npz file", place=self.place, do="write it by numpy.savez(file, NAME=array)")
        self.file: Mapping[str, NDArray[Any]] = loaded
        known = {n for layer in layers for n in layer.names}
        for name in self.file:
            if name not in known:
                what = f"calibration '{name}' is the input, the weight or the node of no layer"
                close = did_you_mean(name, sorted(known))
                do = close if close.startswith("did") else "name it as a layer of --quant-report, such as "
                raise CompileError(what, place=self.place, do=do if do is close else do + repr(layers[0].use.tensor))
        if not len(self.file):
            raise CompileError("the calibration holds no array", place=self.place, do="give samples x features by name")

    def array(self, layer: Layer) -> NDArray[Any] | None:
        """Samples by features of what a layer reads; None where there are none for it."""
        name = next((n for n in layer.names if n in self.file), None)
        if name is None:
            return None
        try:
            array = self.file[name]
        except (ValueError, zipfile.BadZipFile, OSError) as e:
            raise CompileError(f"calibration '{name}' cannot be read: {e}", place=self.place) from None
        what = f"calibration '{name}' "
        if layer.groups > 1:
            raise CompileError(f"{what}is for a convolution in groups, which takes none", place=self.place)
        if array.ndim < 2 or array.shape[-1] != layer.use.k or not array.size:
            shape = "x".join(map(str, array.shape))
            what += f"is {shape or 'a number'}; '{layer.use.tensor}' takes samples of {layer.use.k} features"
            raise CompileError(what, place=self.place, do="give samples x features, of a convolution its windows")
        if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
            raise CompileError(f"{what}has elements that are no finite numbers", place=self.place)
        return array
