"""The DRAM channel: the flow model and its tables, arbitration; the bank model is imported only where it is used."""

from bpusim.dram.arbitration import Rules
from bpusim.dram.behaviour import Behaviour, Ideal
from bpusim.dram.flow import FlowChannel
from bpusim.dram.plain import PlainChannel
from bpusim.dram.table import FlowTable, flow_table
from bpusim.dram.transmission import FlowPort

__all__ = [
    "Behaviour",
    "FlowChannel",
    "FlowPort",
    "FlowTable",
    "Ideal",
    "PlainChannel",
    "Rules",
    "flow_table",
]
