"""From a model to a trace: the phases, the tensors, the header and the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx

from bpusim.compiler.analyse import Analysis, Draft, analyse
from bpusim.compiler.cache import join_appends
from bpusim.compiler.dims import KV, TOKENS, Expr, as_expr
from bpusim.compiler.external import check_external
from bpusim.compiler.files import read_model, told_of
from bpusim.compiler.graph import ELEMENT_BITS, Graph, Node
from bpusim.compiler.layers import fold_phases
from bpusim.compiler.lower import Lowered, fuse, lower
from bpusim.compiler.nested import all_tensors, with_bodies
from bpusim.compiler.qdq import drop_output_dequantise, folded_conversions
from bpusim.compiler.quant import Plan, WeightUse
from bpusim.compiler.reader import load_graph
from bpusim.compiler.stored import tensors_of, weights_of
from bpusim.compiler.symbols import bind
from bpusim.compiler.target import SMALLEST_SCRATCHPAD, Target
from bpusim.compiler.toolchain import check_toolchain
from bpusim.compiler.values import EmptyCacheError
from bpusim.compiler.verify import Row, Verifier
from bpusim.errors import CompileError, Place, did_you_mean
from bpusim.hardware import CoreSpec
from bpusim.hardware.spec import ActivationType
from bpusim.hardware.toolchain import Toolchain, load_toolchain
from bpusim.trace import Header, Phase, Trace

__all__ = ["Compiled", "Options", "compile_file", "compile_graph", "compile_llm_config", "compile_model"]

_CHUNK = 256
_STEPS = {"sequence_length", "past_sequence_length", "total_sequence_length"}


@dataclass(frozen=True, slots=True)
class Options:
    """How to compile. ``bind``: sizes by symbol, or values of scalar inputs; ``shapes``: whole input shapes;
    ``assume``: what nodes do whose outcome the data decide; ``outputs``: stop at these tensors; ``fold_dequantise``: a
    DequantizeLinear that makes an output is left to its reader."""

    quant: str = "keep"
    quant_set: Sequence[str] = ()
    activation: ActivationType = "int16"
    chunk: int | None = None
    context: int | None = None
    last_logit: bool = False
    fallback_ops: frozenset[str] = frozenset()
    strict: bool = False
    bind: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    assume: Mapping[str, str] = field(default_factory=dict)
    outputs: Sequence[str] = ()
    fold_dequantise: bool = False
    name: str | None = None
    cores: tuple[int, ...] | None = None
    command: str = ""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A trace with what it came from; ``weights``: by the name of the stored tensor."""

    trace: Trace
    model: onnx.ModelProto
    graph: Graph
    weights: dict[str, WeightUse]


def compile_model(
    path: str | Path,
    core: CoreSpec,
    options: Options = Options(),
    warn: Callable[[str], None] | None = None,
    verified: Callable[[Verifier], None] | None = None,
) -> Trace:
    """The trace of :func:`compile_file`."""
    return compile_file(path, core, options, warn, verified).trace


def compile_file(
    path: str | Path,
    core: CoreSpec,
    options: Options = Options(),
    warn: Callable[[str], None] | None = None,
    verified: Callable[[Verifier], None] | None = None,
) -> Compiled:
    """Compile an ONNX file for ``core``. Raises :class:`CompileError`.

    External weight files are not needed; ``warn`` is told of those that are missing. One outside the model's folder, or
    too short, is an error. With ``verified`` every rewrite is verified, and it is told what came of that.
    """
    model, sha = read_model(path)
    elsewhere = [t for t in all_tensors(model) if t.external_data or t.data_location == t.EXTERNAL]
    for text in check_external(elsewhere, Path(path)):
        if warn is not None:
            warn(text)
    return _compiled(model, load_graph(model, str(path), sha), core, options, verified)


def compile_llm_config(
    path: str | Path,
    core: CoreSpec,
    options: Options = Options(),
    verified: Callable[[Verifier], None] | None = None,
) -> Trace:
    """Compile an LLM given only by its public ``config.json``: the graph is built in memory and goes the same way."""
    from bpusim.compiler.llm_config import build_llm

    model, sha = build_llm(path)
    return _compiled(model, load_graph(model, str(path), sha), core, options, verified).trace


def _compiled(
    model: onnx.ModelProto,
    graph: Graph,
    core: CoreSpec,
    options: Options,
    verified: Callable[[Verifier], None] | None,
) -> Compiled:
    verifier = Verifier(model) if verified is not None else None
    trace, weights = _compile(graph, core, options, verifier)
    if verified is not None and verifier is not None:
        verified(verifier)
    return Compiled(trace, model, graph, weights)


def compile_graph(graph: Graph, core: CoreSpec, options: Options, verifier: Verifier | None = None) -> Trace:
    """Compile a loaded graph; ``verifier`` looks at what was rewritten."""
    return _compile(graph, core, options, verifier)[0]


def _compile(
    graph: Graph, core: CoreSpec, options: Options, verifier: Verifier | None = None
) -> tuple[Trace, dict[str, WeightUse]]:
    """The trace of a graph, and its weights by the name of the stored tensor."""
    plan = Plan.parse(options.quant, options.quant_set, options.activation)
    if options.activation not in core.mac.rate:
        raise CompileError(
            f"the target has no rate for {options.activation} activations", do="it has: " + ", ".join(core.mac.rate)
        )
    if core.scratchpad < SMALLEST_SCRATCHPAD:
        what = f"a scratchpad of {core.scratchpad} B; tiles of a quarter of it would be smaller than a weight tile"
        raise CompileError(what, do=f"give it {SMALLEST_SCRATCHPAD} B or more")
    toolchain = load_toolchain(core.toolchain)
    check_toolchain(toolchain)
    if options.outputs:
        graph = graph.until(options.outputs)
    _check_bindings(graph, options)
    llm = _is_llm(graph)
    context = _context(graph, options) if llm else 0
    chunk = _chunk(options, context) if llm else 0
    phases: dict[str, tuple[Analysis, Lowered]] = {}
    uses: list[WeightUse] = []
    for name, tokens in (("prefill", TOKENS), ("decode", as_expr(1))) if llm else (("frame", as_expr(1)),):
        try:
            analysis = _analysed(graph, options, toolchain, _step(tokens, KV) if llm else {})
        except EmptyCacheError as e:
            if name != "prefill":
                raise
            analysis = _analysed(graph, options, toolchain, _step(tokens, as_expr(0)))
            analysis.empty_cache = True
            analysis.notes += [f"prefill is for an empty cache: {p.what}" for p in e.clashes]
        if verifier is not None:
            fused = fuse(analysis.drafts, analysis.outputs, toolchain.fusions)
            if name == "prefill" and options.last_logit:
                verifier.rows.append(
                    Row(name, "--last-logit", "head", None, "rows are left out: other results are meant")
                )
            verifier.phase(name, graph, analysis, fused, 1 if name == "decode" else 0)
        join_appends(analysis)
        _classify(analysis)
        if options.fold_dequantise and not drop_output_dequantise(analysis):
            what = "--fold-dequantise: no output comes from a DequantizeLinear that nobody else reads"
            raise CompileError(what, place=Place(graph.file), do="leave it out")
        if name == "prefill" and options.last_logit:
            _last_logit(graph, analysis)
        drafts = fuse(analysis.drafts, analysis.outputs, toolchain.fusions)
        uses += [u for d in drafts for u, _ in d.cost.weights]
        pad = chunk if name == "prefill" else 1
        target = Target(core, options.activation, pad, batched=llm, context=context)
        phases[name] = analysis, lower(name, analysis, drafts, plan, target, pad if llm else 0)
    plan.check(uses)
    with told_of(graph.file):
        folded = fold_phases([low.unfolded for _, low in phases.values()])
    traced = {phase.name: phase for phase, _ in folded}
    first, lowered = phases["decode" if llm else "frame"]
    weights = weights_of([low for _, low in phases.values()])
    tensors = tensors_of(plan, weights, [low for _, low in phases.values()], [names for _, names in folded])
    header = Header(
        model=options.name or Path(graph.file).stem,
        target=core.fingerprint(),
        source={
            "file": Path(graph.file).name,
            "sha256": graph.sha256,
            "producer": graph.producer,
            "opset": graph.opsets,
        },
        command=options.command,
        cores="any" if options.cores is None else options.cores,
        quant=plan.describe(options.activation, _kv_bits(first), uses),
        context=context,
        chunk=chunk,
        kv_bytes_per_token=lowered.kv_bytes_per_token,
        layers=traced["decode"].cache()[0] if llm else 0,
        vocab=_vocab(first) if llm else 0,
        workspace=max(low.workspace for _, low in phases.values()),
        report=_report(phases, folded[0][0]),
    )
    return Trace(header, tensors, traced), weights


def _step(tokens: Expr, past: Expr) -> dict[str, Expr]:
    """Sizes of one step over a cache of ``past`` entries."""
    return {
        "batch_size": as_expr(1),
        "sequence_length": tokens,
        "past_sequence_length": past,
        "total_sequence_length": past + tokens,
    }


def _analysed(graph: Graph, options: Options, toolchain: Toolchain, sizes: Mapping[str, Expr]) -> Analysis:
    bindings = bind(graph, options.bind, options.shapes, sizes)
    with told_of(graph.file):
        return analyse(graph, bindings, options.assume, options.fallback_ops, options.strict, toolchain)


def _is_llm(graph: Graph) -> bool:
    """Whether the graph takes a step of any length over a cache of any length."""
    return {"sequence_length", "past_sequence_length"} <= _symbols(graph)


def _symbols(graph: Graph) -> set[str]:
    return {d for _, dims in graph.inputs.values() for d in dims if isinstance(d, str)}


def _check_bindings(graph: Graph, options: Options) -> None:
    if options.chunk is not None and options.chunk < 1:
        raise CompileError(f"a chunk of {options.chunk} tokens", do="give one or more")
    if options.context is not None and options.context < 1:
        raise CompileError(f"a context of {options.context} tokens", do="give one or more")
    if _is_llm(graph):
        sized = {n for n, (_, dims) in graph.inputs.items() if _STEPS.intersection(dims)}
        for name in (*(_STEPS & options.bind.keys()), *(sized & options.shapes.keys())):
            what = f"--bind {name}: the phases of a language model set this size"
            raise CompileError(what, place=Place(graph.file), do="use --chunk for the tokens of a prefill step")
    types = {n.type for n in with_bodies(graph.nodes)}
    for op in options.fallback_ops:
        if op not in types:
            raise CompileError(
                f"the model has no op of type '{op}'", place=Place(graph.file), do=did_you_mean(op, sorted(types))
            )


def _tail(analysis: Analysis) -> list[Draft]:
    """The op that makes the logits and what casts or views them on the way out, last first."""
    wanted, tail = set(analysis.outputs), []
    for d in reversed(analysis.drafts):
        if wanted.intersection(d.outputs):
            tail.append(d)
            if d.nodes[0].type == "Cast":
                wanted.update(d.inputs)
    return tail


def _classify(analysis: Analysis) -> None:
    """Roles that follow from use: the weight that makes the logits, or is tied to the embedding table, is the head."""
    embedded = {u.tensor for d in analysis.drafts for u, _ in d.cost.weights if u.role == "embedding"}
    makers = {id(d) for d in _tail(analysis)} if embedded else set()
    for d in analysis.drafts:
        d.cost.weights = [
            (replace(u, role="head"), rows)
            if u.role == "linear" and (id(d) in makers or u.tensor in embedded)
            else (u, rows)
            for u, rows in d.cost.weights
        ]


def _last_logit(graph: Graph, analysis: Analysis) -> None:
    """Compute the head for the last row only: what a graph does that gathers the last token before it."""
    tail = _tail(analysis)
    if not any(u.role == "head" for d in tail for u, _ in d.cost.weights):
        raise CompileError("--last-logit: no output head was found", place=Place(graph.file), do="leave it out")
    for d in tail:
        d.cost.gemms = [replace(g, m=g.m.padded(1), k=g.k.padded(1), n=g.n.padded(1)) for g in d.cost.gemms]
        d.cost.vec = [replace(w, rows=w.rows.padded(1), length=w.length.padded(1)) for w in d.cost.vec]
        for name in {*d.outputs, *(t for t in analysis.results if analysis.values[t].storage in d.outputs)}:
            analysis.values[name].dims = tuple(e.padded(1) for e in analysis.values[name].dims)


def _kv_bits(analysis: Analysis) -> int:
    return ELEMENT_BITS[analysis.kv_dtype]


def _context(graph: Graph, options: Options) -> int:
    """Cache entries a sequence may have: as asked, at most the rows of the RoPE table."""
    place = Place(graph.file)
    rows = [n.inputs[at] for n in with_bodies(graph.nodes) if (at := _rope_table(n)) and len(n.inputs) > at]
    tables = {graph.stored[r].dims[0] for r in rows if r in graph.stored}
    limit = min(tables, default=0)
    if options.context is None:
        if not limit:
            raise CompileError("the model does not state its context limit", place=place, do="give it: --context 4096")
        return limit
    if limit and options.context > limit:
        raise CompileError(f"a context of {options.context} exceeds the {limit} rows of the RoPE table", place=place)
    return options.context


def _rope_table(node: Node) -> int:
    """Which input of ``node`` has a row of cosines for each position; 0 for none."""
    if node.type == "GroupQueryAttention":
        return 7 if node.attrs.get("do_rotary", 0) else 0
    if node.type != "RotaryEmbedding":
        return 0
    at, positions = (2, 1) if node.domain else (1, 3)
    return at if len(node.inputs) > positions and node.inputs[positions] else 0


def _chunk(options: Options, context: int) -> int:
    """Tokens of a prefill step: as asked, else 256, or the whole context if that is shorter."""
    if options.chunk is None:
        return min(_CHUNK, context)
    if options.chunk > context:
        what = f"a chunk of {options.chunk} tokens exceeds the context of {context}"
        raise CompileError(what, do="lower --chunk, or raise --context")
    return options.chunk


def _vocab(analysis: Analysis) -> int:
    return max(
        (u.rows for d in analysis.drafts for u, _ in d.cost.weights if u.role in ("head", "embedding")), default=0
    )


def _interface(analysis: Analysis) -> dict[str, dict[str, int]]:
    """Bytes of inputs and outputs, by their names in the file and in its own types: what the application hands over.
    The core moves them at the width of its activations."""
    out: dict[str, dict[str, int]] = {}
    for key, names in (("input_bytes", {n: n for n in analysis.inputs}), ("output_bytes", analysis.results)):
        values = {n: analysis.values[tensor] for n, tensor in names.items() if tensor in analysis.values}
        known = {
            n: -(-int(v.elements) * ELEMENT_BITS[v.dtype] // 8)
            for n, v in values.items()
            if v.elements.is_const and v.elements != 0 and v.dtype in ELEMENT_BITS
        }
        if known:
            out[key] = known
    return out


def _report(phases: Mapping[str, tuple[Analysis, Lowered]], phase: Phase) -> dict[str, Any]:
    """What costs nothing and why, what runs on the CPU and why, what is spilled: nothing is left out in silence."""
    analysis, _ = next(iter(phases.values()))
    folded = folded_conversions(phase)

    def count(nodes: list[Any]) -> dict[str, int]:
        out: dict[str, int] = {}
        for n in nodes:
            out[n.type] = out.get(n.type, 0) + 1
        return dict(sorted(out.items()))

    gemms = [d for d in analysis.drafts if d.cost.gemms and not d.cpu]
    narrow = count([d.nodes[0] for d in gemms if all(g.narrow for g in d.cost.gemms)])
    fallbacks: dict[str, dict[str, Any]] = {}
    for d in analysis.drafts:
        if d.cpu:
            row = fallbacks.setdefault(
                d.type, {"count": 0, "why": d.why_cpu, "first": d.nodes[0].name or d.nodes[0].outputs[0]}
            )
            row["count"] += 1
            if d.why_cpu not in row["why"].split("; "):
                row["why"] += f"; {d.why_cpu}"
    return {
        "views": count(analysis.views),
        "host_bookkeeping": count(analysis.bookkeeping),
        "cpu_fallbacks": fallbacks,
        **_interface(analysis),
        **({"decomposed": analysis.decomposed} if analysis.decomposed else {}),
        **({"folded": folded} if folded else {}),
        **({"of_bytes": narrow} if narrow else {}),
        **({"taken": analysis.taken} if analysis.taken else {}),
        **({"notes": analysis.notes} if analysis.notes else {}),
        "spilled_tensors": {n: len(low.spilled) for n, (_, low) in phases.items() if low.spilled},
    }
