"""Sources of work: chat users and cameras."""

from bpusim.workload.chat import ChatStream
from bpusim.workload.frames import FrameStream

__all__ = ["ChatStream", "FrameStream"]
