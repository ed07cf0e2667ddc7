"""Dispatch policies, one file each."""

from bpusim.runtime.policies.fifo import Fifo

__all__ = ["Fifo"]
