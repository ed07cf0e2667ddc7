"""What a machine can do at most, for looking at traces without running them."""

from __future__ import annotations

from bpusim.dram import flow_table
from bpusim.hardware import DmaSpec, MachineSpec
from bpusim.trace.roofline import Roof

__all__ = ["roof_of"]


def roof_of(machine: MachineSpec) -> Roof:
    """One core and one CPU core of ``machine``, each with the channel to itself."""
    core, host, dram = machine.cores, machine.host, machine.dram
    table = flow_table(dram.preset, dram.channels, dram.mapping).at_clock(dram.speed)

    def alone(dma: DmaSpec) -> float:
        return table.alone(dma.window, dma.latency, dma.port)

    return Roof(
        hz=core.clock,
        macs_per_cycle=int(core.mac.rows * core.mac.cols * max(core.mac.rate.values())),
        bytes_per_s=alone(core.dma),
        op_overhead=core.op_overhead,
        cpu_hz=host.clock,
        cpu_bytes_per_s=alone(host.dma),
        cpu_cycles={str(c): n for c, n in host.fallback_cycles.items()},
        cpu_entry=host.fallback_op,
        cpu_cache_per_byte=host.cache_per_byte,
    )
