"""Builds the SimPy system a scenario describes, runs it, and gathers the result."""

from bpusim.system.build import System, simulate

__all__ = ["System", "simulate"]
