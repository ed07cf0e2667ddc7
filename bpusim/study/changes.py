"""Single changes of a scenario that may help, each as overrides by path, and why the others do not apply."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from bpusim.hardware.presets import cooling_document
from bpusim.metrics.explanation import Change, Untried
from bpusim.scenario import Scenario
from bpusim.study.placing import placements
from bpusim.study.siblings import Siblings
from bpusim.trace import Trace

__all__ = ["changes_of"]

_FAN = "small_fan"
_MORE = Decimal("1.1")
Found = Change | Untried


def changes_of(scenario: Scenario, traces: Mapping[str, Trace]) -> tuple[list[Change], list[Untried]]:
    """(changes to try, changes that do not apply and why)."""
    desk = _Desk(scenario, traces)
    found = [one for make in _MAKERS for one in make(desk)]
    found += placements(scenario, traces)
    return [f for f in found if isinstance(f, Change)], [f for f in found if isinstance(f, Untried)]


@dataclass(frozen=True, slots=True)
class _Desk:
    scenario: Scenario
    traces: Mapping[str, Trace]
    by_trace: Mapping[Path, list[str]] = field(default_factory=dict)
    """Models by their trace: replicas change together."""

    def __post_init__(self) -> None:
        together: dict[Path, list[str]] = {}
        for name in self.scenario.models:
            together.setdefault(self.scenario.trace_path(name), []).append(name)
        object.__setattr__(self, "by_trace", together)

    def own(self, *path: str) -> Any:
        """What the scenario's files or overrides say at ``path``; None if it is a preset's."""
        place = self.scenario.where(*path).file
        if place not in self.scenario.folders and not place.startswith("--set"):
            return None
        at: Any = self.scenario.document.data
        for key in path:
            at = at.get(key) if isinstance(at, dict) else None
        return at


def _memory(desk: _Desk) -> Iterator[Found]:
    dram = desk.scenario.machine.dram
    yield Change("DRAM 10 % faster", (f"machine.dram.speed={_plain(Decimal(str(dram.speed)) * _MORE)}",))


def _dma(desk: _Desk) -> Iterator[Found]:
    dma = desk.scenario.machine.cores.dma
    window = round(dma.window * 1.1 / 64) * 64
    yield Change("DMA window 10 % larger", (f"machine.cores.dma.window={window} B",))
    yield Change("DMA port 10 % faster", (f"machine.cores.dma.port={_giga(dma.port * _MORE)}B/s",))


def _clock(desk: _Desk) -> Iterator[Found]:
    clock = desk.scenario.machine.cores.clock
    note = "the array is in the trace and stays; the DMA port does too"
    yield Change("core clock x 2", (f"machine.cores.clock={_giga(Decimal(2 * clock))}Hz",), note)


def _governors(desk: _Desk) -> Iterator[Found]:
    clocks = desk.scenario.machine.clocks
    for kind, spec in (("cores", clocks.cores), ("host", clocks.host), ("dram", clocks.dram)):
        if spec is None:
            continue
        path = f"machine.clocks.{kind}"
        if spec.governor != "performance":
            fixed = (f"{path}.fixed=null",) if spec.fixed is not None else ()
            yield Change(f"{kind} at their highest clock", (f"{path}.governor=performance", *fixed))
        if spec.sleep is not None:
            yield Change(f"{kind} never asleep", (f"{path}.sleep=null",))


def _host(desk: _Desk) -> Iterator[Found]:
    host = desk.scenario.host
    for name, path, now, better in (
        ("no log of ops", "logging", host.logging, "off"),
        ("memory pool", "memory_pool", host.memory_pool, "on"),
        ("async submit", "submit", host.submit, "async"),
    ):
        if now == better:
            yield Untried(name, "it is so already")
        else:
            yield Change(name, (f"host.{path}={better}",))


def _fallback(desk: _Desk) -> Iterator[Found]:
    name = "no CPU fallback"
    for path, models in desk.by_trace.items():
        trace = desk.traces[models[0]]
        if not any(op.unit == "cpu" for p in trace.phases.values() for op in p.ops()):
            continue
        beside = Siblings(path, trace)
        other = beside.without_fallbacks()
        if other is not None:
            yield _with_trace(f"{name} of {', '.join(models)}", models, other)
            continue
        reasons = {
            kind: row.get("why", "")
            for kind, row in trace.header.report.get("cpu_fallbacks", {}).items()
            if isinstance(row, dict)
        }
        forced = [kind for kind, why in reasons.items() if why == "forced by --fallback-op"]
        if reasons and len(forced) == len(reasons):
            yield Untried(name, f"no trace beside {path.name} is like it but for its CPU ops", beside.command())
        else:
            kinds = "; ".join(f"{kind}: {why}" for kind, why in reasons.items()) or "its trace does not say why"
            yield Untried(name, f"ops of {', '.join(models)} are on the CPU for reasons of their own ({kinds})")
    if not any(op.unit == "cpu" for t in desk.traces.values() for p in t.phases.values() for op in p.ops()):
        yield Untried(name, "no op is on the CPU")


def _weights(desk: _Desk) -> Iterator[Found]:
    for path, models in desk.by_trace.items():
        trace = desk.traces[models[0]]
        plan = trace.header.quant.get("plan")
        beside = Siblings(path, trace)
        for other in [p for p in ("int4", "int8") if p != plan]:
            name = f"{other} weights for {', '.join(models)}"
            found = beside.with_weights(other)
            if found is not None:
                yield _with_trace(name, models, found)
            elif plan is None:
                yield Untried(name, f"{path.name} does not say what its weights are")
            else:
                why = f"no trace beside {path.name} is like it but for its weights"
                yield Untried(name, why, beside.command(plan=other))


def _with_trace(name: str, models: list[str], path: Path) -> Change:
    """Paths in an override start from the working directory."""
    return Change(name, tuple(f"models.{m}.trace={_text(os.path.relpath(path))}" for m in models))


def _fan(desk: _Desk) -> Iterator[Found]:
    name = "a fan"
    cooling = desk.scenario.machine.cooling
    if cooling is None:
        yield Untried(name, "nothing is said of heat; see machine.cooling")
        return
    if cooling.fan is not None:
        yield Untried(name, "it has one")
        return
    preset = cooling_document(_FAN).data
    if set(preset["nodes"]) != set(cooling.nodes):
        yield Untried(name, f"the heat path has other nodes than {_FAN}; write one into machine.cooling.fan")
        return
    sets = [f"machine.cooling.preset={_FAN}"]
    for zone, spec in preset["zones"].items():
        mine = desk.own("machine", "cooling", "zones", zone, "trips")
        if mine is not None:  # they take the place of the preset's, and know of no fan
            turning = [t for t in spec["trips"] if "fan" in t.get("devices", ())]
            sets.append(f"machine.cooling.zones.{zone}.trips={json.dumps([*turning, *mine])}")
    yield Change(name, tuple(sets), whole=True)


_MAKERS: tuple[Callable[[_Desk], Iterator[Found]], ...] = (
    _memory, _dma, _clock, _governors, _host, _fallback, _weights, _fan,
)  # fmt: skip


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}"


def _giga(number: Decimal) -> str:
    """A number of base units exactly, in giga: ``18.81 G``."""
    return f"{_plain(number / 10**9)} G"


def _text(path: str) -> str:
    """A path as YAML reads it back."""
    return path if path and all(c.isalnum() or c in "._-/" for c in path) else json.dumps(path)
