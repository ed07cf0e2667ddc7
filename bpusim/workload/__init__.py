"""Sources of work: chat users, cameras and pipelines, and the random draws behind them."""

from bpusim.workload.chat import ChatStream
from bpusim.workload.draws import Ask, asks, every, fixed, gamma, generator, listed, lognormal, poisson
from bpusim.workload.frames import FrameStream
from bpusim.workload.pipeline import PipelineStage, PipelineStream
from bpusim.workload.slots import Slots

__all__ = [
    "Ask",
    "ChatStream",
    "FrameStream",
    "PipelineStage",
    "PipelineStream",
    "Slots",
    "asks",
    "every",
    "fixed",
    "gamma",
    "generator",
    "listed",
    "lognormal",
    "poisson",
]
