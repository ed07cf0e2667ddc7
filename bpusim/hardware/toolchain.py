"""What toolchains do that is no property of the core: op types that they leave on one core of several."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["UNSPLIT"]

UNSPLIT: Mapping[str, frozenset[str]] = {
    "1.0": frozenset({
        # Reported of multi-core NPU toolchains (BH-21: yolov10 issue 115): Softmax alone runs on one core.
        "Softmax",
        # Chosen with it: they reduce over a row as well, and the hidden state of a token is too short to spread.
        "LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization", "SkipLayerNormalization",
        "SkipSimplifiedLayerNormalization", "LRN", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum",
        # Chosen: they pick rows of a table and compute nothing.
        "Gather", "GatherBlockQuantized",
    }),
}  # fmt: skip
"""By toolchain version (``machine.cores.toolchain``). Copies (unit dma) and CPU ops are never split."""
