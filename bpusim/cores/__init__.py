"""What computes: BPU cores and the host's CPU cluster."""

from bpusim.cores.bpu import BpuCore, CallResult, Merge, Opening
from bpusim.cores.host import HostCluster
from bpusim.cores.plan import Plan, PlanBook
from bpusim.cores.pools import WHOLE, Affinity, CorePool, Laid
from bpusim.cores.traffic import HostTraffic

__all__ = [
    "WHOLE",
    "Affinity",
    "BpuCore",
    "CallResult",
    "CorePool",
    "HostCluster",
    "HostTraffic",
    "Laid",
    "Merge",
    "Opening",
    "Plan",
    "PlanBook",
]
