"""One row of measurements from its cells: what they say, what is assumed where they are empty, what is wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from bpusim.errors import Place, Problem
from bpusim.study.calibration.rows import Architecture, Measured

__all__ = ["SHAPE", "RowReader", "chunk_of"]

SHAPE = ("layers", "hidden", "n_heads", "n_kv", "ffn", "vocab", "tied")
"""Columns of a model that no trace or configuration describes."""
_BITS = re.compile(r"(?:w|int|i|q|fp|f|bf)(\d+)", re.IGNORECASE)
"""Begin of a ``quant`` that says the bits of weights: w4, w4a16, w8a8, int8, q4_0, fp16, bf16."""
_Number = TypeVar("_Number", int, float)


@dataclass(slots=True)
class RowReader:
    """Reads one row. ``problems``: gets what is wrong with it."""

    path: Path
    line: int
    cells: Mapping[str, str]
    problems: list[Problem]
    unusable: str | None = None
    assumed: list[str] = field(default_factory=list)

    def wrong(self, what: str, do: str) -> None:
        """One more problem, at this line."""
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
        """The row; what is wrong with it is among ``problems``."""
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
