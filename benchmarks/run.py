"""Measures what a user waits for. CPU seconds of whole processes, the least of several runs, beside a reference loop.

    python benchmarks/run.py [--runs 5] [--models FOLDER] [--json FILE]

``--models`` names the folder of the ONNX exports; without it the 3B is compiled from its configuration, whose graph is
the same. The machine matters: the reference loop (ten million additions) tells how fast it was.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFIG_3B = {
    "model_type": "qwen2",
    "hidden_size": 2048,
    "num_hidden_layers": 36,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "intermediate_size": 11008,
    "vocab_size": 151936,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}


BANK = """
import time
from bpusim.dram.bank.model import BankRun, Master
from bpusim.dram.timing import channel

N, found = 500_000, channel("LPDDR4-4266x32")
STREAMS = {
    "sequential": Master(count=N),
    "random": Master("rand", count=N, region=1 << 30),
    "25 % writes": Master(count=N, write=25, seed=7),
}
for m in STREAMS.values():
    BankRun(found, [m]).run(10_000)
for name, m in STREAMS.items():
    run, begin = BankRun(found, [m]), time.process_time()
    run.run()
    print(name, (time.process_time() - begin) * 1e6 / N, sep="\\t")
"""


def bank(runs: int) -> dict[str, float]:
    """CPU seconds of a million requests on the bank model after warm-up, the least of several processes."""
    best: dict[str, float] = {}
    for _ in range(runs):
        for line in subprocess.check_output([sys.executable, "-c", BANK], text=True, cwd=ROOT).splitlines():
            name, seconds = line.split("\t")
            best[name] = min(best.get(name, float("inf")), float(seconds))
    return best


def measure(command: list[str]) -> tuple[float, float]:
    """(CPU seconds, peak MB) of one process."""
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(command)} failed with {child.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--models", type=Path)
    options.add_argument("--json", type=Path)
    args = options.parse_args()
    bpusim = [sys.executable, "-c", "from bpusim.cli import main; main()"]
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "x.trace")
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(CONFIG_3B))
        model = ["--llm-config", str(config)]
        if args.models:
            model = [str(args.models / "qwen2.5-3b-int4-genai.onnx")]
        light = "import onnx, pathlib; print(pathlib.Path(onnx.__file__).parent / 'backend/test/data/light')"
        resnet = Path(subprocess.check_output([sys.executable, "-c", light], text=True).strip()) / "light_resnet50.onnx"
        cases = {
            "reference loop": [sys.executable, "-c", "s = 0\nfor i in range(10**7): s += i"],
            "bpusim --version": [*bpusim, "--version"],
            "validate dual_replica": [*bpusim, "validate", "scenarios/dual_replica.yaml"],
            "run dual_replica": [*bpusim, "run", "scenarios/dual_replica.yaml"],
            "run single_3b": [*bpusim, "run", "scenarios/single_3b.yaml"],
            "run hetero": [*bpusim, "run", "scenarios/hetero.yaml"],
            "run pipeline_split": [*bpusim, "run", "scenarios/pipeline_split.yaml"],
            "run cpu_fallback": [*bpusim, "run", "scenarios/cpu_fallback.yaml"],
            "compile 3B": [*bpusim, "compile", *model, "--quant", "int4", "-o", out],
            "compile ResNet-50": [*bpusim, "compile", str(resnet), "--quant", "int8", "-o", out],
        }
        rows = {}
        for name, command in cases.items():
            seen = [measure(command) for _ in range(args.runs)]
            rows[name] = {
                "cpu_s": min(s for s, _ in seen),
                "cpu_max_s": max(s for s, _ in seen),
                "peak_mb": max(m for _, m in seen),
            }
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {args.runs} runs each\n")
    print("| command | CPU s (least) | CPU s (most) | peak MB |\n|---|---|---|---|")
    for name, r in rows.items():
        print(f"| {name} | {r['cpu_s']:.2f} | {r['cpu_max_s']:.2f} | {r['peak_mb']:.0f} |")
    requests = bank(args.runs)
    print("\n| bank model | CPU s a million requests |\n|---|---|")
    for name, seconds in requests.items():
        print(f"| {name} | {seconds:.3f} |")
        rows[f"bank model, million requests, {name}"] = {"cpu_s": seconds}
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
