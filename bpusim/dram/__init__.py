"""The DRAM channel: the flow model and its tables, arbitration; the bank model is imported only where it is used."""

from bpusim.dram.arbitration import Rules
from bpusim.dram.flow import FlowChannel, FlowPort, Ideal
from bpusim.dram.table import FlowTable, flow_table

__all__ = ["FlowChannel", "FlowPort", "FlowTable", "Ideal", "Rules", "flow_table"]
