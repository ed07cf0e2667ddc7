"""What reports and charts are made from: the files of a result's folder, and nothing else."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bpusim.errors import BpusimError, Place
from bpusim.report.rows import chats_of

__all__ = ["MANIFEST", "View"]

MANIFEST = "bpusim-manifest/1"
"""The schema of ``manifest.json``, by which a folder is known as a result."""
_NEEDED = ("manifest.json", "summary.json")
_SCHEMAS = {"manifest.json": MANIFEST, "summary.json": "bpusim-summary/1", "series.json": "bpusim-series/1"}


@dataclass(frozen=True, slots=True)
class View:
    """The files of a result, read. ``series`` is None of a run without report, ``thermal`` (columns by name) of one
    without heat."""

    manifest: Mapping[str, Any]
    summary: Mapping[str, Any]
    series: Mapping[str, Any] | None
    thermal: Mapping[str, list[float]] | None

    def needed(self, part: str) -> Any:
        """A part of the series; raises :class:`BpusimError` if there are none."""
        if self.series is None:
            raise BpusimError("this run kept no series", do="run it again without --no-report")
        return self.series[part]

    def percentiles(self, entry: Mapping[str, Any]) -> dict[str, float | None]:
        """The summary's, in ms by name (``p99``), of an entry of the series' latencies."""
        stream, what = entry["stream"], entry["what"]
        stage = what.removeprefix("to the end of ")
        table: Mapping[str, Any]
        if stage != what:
            table, prefix = self.summary["streams"][stream]["ends"][stage], ""
        elif what == "frame":
            table, prefix = self.summary["streams"][stream], "latency_"
        else:
            table, prefix = chats_of(self.summary)[stream], "ttft_" if what == "first token" else "itl_"
        return {f"p{q}": table[f"{prefix}p{q}_ms"] for q in (50, 90, 95, 99)}

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> View:
        """From texts by file name."""
        series = texts.get("series.json")
        return cls(
            json.loads(texts["manifest.json"]),
            json.loads(texts["summary.json"]),
            json.loads(series) if series is not None else None,
            _columns(texts["thermal.csv"]) if "thermal.csv" in texts else None,
        )

    @classmethod
    def read(cls, folder: Path) -> View:
        """Raises :class:`BpusimError` for what is no folder of a result."""
        place = Place(str(folder))
        if not folder.is_dir():
            what = "this is a file" if folder.exists() else "there is no such folder"
            raise BpusimError(what, place=place, do="name a folder that `bpusim run SCENARIO -o FOLDER` wrote")
        texts = {}
        for name in (*_NEEDED, "series.json", "thermal.csv"):
            try:
                texts[name] = (folder / name).read_text(encoding="utf-8")
            except FileNotFoundError:
                if name in _NEEDED:
                    do = "name a folder that `bpusim run SCENARIO -o FOLDER` wrote"
                    raise BpusimError(f"not a result: it has no {name}", place=place, do=do) from None
            except (OSError, UnicodeError) as e:
                raise BpusimError(f"cannot read {name}: {e}", place=place) from None
        for name, text in texts.items():
            if name in _SCHEMAS:
                _check(name, text, place)
        try:
            return cls.of(texts)
        except (ValueError, LookupError, TypeError):
            raise BpusimError("thermal.csv is damaged", place=place, do="run the scenario again") from None


def _check(name: str, text: str, place: Place) -> None:
    try:
        schema = json.loads(text)["schema"]
    except (ValueError, LookupError, TypeError):
        raise BpusimError(f"not a result: {name} is not what bpusim writes", place=place) from None
    if schema != _SCHEMAS[name]:
        what = f"{name} is of schema {schema}, and this version reads {_SCHEMAS[name]}"
        raise BpusimError(what, place=place, do="run the scenario again")


def _columns(text: str) -> dict[str, list[float]]:
    head, *rows = csv.reader(io.StringIO(text))
    return {name: [float(row[k]) for row in rows] for k, name in enumerate(head)}
