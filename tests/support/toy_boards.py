"""A slow machine and small models, for calibrations that take milliseconds a run."""

from __future__ import annotations

from collections.abc import Callable

from bpusim.study.calibration import Calibration

__all__ = ["COLUMNS", "MODELS", "PLANTED", "SLOW", "START", "Fitted"]

SLOW = ("machine.cores.scratchpad=256 KiB", "machine.cores.dma.port=2 GB/s", "machine.cores.clock=40 MHz")
"""So slow that small models are no matter of the host alone, and that a layer's cost is not hidden behind transfers."""
PLANTED = (*SLOW, "machine.cores.layer_sync=150 us")
START = (*SLOW[:2], "machine.cores.clock=60 MHz")
COLUMNS = "row_id,board,model,layers,hidden,n_heads,n_kv,head_dim,ffn,vocab,tied,w_bits,a_bits,prompt_len"
MODELS = (  # small, so that they run in milliseconds, and unlike in bytes a layer, so that costs can be told apart
    "a,toy,deep,16,256,4,2,64,512,2000,0,8,16,64",
    "b,toy,wide,2,1024,8,4,128,4096,8000,0,8,16,64",
    "c,toy,wide w4,2,1024,8,4,128,4096,8000,0,4,16,64",
    "d,toy,mid,8,512,8,4,64,2048,4000,1,8,16,64",
    "e,toy,flat,4,768,6,6,128,3072,4000,1,8,16,64",
)

Fitted = Callable[..., Calibration]
