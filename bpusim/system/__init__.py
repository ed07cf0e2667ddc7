"""Builds the SimPy system a scenario describes, runs it, and gathers the result."""

from bpusim.system.build import System, simulate
from bpusim.system.progress import Progress

__all__ = ["Progress", "System", "simulate"]
