"""What a study shows: main effects, pairs, sensitivity, the Pareto front, the smallest machine that is enough."""

from bpusim.study.analysis.whole import Asked, analyse

__all__ = ["Asked", "analyse"]
