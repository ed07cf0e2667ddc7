"""The compiled op trace: data model, files, and binding to a position."""

from bpusim.trace.files import dump_trace, load_trace, save_trace
from bpusim.trace.model import Header, Op, Phase, Repeat, Tensor, Trace
from bpusim.trace.program import CallProgram, CpuWork, Program

__all__ = [
    "CallProgram",
    "CpuWork",
    "Header",
    "Op",
    "Phase",
    "Program",
    "Repeat",
    "Tensor",
    "Trace",
    "dump_trace",
    "load_trace",
    "save_trace",
]
