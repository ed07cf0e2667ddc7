"""What rounding does to stored weights: symmetric integers by block, and the noise that they leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, log10
from typing import TYPE_CHECKING

import numpy as np

from bpusim.compiler.widths import Width

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["decibels", "noise", "rounded"]

_AT_ONCE = 2**18
"""Elements of a matrix worked on at a time: a few MB in all, whatever the size of the model."""


def rounded(w: NDArray[np.float64], width: Width) -> NDArray[np.float64]:
    """Rows of ``w`` as ``width`` stores them: the largest of a block becomes the largest integer (7 or 127).

    The scale is rounded to its own type first. Floats round to the nearest, and those too large to the largest.
    """
    if not width.integer:
        return _as_float(w, 2 if width.bits == 16 else 4)
    top = 2 ** (width.bits - 1) - 1
    k = w.shape[1]
    block = min(width.block or k, k)
    blocks = -(-k // block)
    padded = np.zeros((w.shape[0], blocks * block))
    padded[:, :k] = w
    parts = padded.reshape(w.shape[0], blocks, block)
    scales = _as_float(np.abs(parts).max(axis=2, keepdims=True) / top, width.scale)
    whole = np.divide(parts, scales, out=np.zeros_like(parts), where=scales > 0)
    parts = np.clip(np.rint(whole), -top, top) * scales
    return parts.reshape(w.shape[0], blocks * block)[:, :k]


def _as_float(x: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    kind: type[np.floating] = np.float16 if size == 2 else np.float32
    most = float(np.finfo(kind).max)
    return np.clip(x, -most, most).astype(kind).astype(np.float64)


def noise(
    take: Callable[[int, int], NDArray[np.float64]],
    rows: int,
    k: int,
    widths: Sequence[Width],
    x: NDArray[np.float64] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(signal, noise by width): energies of a matrix, and of what rounding to each width changes of it.

    ``take(a, b)``: rows ``a`` to ``b`` of ``k`` columns. Without ``x`` one energy each, ``||W||^2`` and
    ``||W - Q||^2``; with ``x`` of any rows by ``k`` one for each of its rows, of ``x W^T`` and ``x (W - Q)^T``.
    """
    n = 1 if x is None else len(x)
    signal, errors = np.zeros(n), np.zeros((len(widths), n))

    def energy(m: NDArray[np.float64]) -> NDArray[np.float64]:
        out: NDArray[np.float64] = np.array([np.square(m).sum()]) if x is None else np.square(x @ m.T).sum(axis=1)
        return out

    step = max(1, _AT_ONCE // max(k, n))
    for a in range(0, rows, step):
        w = take(a, min(a + step, rows))
        signal += energy(w)
        for i, width in enumerate(widths):
            errors[i] += energy(w - rounded(w, width))
    return signal, errors


def decibels(signal: float, error: float) -> float:
    """The ratio of signal to noise in dB; infinite where there is no noise."""
    return inf if error <= 0 else -inf if signal <= 0 else 10 * log10(signal / error)
