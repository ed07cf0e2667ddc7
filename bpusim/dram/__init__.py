"""The DRAM channel: presets as data, the flow model, arbitration."""

from bpusim.dram.arbitration import arbiter
from bpusim.dram.flow import FlowChannel, FlowPort
from bpusim.dram.presets import DramPreset, dram_preset

__all__ = ["DramPreset", "FlowChannel", "FlowPort", "arbiter", "dram_preset"]
