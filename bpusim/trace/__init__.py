"""The compiled op trace: data model, files, and binding to a position."""

from bpusim.trace.files import dump_trace, load_trace, save_trace
from bpusim.trace.layout import CallItems, CallLayout, Tiling
from bpusim.trace.model import Header, Op, Phase, Repeat, Tensor, Trace
from bpusim.trace.part import CallPart, moved_until, part_of
from bpusim.trace.program import CallProgram, CpuWork, ItemRange, Program
from bpusim.trace.residency import with_resident
from bpusim.trace.tensor_split import TeamCall, TensorSplit, base_type

__all__ = [
    "CallItems",
    "CallLayout",
    "CallPart",
    "CallProgram",
    "CpuWork",
    "Header",
    "ItemRange",
    "Op",
    "Phase",
    "Program",
    "Repeat",
    "TeamCall",
    "Tensor",
    "TensorSplit",
    "Tiling",
    "Trace",
    "base_type",
    "dump_trace",
    "load_trace",
    "moved_until",
    "part_of",
    "save_trace",
    "with_resident",
]
