"""Many runs: studies over a space of machines and loads, and comparisons over seeds."""

from bpusim.study.compare import Change, Comparison, compare
from bpusim.study.points import Point, Points, points_of
from bpusim.study.pools import Pool, dask_pool, local_pool
from bpusim.study.run_point import Row
from bpusim.study.spec import Study, load_study, study_schema
from bpusim.study.store import Store, read_rows
from bpusim.study.sweep import Outcome, run_study, sweep

__all__ = [
    "Change",
    "Comparison",
    "Outcome",
    "Point",
    "Points",
    "Pool",
    "Row",
    "Store",
    "Study",
    "compare",
    "dask_pool",
    "load_study",
    "local_pool",
    "points_of",
    "read_rows",
    "run_study",
    "study_schema",
    "sweep",
]
