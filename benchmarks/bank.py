"""Runs one stream of requests on the bank model and prints the CPU seconds of a million, after a warm-up.

python benchmarks/bank.py sequential|random|writes
"""

from __future__ import annotations

import json
import sys
import time

from bpusim.dram.bank.model import BankRun, Master
from bpusim.dram.timing import channel

COUNT = 500_000
STREAMS = {
    "sequential": Master(count=COUNT),
    "random": Master("rand", count=COUNT, region=1 << 30),
    "writes": Master(count=COUNT, write=25, seed=7),  # 25 % of them
}


def seconds(name: str) -> float:
    """CPU seconds of a million requests."""
    found, master = channel("LPDDR4-4266x32"), STREAMS[name]
    BankRun(found, [master]).run(10_000)
    run, begin = BankRun(found, [master]), time.process_time()
    run.run()
    return (time.process_time() - begin) * 1e6 / COUNT


if __name__ == "__main__":
    print(json.dumps({"cpu_s": seconds(sys.argv[1])}))
