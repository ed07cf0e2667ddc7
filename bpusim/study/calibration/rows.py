"""Measurements from a CSV file: a row a run of one language model on a board."""

from __future__ import annotations

import csv
import hashlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from bpusim.errors import Place, Problem, StudyError, did_you_mean

__all__ = ["Architecture", "Measured", "Measurements", "read_measurements"]

KNOWN = (
    "row_id", "board", "npu_cores_used", "npu_cores_total", "peak_gbs", "model", "layers", "hidden", "n_heads", "n_kv",
    "head_dim", "ffn", "vocab", "tied", "model_type", "quant", "w_bits", "w_group", "a_bits", "prompt_len", "gen_len",
    "ctx_or_cache", "chunk", "kv", "ttft_ms", "decode_tps", "weight_bytes_est", "trace", "config", "note",
)  # fmt: skip
"""Columns that are read. Others (sources, conditions) are left alone."""
_SHAPE = ("layers", "hidden", "n_heads", "n_kv", "ffn", "vocab", "tied")
_BITS = re.compile(r"(?:w|int|i|q|fp|f|bf)(\d+)", re.IGNORECASE)
"""Begin of a ``quant`` that says the bits of weights: w4, w4a16, w8a8, int8, q4_0, fp16, bf16."""
_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True, slots=True)
class Architecture:
    """A decoder-only language model with grouped-query attention and a gated feed-forward block."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    tied: bool
    kind: str
    """``model_type`` of its config.json."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A row. ``ttft_ms`` and ``decode_tps``: None where not measured; ``prompt``: where the source does not say."""

    id: str
    line: int
    board: str
    model: str
    quant: str
    cores: tuple[int, int] | None
    """Used, and there; None if the row does not say: one core of the machine."""
    architecture: Architecture | None
    trace: Path | None
    config: Path | None
    weight_bits: int
    """0 with a trace whose row does not say it: the trace has it."""
    group: int | None
    """Elements that share a scale; None: the whole channel, or the row does not say it."""
    activation: Literal["int8", "int16"]
    prompt: int | None
    generated: int
    context: int | None
    """Entries of the compiled cache, or of the context."""
    chunk: int
    kv: Literal["valid", "capacity"]
    ttft_ms: float | None
    decode_tps: float | None
    bytes_estimate: int | None
    peak_bytes_per_s: float | None
    note: str = ""
    unusable: str | None = None
    """Why it cannot be simulated."""
    assumed: tuple[str, ...] = ()
    """What the row does not say and its simulation needs."""

    @property
    def repeat_of(self) -> tuple[object, ...]:
        """What rows have in common that measure the same thing."""
        what = self.architecture or self.trace or self.config
        return (
            self.board, self.cores, what, self.weight_bits, self.group, self.activation,
            self.prompt, self.context, self.chunk, self.kv,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measurements:
    """Rows of a file; ``digest``: SHA-256 of the file; ``left_out``: rows of other boards."""

    file: str
    digest: str
    rows: tuple[Measured, ...]
    left_out: int = 0
    boards: tuple[str, ...] = field(default=())


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
        row = _Reader(path, line, {k: v.strip() for k, v in record.items()}, problems).row()
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
    problems = [Problem(f"column '{n}' is there twice", place, "keep one") for n in set(names) if names.count(n) > 1]
    missing = [] if {"trace", "config"} & set(names) else [n for n in _SHAPE if n not in names]
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


@dataclass(slots=True)
class _Reader:
    path: Path
    line: int
    cells: Mapping[str, str]
    problems: list[Problem]
    unusable: str | None = None
    assumed: list[str] = field(default_factory=list)

    def wrong(self, what: str, do: str) -> None:
        self.problems.append(Problem(what, Place(str(self.path), self.line), do))

    def number(self, name: str, make: Callable[[str], _Number], least: float = 0) -> _Number | None:
        """None where the cell is empty; a problem for text, and for what is not above ``least``."""
        text = self.cells.get(name, "")
        if not text:
            return None
        try:
            value = make(text)
        except ValueError:
            kind = "a whole number" if make is int else "a number"
            self.wrong(f"{name}: '{text}' is not {kind}", "write digits without a unit, or leave it empty")
            return None
        if not math.isfinite(value) or value <= least:
            self.wrong(f"{name}: {text} is not above {least:g}", "leave it empty if it was not measured")
            return None
        return value

    def row(self) -> Measured:
        c = self.cells
        prompt, context = self.number("prompt_len", int), self.number("ctx_or_cache", int)
        trace, config = self._file("trace"), self._file("config")
        bits = self._bits(compiled=trace is not None)
        if bits not in (0, 4, 8, 16):
            self.unusable = f"weights of {bits} bits: 4, 8 and 16 can be compiled"
        ttft, tps = self.number("ttft_ms", float), self.number("decode_tps", float)
        if ttft is None and tps is None:
            self.unusable = "neither ttft_ms nor decode_tps was measured"
        kv = c.get("kv") or ("capacity" if context is not None else "valid")
        if kv not in ("valid", "capacity"):
            self.wrong(f"kv: '{kv}'", "write valid, or capacity for a static graph that reads its whole cache")
        chunk = self.number("chunk", int) or chunk_of(prompt, context)
        if trace is None:
            if not c.get("chunk"):
                self.assumed.append(f"chunks of {chunk} tokens")
            if not c.get("a_bits"):
                self.assumed.append("16-bit activations")
            if not c.get("w_group") and bits in (4, 8):
                self.assumed.append("a scale a channel")
            if context is not None and not c.get("kv"):
                self.assumed.append("steps that read the whole cache")
        peak = self.number("peak_gbs", float)
        architecture = self._architecture() if trace is None and config is None else None
        return Measured(
            id=c.get("row_id") or str(self.line),
            line=self.line,
            board=c.get("board", ""),
            model=c.get("model") or (trace or config or Path(f"row {self.line}")).stem,
            quant=c.get("quant", ""),
            cores=self._cores(),
            architecture=architecture,
            trace=trace,
            config=config,
            weight_bits=bits,
            group=self._group(),
            activation="int8" if c.get("a_bits") == "8" else "int16",
            prompt=prompt,
            generated=self.number("gen_len", int) or 0,
            context=context,
            chunk=chunk,
            kv="capacity" if kv == "capacity" else "valid",
            ttft_ms=ttft,
            decode_tps=tps,
            bytes_estimate=self.number("weight_bytes_est", int),
            peak_bytes_per_s=peak * 1e9 if peak is not None else None,
            note=c.get("note", ""),
            unusable=self.unusable,
            assumed=tuple(self.assumed),
        )

    def _bits(self, *, compiled: bool) -> int:
        """Of weights: w_bits, else what quant says, which must not contradict it; 0 if a trace has them."""
        bits, quant = self.number("w_bits", int), self.cells.get("quant", "")
        match = _BITS.match(quant)
        told = int(match[1]) if match else None
        if bits is None and self.cells.get("w_bits"):
            return 0  # no number: told already
        if bits is not None and told is not None and bits != told:
            self.wrong(f"quant '{quant}' and w_bits {bits} contradict each other", "correct one of them")
        if bits is None and told is not None and not compiled:
            self.assumed.append(f"weights of {told} bits by quant '{quant}'")
        if bits is None and told is None and not compiled:
            self.wrong(
                "nothing says how wide the weights are", "write 4, 8 or 16 into w_bits, or w4, w8, fp16 into quant"
            )
        return bits or told or 0

    def _file(self, name: str) -> Path | None:
        """The file that a cell names, which must be there; a configuration is text."""
        text = self.cells.get(name)
        if not text:
            return None
        path = self.path.parent / text
        do = f"name a file, by its path from the folder of {self.path.name}"
        try:
            if path.is_dir():
                self.wrong(f"{name}: '{text}' is a folder", do)
            elif name == "config":
                path.read_text(encoding="utf-8")
            else:
                path.open("rb").close()
        except UnicodeDecodeError:
            self.wrong(f"{name}: '{text}' is not UTF-8", "save it as UTF-8")
        except FileNotFoundError:
            self.wrong(f"{name}: '{text}' does not exist", do)
        except (OSError, ValueError) as e:
            self.wrong(f"{name}: cannot read '{text}': {getattr(e, 'strerror', None) or e}", do)
        return path

    def _cores(self) -> tuple[int, int] | None:
        used, total = self.number("npu_cores_used", int), self.number("npu_cores_total", int)
        if used is None and total is None:
            return None
        if used is None or total is None:
            used = total = used or total or 1
            self.assumed.append(f"all cores used, {total}")
        if used > total:
            self.wrong(f"npu_cores_used: {used} of {total}", "correct one of them")
        return used, total

    def _group(self) -> int | None:
        text = self.cells.get("w_group", "")
        group = None if text in ("per-channel", "channel") else self.number("w_group", int)
        hidden = self.cells.get("hidden", "")
        if group is not None and hidden.isdecimal() and int(hidden) % group:
            do = "correct it, or leave it empty for a scale a channel"
            self.wrong(f"w_group: {group} does not divide hidden {hidden}", do)
        return group

    def _architecture(self) -> Architecture | None:
        found = {n: self.number(n, int) for n in ("layers", "hidden", "n_heads", "n_kv", "ffn", "vocab")}
        tied = self.cells.get("tied", "")
        if tied not in ("", "0", "1"):
            self.wrong(f"tied: '{tied}'", "write 1 where head and embedding are one table, else 0")
        empty = [name for name in (*found, "tied") if not self.cells.get(name)]
        if empty:
            self.unusable = f"{', '.join(empty)} not given: the model cannot be compiled"
        if None in found.values():
            return None
        v = {n: x for n, x in found.items() if x is not None}
        name = self.cells.get("model", "").lower()
        kind = self.cells.get("model_type") or ("qwen3" if name.startswith("qwen3") else "llama")
        head_dim = self.number("head_dim", int) or v["hidden"] // v["n_heads"]
        if not self.cells.get("head_dim"):
            self.assumed.append(f"heads of {head_dim}")
        return Architecture(
            v["layers"], v["hidden"], v["n_heads"], v["n_kv"], head_dim, v["ffn"], v["vocab"], tied == "1", kind
        )


def chunk_of(prompt: int | None, context: int | None) -> int:
    """Tokens of the prefill chunk where nothing says it: the least of 128, 256 and 512 that holds the prompt, 512 if
    none does, 256 for an unknown one; no more than the context."""
    sizes = (128, 256, 512)
    chunk = 256 if prompt is None else next((s for s in sizes if s >= prompt), sizes[-1])
    return min(chunk, context or chunk)
