"""What a point of a study costs in a process that has run others: load, run, figures. Prints CPU ms as JSON.

    python benchmarks/points.py [POINTS] [REQUESTS]

Each is ``dual_replica`` with answers of 64 tokens at a core clock of its own; ``REQUESTS`` for each user (1).
"""

from __future__ import annotations

import json
import sys
import time
from statistics import median

from cases import scenario

from bpusim.metrics import figures
from bpusim.scenario import load_scenario
from bpusim.system import simulate


def cost(point: int, requests: int) -> float:
    """CPU ms of one."""
    changes: dict[str, object] = {"machine.cores.clock": f"{900 + point} MHz"}
    for user in ("alice", "bob"):
        changes |= {f"streams.{user}.output": 64, f"streams.{user}.requests": requests}
    begin = time.process_time()
    figures(simulate(load_scenario(scenario("dual_replica"), changes)))
    return (time.process_time() - begin) * 1e3


def main(points: int = 40, requests: int = 1) -> None:
    """The first one is not counted: it loads libraries."""
    seen = [cost(k, requests) for k in range(points + 1)][1:]
    print(json.dumps({"points": points, "median_ms": round(median(seen), 1), "least_ms": round(min(seen), 1)}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
