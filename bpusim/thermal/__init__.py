"""Power, heat and clocks. So far: clock domains at a fixed frequency."""

from bpusim.thermal.clock import ClockDomain

__all__ = ["ClockDomain"]
