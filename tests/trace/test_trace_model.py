"""The trace as data: resident bytes, binding to a position, splitting between layers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bpusim.errors import TraceError
from bpusim.trace import CallProgram, CpuWork, Header, Op, Phase, Program, Repeat, Tensor, Trace
from bpusim.trace.model import buffer_kind

NAMES = sorted(p.name for p in (Path(__file__).parents[2] / "traces").glob("*.trace"))


def totals(program: Program) -> Counter[str]:
    """What a phase costs in all: MACs, cycles, elements on the CPU, and bytes by kind, hand-overs left out."""
    out: Counter[str] = Counter()
    for segment in program.segments:
        if isinstance(segment, CpuWork):
            out.update({f"cpu.{c}": n for c, n in segment.elements.items()})
            out.update({f"cpu.{'write' if write else 'read'}.{kind}": n for (kind, write), n in segment.moved.items()})
            out["cpu.tensors"] += segment.tensors
            continue
        kept = [j for j, op in enumerate(segment.ops) if op.type != "Handover"]
        for row, name in enumerate(("cycles", "mac_cycles", "macs", "issued", "tiles")):
            out[name] += int(segment.fields[row, kept].sum())
        for side, table in (("read", segment.reads), ("write", segment.writes)):
            for kind, row in enumerate(("weights", "kv", "spill", "io")):
                out[f"{side}.{row}"] += int(table[kind, kept].sum())
        out["ops"] += len(kept)
        out["layer_ends"] += int(segment.items.layer_end.sum())
    return out


def handovers(program: Program) -> list[str]:
    return [op.id for call in program.calls for op in call.ops if op.type == "Handover"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("parts", [2, 3])
def test_the_parts_of_a_trace_sum_to_the_whole(committed: dict[str, Trace], name: str, parts: int) -> None:
    trace = committed[name]
    pieces = trace.split(parts)
    assert len(pieces) == parts
    for phase in trace.phases:
        tokens = max(trace.phases[phase].tokens, 1)
        whole = totals(trace.bind(phase, kv=777, tokens=tokens))
        summed: Counter[str] = Counter()
        for piece in pieces:
            summed.update(totals(piece.bind(phase, kv=777, tokens=tokens)))
        assert summed == whole
        assert whole["cycles"] > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_parts_of_a_trace_hold_every_tensor_of_the_whole(committed: dict[str, Trace], name: str) -> None:
    trace = committed[name]
    held: Counter[str] = Counter()
    tied = {t.name for t in trace.tensors if t.shared_by}
    for piece in trace.split(2):
        held.update({t.name: t.count for t in piece.tensors if t.name not in tied})
    assert held == {t.name: t.count for t in trace.tensors if t.name not in tied}


@pytest.mark.parametrize("name", NAMES)
def test_each_part_hands_over_to_the_next(committed: dict[str, Trace], name: str) -> None:
    trace = committed[name]
    first, middle, last = trace.split(3)
    for phase in trace.phases:
        tokens = max(trace.phases[phase].tokens, 1)
        assert handovers(first.bind(phase, tokens=tokens)) == ["handover_out"]
        assert handovers(middle.bind(phase, tokens=tokens)) == ["handover_in", "handover_out"]
        assert handovers(last.bind(phase, tokens=tokens)) == ["handover_in"]


def test_what_is_handed_over_is_the_carry_of_the_layers(small: Trace) -> None:
    first, last = small.split(2)
    # Carry (0, 24) over the basis (1, tokens, kv): 24 bytes a token, three tokens.
    (given,) = [dict(c.buffers(len(c.ops) - 1, True)) for c in first.bind("prefill", tokens=3).calls]
    (taken,) = [dict(c.buffers(0, False)) for c in last.bind("prefill", tokens=3).calls]
    assert given == taken == {"io:handover": 72}


def test_an_even_split_gives_no_part_more_than_one_layer_extra(small: Trace) -> None:
    assert [p.header.layers for p in small.split(2)] == [1, 2]
    assert [p.header.layers for p in small.split(3)] == [1, 1, 1]


def test_a_split_by_numbers_of_layers(small: Trace) -> None:
    first, last = small.split([2, 1])
    assert [i.count for i in first.phases["decode"].items if isinstance(i, Repeat)] == [2]
    assert [i.count for i in last.phases["decode"].items if isinstance(i, Repeat)] == [1]


def test_parts_are_numbered_in_the_models_name(small: Trace) -> None:
    assert [p.header.model for p in small.split(2)] == ["tiny[0]", "tiny[1]"]


def test_a_part_holds_only_the_tensors_it_reads(small: Trace) -> None:
    first, middle, last = small.split(3)
    assert [t.name for t in middle.tensors] == ["proj.{i}"]
    assert first.resident_bytes == 100 + 300
    assert last.resident_bytes == 100 + 300  # the tied table is read at both ends


@pytest.mark.parametrize("counts", [[1, 1], [3, 1], [4, -1], [3, 0], [], 4, 0], ids=str)
def test_a_split_into_other_numbers_of_layers_is_an_error(small: Trace, counts: list[int] | int) -> None:
    listed = {4: [0, 1, 1, 1], 0: []}[counts] if isinstance(counts, int) else counts
    with pytest.raises(TraceError) as caught:
        small.split(counts)
    assert str(caught.value) == (
        f"error: cannot split tiny into {listed} layers: it has 3 repeated layers; "
        "give one number of layers per core, 3 in all"
    )


def test_a_model_without_repeated_layers_does_not_split(small: Trace) -> None:
    flat = Trace(small.header, (), {"frame": Phase("frame", 0, ("1",), (Op("a", "A", "mac", cycles=(1,)),))})
    with pytest.raises(TraceError) as caught:
        flat.split(2)
    assert str(caught.value) == (
        "error: cannot split tiny into [0, 0] layers: it has 0 repeated layers; only models with repeated layers split"
    )


def test_a_split_of_a_model_with_a_phase_without_layers(small: Trace) -> None:
    encode = Phase("encode", 0, ("1",), (Op("a", "A", "mac", cycles=(1,)),))
    phases = {**small.phases, "encode": encode}
    try:
        pieces = replace(small, phases=phases).split(2)
    except TraceError:
        return
    assert sum(totals(p.bind("encode"))["cycles"] for p in pieces) == 1


def test_a_split_of_phases_with_different_numbers_of_layers(small: Trace) -> None:
    short = Repeat(2, "layers", (Op("a", "A", "mac", cycles=(5,)),))
    phases = {**small.phases, "encode": Phase("encode", 0, ("1",), (short,))}
    try:
        pieces = replace(small, phases=phases).split([1, 2])
    except TraceError:
        return
    assert sum(totals(p.bind("encode"))["cycles"] for p in pieces) == 2 * 5


def test_a_second_stack_of_as_many_layers_keeps_its_tensors() -> None:
    def layer(name: str) -> Repeat:
        return Repeat(2, name, (Op(name, "A", "mac", cycles=(5,), read={f"w:{name}.{{i}}": (10,)}),))

    phase = Phase("frame", 0, ("1",), (layer("a"), layer("b")))
    tensors = (Tensor("a.{i}", 10, 2), Tensor("b.{i}", 10, 2))
    pieces = Trace(Header("two", {}), tensors, {"frame": phase}).split(2)
    assert sum(p.resident_bytes for p in pieces) == 40


def test_resident_bytes_count_each_tensor_as_often_as_it_is_stored(small: Trace) -> None:
    assert small.resident_bytes == 100 + 3 * 300


# Binding


def test_an_unknown_phase_names_those_there_are(small: Trace) -> None:
    with pytest.raises(TraceError) as caught:
        small.bind("frame")
    assert str(caught.value) == "error: tiny has no phase 'frame'; it has: prefill, decode"


def test_more_tokens_than_the_chunk_do_not_bind(small: Trace) -> None:
    with pytest.raises(TraceError) as caught:
        small.bind("prefill", tokens=5)
    assert str(caught.value) == "error: 5 tokens do not fit the 4 of phase 'prefill'; bind one chunk at a time"


def test_a_whole_chunk_binds(small: Trace) -> None:
    assert small.bind("prefill", tokens=4).tokens == 4


def test_a_phase_without_a_chunk_takes_any_tokens(small: Trace) -> None:
    free = replace(small, phases={"decode": replace(small.phases["decode"], tokens=0)})
    assert free.bind("decode", tokens=1000).macs == 3 * 10 * 1000 + 7 * 1000


def test_costs_are_the_dot_product_with_the_basis(small: Trace) -> None:
    program = small.bind("prefill", kv=10, tokens=3)
    (call,) = program.calls
    # project: 50 + 2*3 and attend: 20 + 3*10, three times; head: 9.
    assert call.cycles == 3 * (56 + 50) + 9
    assert call.macs == program.macs == 3 * 10 * 3 + 7 * 3
    assert program.traffic() == {
        ("weights", False): 100 + 3 * 300 + 100,
        ("io", False): 8,
        ("kv", False): 3 * 16 * 10,
        ("kv", True): 3 * 16 * 3,
        ("io", True): 40,
    }


def test_a_valid_cache_is_read_as_far_as_it_is_filled(small: Trace) -> None:
    traffic = {kv: small.bind("decode", kv=kv).traffic().get(("kv", False), 0) for kv in (0, 1, 10)}
    assert traffic == {0: 0, 1: 48, 10: 480}


@pytest.mark.parametrize("kv", [0, 10, 60])
def test_a_static_graph_reads_its_whole_compiled_cache(small: Trace, kv: int) -> None:
    static = replace(small, header=replace(small.header, kv="capacity"))
    # 64 of context, of which the chunk itself takes 1 (decode) or 4 (prefill).
    assert static.bind("decode", kv=kv).traffic()["kv", False] == 3 * 16 * 63
    assert static.bind("prefill", kv=kv, tokens=1).traffic()["kv", False] == 3 * 16 * 60


def test_a_batch_multiplies_only_what_depends_on_it() -> None:
    op = Op("a", "A", "mac", cycles=(7, 3), read={"kv": (0, 0, 2), "w:t": (50,)})
    phase = Phase("decode", 1, ("1", "batch", "batch*kv"), (op,))
    trace = Trace(Header("m", {}), (Tensor("t", 50),), {"decode": phase})
    program = trace.bind("decode", kv=(10, 20, 30, 40))
    assert [c.cycles for c in program.calls] == [7 + 3 * 4]
    assert program.traffic() == {("kv", False): 2 * (10 + 20 + 30 + 40), ("weights", False): 50}


@pytest.mark.parametrize(
    ("buffer", "kind"), [("w:a:b", "weights"), ("kv", "kv"), ("spill:x", "spill"), ("io:logits", "io")]
)
def test_the_kind_of_a_buffer_is_in_its_name(buffer: str, kind: str) -> None:
    assert buffer_kind(buffer) == kind


def test_calls_are_the_only_segments_of_a_model_without_fallback(small: Trace) -> None:
    assert all(isinstance(s, CallProgram) for s in small.bind("decode").segments)


# --- a phase over an empty cache only


def test_a_phase_over_an_empty_cache_is_bound_behind_nothing(small: Trace) -> None:
    first = replace(small.phases["prefill"], empty_cache=True)
    trace = replace(small, phases={**small.phases, "prefill": first})
    assert trace.bind("prefill", kv=0, tokens=3).macs == small.bind("prefill", kv=0, tokens=3).macs
    with pytest.raises(TraceError, match=r"phase 'prefill' holds over an empty cache only, not behind 2 entries; read"):
        trace.bind("prefill", kv=(0, 2), tokens=3)
    assert trace.bind("decode", kv=2).macs == small.bind("decode", kv=2).macs


def test_parts_of_a_model_over_an_empty_cache_are_so_too(small: Trace) -> None:
    first = replace(small.phases["prefill"], empty_cache=True)
    parts = replace(small, phases={**small.phases, "prefill": first}).split(3)
    assert [p.phase("prefill").empty_cache for p in parts] == [True] * 3
    assert not any(p.phase("decode").empty_cache for p in parts)
