"""Other places for the models of a scenario: other cores, splits over cores, one copy and a batch for several users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bpusim.metrics.explanation import Change, Untried
from bpusim.scenario import ChatSpec, ModelSpec, Scenario
from bpusim.study.bounds import models_of
from bpusim.system.streams import parts_of, sequences_most
from bpusim.trace import Repeat, Trace

__all__ = ["placements"]

_SYNC = "20 us"
"""Of a barrier, where a tensor split is tried and nothing says what one costs: as in scenario tensor_split."""
Found = Change | Untried


def placements(scenario: Scenario, traces: Mapping[str, Trace]) -> list[Found]:
    """Changes of where models run, and why others do not apply."""
    desk = _Desk(scenario, traces)
    return [one for make in (_cores, _splits, _replicas, _batches) for one in make(desk)]


@dataclass(frozen=True, slots=True)
class _Desk:
    scenario: Scenario
    traces: Mapping[str, Trace]

    @property
    def names(self) -> tuple[str, ...]:
        """Of cores."""
        return self.scenario.machine.cores.names

    def models(self) -> Iterator[tuple[str, ModelSpec]]:
        """Those that somebody asks."""
        asked = {m for _, spec in parts_of(self.scenario) for m in models_of(spec)}
        return ((n, m) for n, m in self.scenario.models.items() if n in asked)

    def load(self) -> Counter[str]:
        """Models on each core."""
        return Counter(c for _, m in self.models() for c in m.cores if m.cores != ("any",))

    def free(self, name: str) -> bool:
        """Whether its trace may run on any core."""
        return self.traces[name].header.cores == "any"


def _cores(desk: _Desk) -> Iterator[Found]:
    """A model that shares its core goes to the emptiest."""
    load, name = desk.load(), "another core"
    emptiest = min(desk.names, key=lambda c: (load[c], desk.names.index(c)))
    crowded = [(n, m) for n, m in desk.models() if len(m.cores) == 1 and load[m.cores[0]] > 1]
    found = [(n, m) for n, m in crowded if load[emptiest] + 1 < load[m.cores[0]] or not load[emptiest]]
    for model, _ in found:
        if desk.free(model):
            yield Change(f"{model} on {emptiest}", (f"models.{model}.cores={emptiest}",))
        else:
            yield Untried(name, f"the trace of {model} is pinned")
    if not found:
        why = "no core is emptier" if crowded else "no two models share a core, and cores are alike"
        yield Untried(name, why)


def _splits(desk: _Desk) -> Iterator[Found]:
    """A model over idle cores too, or back on one."""
    load, over = desk.load(), ", ".join(desk.names)
    idle = [c for c in desk.names if not load[c]]
    for name, m in desk.models():
        path = f"models.{name}"
        if len(m.cores) > 1:
            unset = tuple(f"{path}.{k}=null" for k in ("split", "sync", "unsplit") if getattr(m, k) is not None)
            yield Change(f"{name} on {m.cores[0]} alone", (f"{path}.cores={m.cores[0]}", *unset))
        every = f"{path}.cores=[{', '.join(m.cores if len(m.cores) > 1 else desk.names)}]"
        apart = m.split is not None and m.split != "tensor"
        alone = len(m.cores) == 1 and m.cores != ("any",) and idle and load[m.cores[0]] == 1
        if not (alone or len(m.cores) > 1):
            why = (
                "it may go to any core"
                if m.cores == ("any",)
                else "no core is idle"
                if not idle
                else "it shares its core"
            )
            yield Untried(f"{name} split over cores", f"{why}: one change would not do")
        elif not desk.free(name):
            yield Untried(f"{name} split over cores", "its trace is pinned")
        else:
            if not apart and _layers(desk.traces[name]):
                unset = tuple(f"{path}.{k}=null" for k in ("sync", "unsplit") if getattr(m, k) is not None)
                yield Change(f"{name}: a part of its layers on each of {over}", (every, f"{path}.split=even", *unset))
            elif not apart:
                yield Untried(f"{name}: a part of its layers on each core", "no layers are repeated")
            if m.split != "tensor":
                sets = (every, f"{path}.split=tensor", f"{path}.sync={_SYNC}")
                yield Change(f"{name}: each op over {over}", sets, f"with barriers of {_SYNC}")


def _layers(trace: Trace) -> bool:
    return all(any(isinstance(i, Repeat) for i in p.items) for p in trace.phases.values())


def _replicas(desk: _Desk) -> Iterator[Found]:
    """Copies of one model: all on one core, or one copy that serves all in one step."""
    scenario = desk.scenario
    groups: dict[object, list[str]] = {}
    for name, _ in desk.models():
        groups.setdefault(scenario.trace_path(name), []).append(name)
    copies = [models for models in groups.values() if len(models) > 1]
    if not copies:
        yield Untried("one copy for several streams", "no two models have the same trace")
    for first, *others in copies:
        core = scenario.models[first].cores
        if len(core) == 1 and core != ("any",) and any(scenario.models[o].cores != core for o in others):
            sets = tuple(f"models.{o}.cores={core[0]}" for o in others if scenario.models[o].cores != core)
            yield Change(f"{first}, {', '.join(others)} on {core[0]}", sets)
        chats = {n: s for n, s in scenario.streams.items() if isinstance(s, ChatSpec) and s.chat in (first, *others)}
        asked = [m for _, spec in parts_of(scenario) for m in models_of(spec) if m in (first, *others)]
        if len(chats) < 2 or len(chats) != len(asked):
            yield Untried(f"one copy of {first} with a batch", "a pipeline or a camera asks one of the copies")
            continue
        most = sum(s.users for s in chats.values())
        moved = tuple(f"streams.{n}.chat={first}" for n, s in chats.items() if s.chat != first)
        note = f"the other {'copies stay' if len(others) > 1 else 'copy stays'} in memory, unused"
        yield Change(f"{first} for all, a batch of {most}", (*moved, f"models.{first}.batch={most}"), note)


def _batches(desk: _Desk) -> Iterator[Found]:
    """Sequences of a model in one step, or each by itself."""
    for name, m in desk.models():
        most = sequences_most(desk.scenario, name) or m.sequences or 1
        if m.batch > 1:
            yield Change(f"{name} without a batch", (f"models.{name}.batch=1",))
        elif "decode" in desk.traces[name].phases and most > 1:
            yield Change(f"{name} with a batch of {most}", (f"models.{name}.batch={most}",))
        elif "decode" in desk.traces[name].phases:
            yield Untried(f"{name} with a batch", "it never has two sequences at a time")
