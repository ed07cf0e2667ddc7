"""Many runs: sweeps over a grid, and comparisons over seeds."""

from bpusim.study.compare import Change, Comparison, compare
from bpusim.study.sweep import pick, sweep

__all__ = ["Change", "Comparison", "compare", "pick", "sweep"]
