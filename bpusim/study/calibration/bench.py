"""Runs measured rows on a machine with given values of its parameters, each only once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bpusim.errors import StudyError
from bpusim.study.calibration.parameters import Parameter
from bpusim.study.calibration.recipe import Recipe
from bpusim.units import PS_PER_S

__all__ = ["Bench", "Figures"]

_MS = PS_PER_S // 1000


@dataclass(frozen=True, slots=True)
class Figures:
    """What a simulated row came to."""

    ttft_ms: float
    decode_tps: float


@dataclass(slots=True)
class Bench:
    """``machine``: a preset, or the absolute path of a machine file; ``folder``: for scenario files."""

    machine: str
    overrides: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    folder: Path
    told: Callable[[int], None] = lambda _runs: None
    runs: int = 0
    _kept: dict[tuple[object, ...], Figures] = field(default_factory=dict)

    def figures(self, recipe: Recipe, at: Sequence[float]) -> Figures:
        """Of a row with the parameters at coordinates ``at``."""
        values = {p.path: p.told(x) for p, x in zip(self.parameters, at, strict=True)}
        key = (recipe.key, tuple(values.values()))
        if key not in self._kept:
            first, late = recipe.prompts
            ttft, gap = self._run(recipe, first, values)
            if late != first:
                _, gap = self._run(recipe, late, values)
            self._kept[key] = Figures(ttft / _MS, PS_PER_S / gap)
        return self._kept[key]

    def _run(self, recipe: Recipe, prompt: int, values: dict[str, str | float]) -> tuple[int, int]:
        """(time to first token, time from it to the next one), in ps."""
        import json

        from bpusim.documents import parse_value
        from bpusim.errors import Place
        from bpusim.scenario import load_scenario
        from bpusim.system import simulate

        path = self.folder / f"row-{recipe.row.line}-{prompt}.yaml"
        if not path.is_file():
            text = json.dumps(recipe.scenario(self.machine, prompt), ensure_ascii=False)  # which is YAML
            path.write_text(text, encoding="utf-8")
        given = (text.partition("=") for text in self.overrides)
        changes = {k.strip(): parse_value(v.strip(), place=Place(f"--set {k}"), error=StudyError) for k, _, v in given}
        result = simulate(load_scenario(path, {**changes, **recipe.overrides, **values}), records=True)
        self.runs += 1
        self.told(self.runs)
        assert result.requests is not None  # records=True
        (request,) = result.requests
        return request.ttft, (request.end - request.first_token) // (request.tokens - 1)
