"""Power, heat and clocks: activity becomes power, power temperature, and temperature clocks and fans."""

from bpusim.thermal.clock import ClockDomain, points_of
from bpusim.thermal.devices import ClockControl, CoolingDevice, Fan, Group
from bpusim.thermal.heat import Heat, HeatEvent
from bpusim.thermal.network import Network, Pulses
from bpusim.thermal.power import Meter

__all__ = [
    "ClockControl",
    "ClockDomain",
    "CoolingDevice",
    "Fan",
    "Group",
    "Heat",
    "HeatEvent",
    "Meter",
    "Network",
    "Pulses",
    "points_of",
]
