"""What computes: BPU cores and the host's CPU cluster."""

from bpusim.cores.bpu import BpuCore, CallResult, Merge
from bpusim.cores.host import HostCluster, HostTraffic

__all__ = ["BpuCore", "CallResult", "HostCluster", "HostTraffic", "Merge"]
