"""``--verify``: every rewrite against what it replaces, on the same random inputs, and the whole graph end to end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from bpusim.compiler.analyse import Analysis, Draft
from bpusim.compiler.evaluate import NotRunError, evaluate
from bpusim.compiler.graph import Graph, Node
from bpusim.compiler.nested import all_tensors, live, needs, with_bodies
from bpusim.compiler.protos import model_of, opset_of
from bpusim.compiler.rewrite import Rewrite, constant
from bpusim.compiler.rewrites import rewrites
from bpusim.compiler.samples import Samples
from bpusim.errors import CompileError, Place, Problem

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LIMIT", "Row", "Verifier"]

LIMIT = 1e-3
"""Largest absolute error that passes."""
_MOST_MACS = 2 * 10**9
"""Products of one check at most; the whole graph is then left out, a part is not verified."""
_MOST_BYTES = 1 << 28
"""Weights of a whole graph at most."""
_SIZES = {"tokens": 3, "kv": 4}
"""A step of a language model that is verified: prefill takes three tokens, decode one, over four in the cache."""
_MOST_CHECKS = 20_000
"""Rewrites of a phase that are verified at most."""
_RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}
_WHOLE = "whole graph"
Arrays = Mapping[str, "NDArray[Any]"]


@dataclass(frozen=True, slots=True)
class Row:
    """One check. ``error``: largest absolute difference, None if it was not verified, for the reason in ``why``."""

    phase: str
    rule: str
    node: str
    error: float | None
    why: str = ""

    @property
    def passed(self) -> bool:
        """Whether it was verified and is within the limit."""
        return self.error is not None and self.error <= LIMIT

    def __str__(self) -> str:
        head = f"{self.phase}: {self.rule}, {self.node}: "
        if self.error is None:
            return head + f"not verified: {self.why}"
        shown = "computes something else" if self.error == inf else f"max abs error {self.error:.3g}"
        tail = f" ({self.why})" if self.why else ""
        return f"{head}{shown}{tail}, {'passed' if self.passed else 'FAILED'}"


@dataclass(slots=True)
class Verifier:
    """Verifies the phases of one compilation of ``model``; rows add up."""

    model: onnx.ModelProto
    seed: int = 0
    rows: list[Row] = field(default_factory=list)
    invented: set[str] = field(default_factory=set)

    def phase(self, name: str, graph: Graph, analysis: Analysis, fused: Sequence[Draft], tokens: int) -> None:
        """Verify one phase. Raises :class:`CompileError` with every rewrite that is wrong."""
        samples = Samples(graph, analysis, {**_SIZES, "tokens": tokens or _SIZES["tokens"]}, self.seed)
        check = _Check(self.model, samples, name)
        parts: dict[int, Sequence[Node]] = {}
        arrays: dict[str, NDArray[Any]] = {}
        inside: list[Rewrite] = []
        start = len(self.rows)
        pending = rewrites(samples, fused)
        while True:
            try:
                item = next(pending)
            except StopIteration:
                break
            except NotRunError as e:  # what is applied is not known in full: say so, never pass
                self.rows.append(Row(name, "rewrites", "some", None, str(e)))
                break
            samples.forget()
            if len(self.rows) - start >= _MOST_CHECKS:
                self.rows.append(Row(name, "rewrites", "the rest", None, f"more than {_MOST_CHECKS} of them"))
                break
            if isinstance(item, tuple):
                self.rows.append(Row(name, item[0], str(item[1]), inf, str(item[2])))
                continue
            self.rows.append(check.one(item))
            parts |= item.parts
            if item.parts:  # folded weights are stored as the floats that they were
                like = {n: samples.array(item.before[0].inputs[1]).dtype for n in item.arrays}
                arrays |= {n: a.astype(like[n]) for n, a in item.arrays.items()}
            inside += [item] if item.inside else []
        known = all(r.error is None or r.passed for r in self.rows[start:])
        self.rows.append(check.whole(parts, arrays, inside, wrong=not known))
        self.invented |= samples.invented
        wrong = [r for r in self.rows[start:] if r.error is not None and not r.passed]
        if wrong:
            do = "a rule of the compiler is wrong here: report it, with the model; nothing was written"
            what = [f"--verify: {r}; at most {LIMIT:g} passes" for r in wrong]
            raise CompileError([Problem(w, Place(graph.file), do) for w in what])

    def text(self) -> str:
        """A line a check, then what was not verified and why."""
        lines = [f"  {r}" for r in self.rows if r.error is not None]
        lines += [f"  {r}" for r in self.rows if r.error is None]
        if self.invented:
            some = ", ".join(sorted(self.invented)[:3])
            lines.append(f"  random weights stand for {len(self.invented)} tensors without data, such as {some}")
        passed = sum(r.passed for r in self.rows)
        lines.insert(0, f"verified: {passed} of {len(self.rows)} checks passed, seed {self.seed}")
        return "\n".join(lines)


@dataclass(slots=True)
class _Check:
    model: onnx.ModelProto
    samples: Samples
    phase: str

    def one(self, r: Rewrite) -> Row:
        """One rewrite: both forms on the same inputs."""
        s, node = self.samples, str(r.node)
        made = {o for n in r.after for o in n.outputs} | s.analysis.program.known.keys()
        missing = [o for o in r.results if o not in made]
        if missing:
            return Row(self.phase, r.rule, node, inf, f"it does not make '{missing[0]}'")
        before, after = live(r.before, r.results), live(r.after, r.results)
        beyond = [i for i in needs(after) if r.takes is not None and not self._given(i, r.takes)]
        if beyond:
            return Row(self.phase, r.rule, node, inf, f"it reads '{beyond[0]}', which it is not given")
        try:
            old, by = self._run(before, r, r.given)
            new, _ = self._run(after, r, r.arrays)
        except NotRunError as e:
            return Row(self.phase, r.rule, node, None, str(e))
        new = {o: s.analysis.program.known[o] for o in r.results if o in s.analysis.program.known} | new
        pairs = [(old[o], new[o]) for o in r.results]
        return Row(self.phase, r.rule, node, max((_error(a, b) for a, b in pairs), default=0.0), by)

    def _given(self, name: str, takes: frozenset[str]) -> bool:
        value = self.samples.analysis.values.get(name)
        there = value is not None and (value.static or value.storage in takes)
        return there or name in takes or self.samples.stored(name)

    def _run(self, nodes: Sequence[Node], r: Rewrite, extra: Arrays) -> tuple[dict[str, NDArray[Any]], str]:
        s = self.samples
        if not r.small:
            _check_macs(s, nodes)
        made = {o for n in nodes for o in n.outputs}
        results = [o for o in r.results if o in made]
        feeds: dict[str, NDArray[Any]] = {}
        weights: dict[str, NDArray[Any]] = {}
        for name in needs(nodes):
            if name in extra:
                array = extra[name]
            elif name in r.small:
                array = s.random(name, s.analysis.values[name].dtype, r.small[name])
            else:
                array = s.array(name)
            if r.wide and s.floating(array):
                array = array.astype(np.float64)
            (weights if s.stored(name) or name in r.arrays else feeds)[name] = array
        return self._evaluate(nodes, feeds, weights, results)

    def _evaluate(
        self, nodes: Sequence[Node], feeds: Arrays, weights: Arrays, results: Iterable[str]
    ) -> tuple[dict[str, NDArray[Any]], str]:
        opsets = self.samples.graph.opsets
        opset = opset_of(nodes, opsets)
        if opset is None:
            raise NotRunError("it mixes operators of several opsets of ai.onnx")
        functions = self.model.functions if any(n.domain for n in nodes) else ()
        known = {o.domain or "ai.onnx": o.version for f in functions for o in f.opset_import} | opsets
        try:
            model = model_of(nodes, feeds, results, known, functions, opset, weights)
        except (ValueError, TypeError, onnx.checker.ValidationError) as e:
            raise NotRunError(f"it has no form as a model ({e})") from e
        return evaluate(model, feeds)

    def whole(
        self, parts: Mapping[int, Sequence[Node]], arrays: Arrays, inside: Sequence[Rewrite], wrong: bool = False
    ) -> Row:
        """The model as it is in the file against the whole rewritten graph."""
        s, graph = self.samples, self.samples.graph
        try:
            self._check_whole(wrong)
            forms = {id(n): list(parts.get(id(n), [n])) for n in s.analysis.program.nodes}
            for r in inside:
                for n in r.before:
                    forms[id(n)] = [p.renamed(r.inside) for p in forms[id(n)]]
            made = [p for n in s.analysis.program.nodes for p in forms[id(n)]]
            plain = [o for o in graph.outputs if o in s.analysis.program.known or o in graph.sources]
            made += [constant(o, s.array(o)) for o in plain]
            nodes = live(made, graph.outputs)
            feeds = {name: s.array(name) for name in s.analysis.inputs}
            old, by = evaluate(self._original(), feeds)
            weights: dict[str, NDArray[Any]] = {}
            for name in needs(nodes):
                if name not in feeds:
                    array = arrays.get(name)
                    lost = array is None and name not in graph.sources and name not in s.analysis.program.known
                    if lost:
                        return Row(self.phase, _WHOLE, "all", inf, f"'{name}' is read, but is inside a fused op")
                    weights[name] = s.array(name) if array is None else array
            new, _ = self._evaluate(nodes, feeds, weights, graph.outputs)
        except NotRunError as e:
            return Row(self.phase, _WHOLE, "all", None, str(e))
        error = 0.0
        for o in graph.outputs:
            size = float(np.max(np.abs(old[o].astype(np.float64)), initial=1.0)) if old[o].dtype.kind != "b" else 1.0
            error = max(error, _error(old[o], new[o]) / (size if np.isfinite(size) else 1.0))
        return Row(self.phase, _WHOLE, f"{len(nodes)} nodes", error, f"of the largest result, {by}")

    def _check_whole(self, wrong: bool) -> None:
        s, graph = self.samples, self.samples.graph
        if wrong:
            raise NotRunError("a rewrite in it is wrong")
        assumed = [n for n, what in s.analysis.taken.items() if what.endswith("assumed")]
        if assumed:
            raise NotRunError(f"{assumed[0]} is assumed, where the data decide")
        chance = [str(n) for n in s.analysis.program.nodes if n.type in _RANDOM]
        if chance:
            raise NotRunError(f"{chance[0]} gives random results")
        weights = sum(t.bytes for t in graph.stored.values())
        if weights > _MOST_BYTES:
            raise NotRunError(f"{weights} B of weights; at most {_MOST_BYTES} are run")
        macs = sum(s.number(g.macs) for d in s.analysis.drafts for g in d.cost.gemms)
        if macs > _MOST_MACS:
            raise NotRunError(f"{macs} MACs; at most {_MOST_MACS} are run")
        g = self.model.graph
        outer = {o for n in g.node for o in n.output} | {v.name for v in (*g.input, *g.initializer)}
        hidden = [o for o in graph.outputs if o not in outer]
        if hidden:
            raise NotRunError(f"'{hidden[0]}' is inside a function, which shows no such output")

    def _original(self) -> onnx.ModelProto:
        """The model with its data, or with the same random ones where they are missing."""
        s = self.samples
        out = onnx.ModelProto()
        out.CopyFrom(self.model)
        top = {t.name: t for t in out.graph.initializer}
        for t in all_tensors(out):
            if not t.external_data and t.data_location != onnx.TensorProto.EXTERNAL:
                continue
            if top.get(t.name) is t:
                t.CopyFrom(onnx.numpy_helper.from_array(s.array(t.name), t.name))
                continue
            try:
                onnx.external_data_helper.load_external_data_for_tensor(t, str(Path(s.graph.file).parent))
                t.data_location = onnx.TensorProto.DEFAULT
                del t.external_data[:]
            except Exception as e:
                raise NotRunError(f"the data of '{t.name}', inside a node or function, are missing") from e
        if [o.name for o in out.graph.output] != s.graph.outputs:
            del out.graph.output[:]
            out.graph.output.extend(onnx.helper.make_empty_tensor_value_info(o) for o in s.graph.outputs)
        given = {*s.analysis.inputs, *top}
        kept = [v for v in out.graph.input if v.name in given]
        del out.graph.input[:]
        out.graph.input.extend(kept)
        return out


def _check_macs(s: Samples, nodes: Iterable[Node]) -> None:
    """Raise :class:`NotRunError` for more products than are worth a check."""
    macs = 0
    for n in with_bodies(nodes):
        if n.type in ("Conv", "ConvTranspose", "MatMul", "Gemm") and n.outputs[0] in s.analysis.values:
            inner = prod(s.dims(n.inputs[1])[1:]) if n.type != "MatMul" else s.dims(n.inputs[0])[-1]
            macs += prod(s.dims(n.outputs[0])) * inner
    if macs > _MOST_MACS:
        raise NotRunError(f"{macs} MACs; at most {_MOST_MACS} are run")


def _error(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Largest absolute difference; infinite between shapes, types, or where only one is no number."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return inf
    if a.dtype.kind in "OUS":
        return 0.0 if bool(np.all(a == b)) else inf
    x, y = (np.asarray(v).astype(np.complex128 if v.dtype.kind == "c" else np.float64) for v in (a, b))
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    with np.errstate(invalid="ignore"):
        gaps = np.where(same, 0.0, np.abs(x - y))
    return inf if bool(np.any(np.isnan(gaps))) else float(np.max(gaps, initial=0.0))
