"""Studies over scenarios. So far: sweeps over a grid."""

from bpusim.study.sweep import pick, sweep

__all__ = ["pick", "sweep"]
