"""Measurements from a CSV file."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path

from bpusim.errors import Place, Problem, StudyError, did_you_mean
from bpusim.study.calibration.cells import SHAPE, RowReader
from bpusim.study.calibration.rows import Measured, Measurements

__all__ = ["read_measurements"]

KNOWN = (
    "row_id", "board", "npu_cores_used", "npu_cores_total", "peak_gbs", "model", "layers", "hidden", "n_heads", "n_kv",
    "head_dim", "ffn", "vocab", "tied", "model_type", "quant", "w_bits", "w_group", "a_bits", "prompt_len", "gen_len",
    "ctx_or_cache", "chunk", "kv", "ttft_ms", "decode_tps", "weight_bytes_est", "trace", "config", "note",
)  # fmt: skip
"""Columns that are read. Others (sources, conditions) are left alone."""


def read_measurements(path: Path, board: str | None = None) -> Measurements:
    """Rows of ``path``, those of ``board`` alone if it is given. Raises :class:`StudyError` with all problems."""
    try:
        data = path.read_bytes()
        lines = data.decode("utf-8-sig").splitlines()
    except OSError as e:
        raise StudyError(f"cannot read measurements: {e.strerror}", place=Place(str(path))) from None
    except UnicodeDecodeError:
        raise StudyError("the file is not UTF-8", place=Place(str(path)), do="save it as UTF-8") from None
    if not "".join(lines).strip():
        raise StudyError("the file is empty", place=Place(str(path)), do="give it a head and a line a run")
    reader = csv.DictReader(lines)
    names = [n.strip() for n in reader.fieldnames or ()]
    reader.fieldnames = names
    _check_columns(names, path)
    rows: list[Measured] = []
    problems: list[Problem] = []
    ids: dict[str, int] = {}
    for record in reader:
        line = reader.line_num
        if None in record or any(v is None for v in record.values()):
            what = f"{len(names)} columns in the head, and {'more' if None in record else 'fewer'} in this line"
            problems.append(Problem(what, Place(str(path), line), "give the line as many; quote texts with commas"))
            continue
        row = RowReader(path, line, {k: v.strip() for k, v in record.items()}, problems).row()
        if row.id in ids:
            what = f"row_id {row.id} is that of line {ids[row.id]} too"
            problems.append(Problem(what, Place(str(path), line), "give each row an id of its own"))
        ids[row.id] = line
        rows.append(row)
    if problems:
        raise StudyError(problems)
    boards = tuple(dict.fromkeys(r.board for r in rows))
    kept = tuple(r for r in rows if board is None or r.board == board)
    if not kept:
        what = f"no row of board '{board}'" if rows else "no rows"
        raise StudyError(what, place=Place(str(path)), do=did_you_mean(board or "", list(boards)) if rows else "")
    if board is None and len(boards) > 1:
        raise StudyError(
            f"rows of {len(boards)} boards: {', '.join(boards)}", place=Place(str(path)),
            do=f"a machine is one of them: --board '{boards[0]}'",
        )  # fmt: skip
    return Measurements(path.name, hashlib.sha256(data).hexdigest(), kept, len(rows) - len(kept), boards)


def _check_columns(names: list[str], path: Path) -> None:
    place = Place(str(path), 1)
    if len(names) == 1 and (mark := next((m for m in (";", "\t", "|") if m in names[0]), None)):
        raise StudyError(f"columns are separated by {mark!r}", place=place, do="separate them by commas")
    problems = [
        Problem(f"column '{n}' is there twice", place, "keep one") for n in dict.fromkeys(names) if names.count(n) > 1
    ]
    missing = [] if {"trace", "config"} & set(names) else [n for n in SHAPE if n not in names]
    told = [f"'{n}'" for n in missing]
    if not {"ttft_ms", "decode_tps"} & set(names):
        told.append("'ttft_ms' or 'decode_tps'")
    if told:
        others = [n for n in names if n not in KNOWN]
        hints = [h for n in missing if (h := did_you_mean(n, others)).startswith("did")]
        add = f"add {'them' if len(told) > 1 else 'it'}{', or a column trace or config' if missing else ''}"
        do = "; ".join(hints) if len(hints) == len(told) else "; ".join([*hints, f"{add}; it reads {', '.join(KNOWN)}"])
        what = f"column {told[0]} is missing" if len(told) == 1 else f"columns {', '.join(told)} are missing"
        problems.append(Problem(what, place, do))
    if problems:
        raise StudyError(problems)
