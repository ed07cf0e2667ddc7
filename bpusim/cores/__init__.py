"""What computes: BPU cores and the host's CPU cluster."""

from bpusim.cores.bpu import BpuCore, CallResult, Merge
from bpusim.cores.host import HostCluster, HostTraffic
from bpusim.cores.plan import PlanBook

__all__ = ["BpuCore", "CallResult", "HostCluster", "HostTraffic", "Merge", "PlanBook"]
