"""Observers and the definitions of what is measured."""

from bpusim.metrics.causes import CAUSES, Ledger, apportion, shares_ms
from bpusim.metrics.detail import CallSpan, CpuOpSums, Detail, Keep, OpSums, Profile, Step, Transfers
from bpusim.metrics.figures import Figures, figures, numbers
from bpusim.metrics.heat import HeatStats, TripStats
from bpusim.metrics.observers import Both
from bpusim.metrics.recorder import CoreCounters, Recorder
from bpusim.metrics.result import (
    BatchStats,
    CoreStats,
    DramStats,
    HeapStats,
    MemoryBlock,
    Result,
    RunWarning,
    WeightStats,
)
from bpusim.metrics.samples import Samples
from bpusim.metrics.splits import SplitPhase, SplitPlan
from bpusim.metrics.stats import ChatStats, ColdStats, EndStats, FrameStats, PhaseStats, PipelineStats
from bpusim.metrics.streams import ChatRecord, FrameRecord, PipelineRecord, RequestRow, rate_per_s

__all__ = [
    "CAUSES",
    "BatchStats",
    "Both",
    "CallSpan",
    "ChatRecord",
    "ChatStats",
    "ColdStats",
    "CoreCounters",
    "CoreStats",
    "CpuOpSums",
    "Detail",
    "DramStats",
    "EndStats",
    "Figures",
    "FrameRecord",
    "FrameStats",
    "HeapStats",
    "HeatStats",
    "Keep",
    "Ledger",
    "MemoryBlock",
    "OpSums",
    "PhaseStats",
    "PipelineRecord",
    "PipelineStats",
    "Profile",
    "Recorder",
    "RequestRow",
    "Result",
    "RunWarning",
    "Samples",
    "SplitPhase",
    "SplitPlan",
    "Step",
    "Transfers",
    "TripStats",
    "WeightStats",
    "apportion",
    "figures",
    "numbers",
    "rate_per_s",
    "shares_ms",
]
