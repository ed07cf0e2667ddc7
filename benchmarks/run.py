"""Measures what a user waits for: the engine, start-up, compiling, the bank model.

    python benchmarks/run.py [--only PATTERN] [--runs 3] [--json FILE] [--markdown FILE] [--against FILE]
    python benchmarks/run.py --profile CASE
    python benchmarks/run.py --list

Seconds are CPU seconds of fresh processes, the least of several runs. Machines differ and are never quiet: the
reference loop (ten million additions) is run before and after each case, and ``--against`` takes it into account.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from cases import CASES, Case, Engine
from measure import Laboratory
from report import compared, tables


def picked(pattern: str) -> Sequence[Case]:
    """The cases whose name contains ``pattern``, or the one that is called so."""
    found = [c for c in CASES if c.name == pattern] or [c for c in CASES if pattern in c.name]
    if not found:
        raise SystemExit(f"error: no case has '{pattern}' in its name; --list shows them")
    return found


def profiled(pattern: str) -> Engine:
    """The one engine case meant."""
    found = [c for c in picked(pattern) if isinstance(c, Engine)]
    if not found:
        raise SystemExit(f"error: '{pattern}' is not a case of the engine; only those can be profiled")
    if len(found) > 1:
        raise SystemExit(f"error: '{pattern}' may be any of: {'; '.join(c.name for c in found)}")
    return found[0]


def loaded(file: Path) -> dict[str, Any]:
    """What an earlier ``--json`` saved."""
    try:
        saved = json.loads(file.read_text())
        for case in saved["cases"].values():
            _ = case["kind"], case["reference_s"], case["figures"]
    except OSError as e:
        raise SystemExit(f"error: cannot read {file}: {e.strerror}") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise SystemExit(f"error: {file} was not written by --json") from None
    return dict(saved)


def measured(cases: Sequence[Case], runs: int) -> dict[str, Any]:
    """All of them, as saved by ``--json``."""
    with tempfile.TemporaryDirectory() as folder:
        laboratory = Laboratory(Path(folder), runs)
        found = {}
        for k, case in enumerate(cases, 1):
            print(f"{k}/{len(cases)} {case.name}", file=sys.stderr)
            found[case.name] = laboratory.run(case)
    loops = laboratory.reference
    return {
        "python": platform.python_version(),
        "machine": platform.platform(),
        "cpus": os.cpu_count(),
        "runs": runs,
        "reference_s": {"least": min(loops), "median": median(loops), "most": max(loops), "all": loops},
        "cases": found,
    }


def parsed() -> argparse.Namespace:
    """The command line; what cannot work is said now, not after minutes."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", default="", metavar="PATTERN", help="cases with this in their names")
    options.add_argument("--runs", type=int, default=3, metavar="N", help="processes for each case (3)")
    options.add_argument("--json", type=Path, metavar="FILE", help="save the figures")
    options.add_argument("--markdown", type=Path, metavar="FILE", help="save what is printed")
    options.add_argument("--against", type=Path, metavar="FILE", help="print ratios to saved figures")
    options.add_argument("--profile", metavar="CASE", help="print where a case of the engine spends its time")
    options.add_argument("--list", action="store_true", help="print the names of the cases")
    args = options.parse_args()
    if args.runs < 1:
        raise SystemExit(f"error: --runs {args.runs}: at least one")
    for file in (args.json, args.markdown):
        if file is not None and file.is_dir():
            raise SystemExit(f"error: cannot write {file}: it is a folder")
        if file is not None and not file.parent.is_dir():
            raise SystemExit(f"error: cannot write {file}: there is no folder {file.parent}")
    return args


def main() -> None:
    args = parsed()
    cases = picked(args.only)
    before = loaded(args.against) if args.against else None
    if args.list:
        print("\n".join(c.name for c in cases))
    elif args.profile is not None:
        with tempfile.TemporaryDirectory() as folder:
            print(Laboratory(Path(folder), 1).profile(profiled(args.profile)))
    else:
        saved = measured(cases, args.runs)
        text = tables(saved) + (f"\n\n{compared(saved, before)}" if before is not None else "")
        print(text)
        if args.json:
            args.json.write_text(json.dumps(saved, indent=1) + "\n")
        if args.markdown:
            args.markdown.write_text(text + "\n")


if __name__ == "__main__":
    main()
