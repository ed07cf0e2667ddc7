"""What a calibrated machine has to beat: decode rates by three formulas, each fitted without the row it tells."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

__all__ = ["constant_efficiency", "per_layer", "per_token"]


def constant_efficiency(data: Sequence[tuple[float, int, float]]) -> list[float | None]:
    """``tokens/s = rate / bytes`` for rows of (bytes, layers, tokens/s): predictions with the rate of the other rows,
    None for a lone one. The mean is that of logarithms: it counts relative errors."""
    logs = [math.log(size * tps) for size, _, tps in data]
    if len(data) < 2:
        return [None] * len(data)
    total = sum(logs)
    return [math.exp((total - own) / (len(logs) - 1)) / size for own, (size, _, _) in zip(logs, data, strict=True)]


def per_layer(data: Sequence[tuple[float, int, float]]) -> list[float | None]:
    """``s/token = bytes / rate + layers x overhead``, neither below zero: predictions from the other rows by least
    squares on relative errors; None with fewer than two others."""
    from scipy.optimize import nnls

    if len(data) < 3:
        return [None] * len(data)
    # Times the measured rate, a row reads 1 = rate x (bytes / bandwidth + layers x overhead).
    terms = np.array([[size * tps / 1e9, layers * tps] for size, layers, tps in data])
    out: list[float | None] = []
    for k, (_, _, tps) in enumerate(data):
        found, _ = nnls(np.delete(terms, k, axis=0), np.ones(len(data) - 1))
        out.append(tps / float(terms[k] @ found))
    return out


def per_token(data: Sequence[tuple[float, int, float]]) -> list[float | None]:
    """``s/token = bytes / rate + overhead``: :func:`per_layer` with one overhead a token for all models."""
    return per_layer([(size, 1, tps) for size, _, tps in data])
