"""A walk over a graph: nodes still to come, what is known so far, and all that is wrong, in one error at the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bpusim.compiler.graph import INTEGER, Graph, Node, Stored
from bpusim.compiler.nested import with_bodies
from bpusim.compiler.program import Program
from bpusim.compiler.symbols import Bindings, leaves
from bpusim.compiler.values import EmptyCacheError, Value
from bpusim.errors import CompileError, Place, Problem, did_you_mean

__all__ = ["MOST", "Step", "Walk"]

Step = Callable[[], None]
"""Something to do between two nodes, such as giving a branch's result its name outside."""
MOST = 20_000
"""Nodes walked at most: loops of more make a trace that nobody can use."""


@dataclass(slots=True)
class Walk:
    """The state of one walk. ``values`` and ``stored`` are those of the analysis that it fills."""

    graph: Graph
    bindings: Bindings
    assume: Mapping[str, str]
    values: dict[str, Value]
    stored: dict[str, Stored]
    pending: deque[Node | Step] = field(default_factory=deque)
    lost: set[str] = field(default_factory=set)
    """Tensors of unknown shape: what depends on them cannot be judged."""
    problems: list[Problem] = field(default_factory=list)
    blamed: dict[tuple[str, str, str], list[Node]] = field(default_factory=dict)
    """Nodes by type, by what is wrong with them, and by what to do."""
    over_cache: set[tuple[str, str, str]] = field(default_factory=set)
    """Which of those would be right over an empty cache."""
    unbound: bool = False
    """Whether something could not be worked out because a size is not bound."""
    ruleless: dict[str, list[Node]] = field(default_factory=dict)
    """Nodes without a cost rule that cannot run on the CPU either, by what is wrong with them."""
    taken: dict[str, str] = field(default_factory=dict)
    """What was taken of a node whose outcome the data or a bound value decide, by node."""
    makers: dict[str, Node] = field(default_factory=dict)
    program: Program = field(default_factory=Program)
    _used: set[str] = field(default_factory=set)
    _count: int = 0

    def next(self) -> Node | None:
        """The next node, steps before it taken; None at the end."""
        while self.pending:
            item = self.pending.popleft()
            self._count += 1
            if self._count > 2 * MOST:  # steps between nodes count too: a loop may be empty and without end
                what = f"more than {MOST} nodes once loops are unrolled"
                raise CompileError(what, place=self.place, do="bind or assume a smaller trip count")
            if isinstance(item, Node):
                self.makers.update((o, item) for o in item.outputs if o)
                return item
            item()
        return None

    def push(self, *items: Node | Step) -> None:
        """Put ``items`` before all that is still to come."""
        self.pending.extendleft(reversed(items))

    @property
    def place(self) -> Place:
        """The file."""
        return Place(self.graph.file)

    def refuse(self, node: Node, what: str, do: str = "", over_cache: bool = False) -> None:
        """Note what is wrong with ``node``, perhaps over a cache that holds anything only; its results are lost."""
        self.blamed.setdefault((node.kind, what, do), []).append(node)
        if over_cache:
            self.over_cache.add((node.kind, what, do))
        self.lose(node)

    def lose(self, node: Node) -> None:
        """The results of ``node`` are unknown."""
        self.lost.update(filter(None, node.outputs))

    def rename(self, source: str, target: str) -> None:
        """``target`` is the same tensor as ``source``."""
        if source in self.lost or source not in self.values:
            self.lost.add(target)
        else:
            self.values[target] = self.values[source]
            if source != target:
                self.program.nodes.append(Node("Identity", "", "", (source,), (target,), {}))

    def number(self, name: str) -> int | None:
        """The value of an integer of one element, where it is known."""
        value = self.values.get(name)
        if value is None or value.const is None or len(value.const) != 1 or not value.const[0].is_const:
            return None
        return int(value.const[0])

    def assumed(self, node: Node) -> str | None:
        """What ``--assume`` says of a node, by its name or one of its results."""
        for name in filter(None, (node.name, node.origin, *node.outputs)):
            if name in self.assume:
                self._used.add(name)
                return self.assume[name]
        return None

    def assumed_count(self, node: Node) -> int | None:
        """A number that ``--assume`` says of a node."""
        text = self.assumed(node)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit()):
            what = f"--assume {node.label}={text}: {node} takes a number"
            raise CompileError(what, place=self.place, do=f"write --assume {node.label}=10")
        self.taken[str(node)] = f"{text}, assumed"
        return int(text)

    def how(self, name: str, node: Node, example: str) -> str:
        """What to do so that ``name`` is known: bind the inputs it is computed from, or assume its outcome."""
        inputs = self._sources(name)
        first = " and ".join(f"--bind {i}=NUMBER" for i in inputs)
        return f"add {first}, or --assume {node.label}={example}" if first else f"add --assume {node.label}={example}"

    def how_bound(self, name: str) -> str:
        """How to make ``name`` known: bind the scalar inputs it comes from; empty where it comes from others too."""
        names = self._sources(name)
        return "add " + " and ".join(f"--bind {n}=NUMBER" for n in names) if names else ""

    def after(self, node: Node, most: int = 4) -> list[str]:
        """The next tensors that depend on ``node``, quoted."""
        reached = set(node.outputs)
        found: list[str] = []
        for later in self.graph.nodes:
            if reached.intersection(later.needs):
                reached.update(later.outputs)
                found += [f"'{o}'" for o in later.outputs if o]
        return found[:most]

    def _sources(self, name: str) -> list[str]:
        """The scalar integer inputs that alone decide ``name``; none if anything else does too."""
        found: list[str] = []
        pending, seen = [name], {name}
        while pending:
            tensor = pending.pop()
            if tensor in self.graph.inputs:
                dtype, dims = self.graph.inputs[tensor]
                if dtype not in INTEGER or any(d != 1 for d in dims) or tensor in self.graph.unshaped:
                    return []
                found.append(tensor)
            value = self.values.get(tensor)
            if tensor in self.makers and (value is None or value.const is None):
                fresh = [n for n in self.makers[tensor].needs if n not in seen]
                seen.update(fresh)
                pending += fresh
        return sorted(found)

    def unbound_sizes(self) -> list[Problem]:
        """Every size of the inputs that nobody bound, with how to bind it."""
        read = {i for n in self.graph.nodes for i in n.needs}
        asked: dict[str, list[str]] = {}
        for name, (_, dims) in self.graph.inputs.items():
            if name not in read or name in self.bindings.shapes:
                continue
            for i, d in enumerate(dims):
                if isinstance(d, int) or (d and not any(t[0] == "?" for t in self.bindings.size(d, "").terms)):
                    continue
                for leaf in [f"{name}[{i}]"] if not d else leaves(d, self.bindings.plain):
                    if leaf not in self.bindings.sizes:
                        asked.setdefault(leaf, []).append(name)
        out = []
        for leaf, inputs in sorted(asked.items()):
            name = inputs[0]
            dims = self.graph.inputs[name][1]
            shape = "x".join(str(d) if isinstance(d, int) else "N" for d in dims)
            named = leaf != f"{name}[{leaf[len(name) + 1 : -1]}]"
            quoted = f'"{leaf}=NUMBER"' if " " in leaf else f"{leaf}=NUMBER"
            do = f"add --bind {quoted}, or the input's whole shape: --bind {name}={shape}"
            if not named:
                do = f"add the input's whole shape: --bind {name}={shape}"
            out.append(Problem(f"the size '{leaf}' is not bound", self.place, do))
        return out

    def finish(self) -> None:
        """Raise all that is wrong, if anything is."""
        self.problems += [self._problem(*key) for key in self.blamed]
        for told, nodes in self.ruleless.items():
            kind, what, do = told.split("\n", 2)
            self.problems.append(Problem(f"{_times(kind, nodes)}: no cost rule for {kind}{what}", self.place, do))
        if self.unbound or (self.problems and not self.bindings.preset):  # one round of binding, not two
            self.problems = self.unbound_sizes() + self.problems
        self._check_assumptions()
        if self.problems:
            for text in self.bindings.overridden.values():
                self.problems.append(Problem(f"{text}; the above may come from that", self.place))
            if not self.over_cache:
                raise CompileError(self.problems)
            error = EmptyCacheError(self.problems)
            error.clashes = tuple(self._problem(*key) for key in self.blamed if key in self.over_cache)
            raise error

    def _problem(self, kind: str, what: str, do: str) -> Problem:
        """What is wrong with the nodes that are blamed for it."""
        return Problem(f"{_times(kind, self.blamed[kind, what, do])}: {what}", self.place, do)

    def _check_assumptions(self) -> None:
        """An assumption that does nothing is refused; while other things are wrong, only one that names no node."""
        names = {x for n in with_bodies(self.graph.nodes) for x in (n.name, *n.outputs) if x}
        for name in self.assume.keys() - self._used:
            if name not in names:
                do = did_you_mean(name, sorted(names))
                what = f"--assume {name}: the model has no such node"
                self.problems.append(Problem(what, self.place, do if do.startswith("did") else ""))
            elif not self.problems:
                what = f"--assume {name}: nothing is unknown of this node, or it is not reached"
                self.problems.append(Problem(what, self.place, "leave it out"))


def _times(kind: str, nodes: list[Node]) -> str:
    """A node, or how many of its kind there are and which is the first."""
    return f"{len(nodes)} x {kind}, first '{nodes[0].label}'" if len(nodes) > 1 else str(nodes[0])
