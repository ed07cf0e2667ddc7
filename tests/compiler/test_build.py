"""From a model to a trace: phases, roles that follow from use, context, and sizes of a language model."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper

from bpusim.compiler import Options, compile_llm_config
from bpusim.errors import CompileError
from bpusim.hardware import CoreSpec
from bpusim.scenario import load_machine
from bpusim.trace import Trace

Make = Callable[..., Any]
node = helper.make_node
ROWS, WIDTH = 1000, 256


def _words(hand: Make, *behind: Any, **options: Any) -> Trace:
    """Ids -> look-up -> head of 256 x 1000 -> ``behind`` -> logits, with a cache length to make it a language model."""
    head = node("MatMul", ["h", "w"], ["l" if behind else "logits"], name="/lm_head/MatMul")
    model = hand(
        [node("Gather", ["words", "ids"], ["h"]), head, *behind],
        {"ids": ["batch_size", "sequence_length"], "past": ["batch_size", "past_sequence_length"]},
        ["logits"],
        weights={"words": [ROWS, WIDTH], "w": [WIDTH, ROWS]},
        integer=["ids"],
    )
    trace: Trace = model.trace(**{"context": 64, "quant": "int4", "chunk": 16, **options})
    return trace


def _roles(trace: Trace) -> dict[str, str]:
    return {t.name: t.role for t in trace.tensors}


CAST = node("Cast", ["l"], ["logits"], to=TensorProto.FLOAT)


def test_the_product_that_makes_the_logits_is_the_head(hand: Make) -> None:
    """So it is int8 under int4: 1000 rows of 256 B and 2 scales."""
    trace = _words(hand)
    assert _roles(trace) == {"words": "embedding", "w": "head"}
    assert {t.bytes for t in trace.tensors} == {ROWS * (WIDTH + 4)}


def test_the_head_is_the_head_behind_a_conversion(hand: Make) -> None:
    """fp16 exports end with a Cast of the logits to fp32."""
    assert _roles(_words(hand, CAST))["w"] == "head"


def test_the_last_logit_is_one_row_of_the_head(hand: Make) -> None:
    trace = _words(hand, last_logit=True)
    assert trace.bind("prefill", tokens=16).macs == ROWS * WIDTH


def test_the_last_logit_is_one_row_behind_a_conversion_too(hand: Make) -> None:
    trace = _words(hand, CAST, last_logit=True)
    assert trace.bind("prefill", tokens=16).macs == ROWS * WIDTH


def test_the_logits_leave_the_chip_row_by_row(hand: Make) -> None:
    """16 rows of 1000 16-bit values, though the prompt has 3 tokens: the chunk is static."""
    assert _words(hand).bind("prefill", tokens=3).traffic()["io", True] == 16 * ROWS * 2


def test_a_language_model_has_prefill_and_decode(hand: Make) -> None:
    assert {n: p.tokens for n, p in _words(hand).phases.items()} == {"prefill": 16, "decode": 1}


def test_any_other_model_has_frames(hand: Make) -> None:
    trace = hand([node("Relu", ["x"], ["y"])], {"x": [4]}, ["y"]).trace()
    assert {n: p.tokens for n, p in trace.phases.items()} == {"frame": 0}


def test_a_model_that_does_not_state_its_context_needs_one(hand: Make) -> None:
    with pytest.raises(CompileError, match="does not state its context limit; give it: --context 4096"):
        _words(hand, context=None)


@pytest.mark.parametrize("context", [0, -5])
def test_a_context_of_no_tokens_is_an_error(hand: Make, context: int) -> None:
    with pytest.raises(CompileError, match="context"):
        _words(hand, context=context)


def test_the_vocabulary_is_the_rows_of_the_head(hand: Make) -> None:
    assert _words(hand).header.vocab == ROWS


def test_activations_the_target_has_no_rate_for_are_an_error(hand: Make) -> None:
    with pytest.raises(CompileError, match="the target has no rate for fp32 activations; it has: int"):
        _words(hand, activation="fp32")


# --- the sizes of a language model are the phases', not the user's


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    fields = {
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 96,
        "max_position_embeddings": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
        "vocab_size": 100,
    }
    path.write_text(json.dumps(fields))
    return path


@pytest.mark.parametrize("options", [{"bind": {"sequence_length": 8}}, {"shapes": {"input_ids": (1, 8)}}])
def test_a_bound_sequence_does_not_make_decode_many_tokens(
    config: Path, core: CoreSpec, options: dict[str, Any]
) -> None:
    """A cache entry stays 2 layers x 2 heads x 16 x 2 x 2 B = 256 B, or the size is refused: never 8 times as much."""
    try:
        trace = compile_llm_config(config, core, Options(quant="int4", **options))
    except CompileError:
        return
    assert trace.header.kv_bytes_per_token == 256


def test_a_batch_is_refused(config: Path, core: CoreSpec) -> None:
    with pytest.raises(CompileError, match="batch 2 is not supported"):
        compile_llm_config(config, core, Options(bind={"batch_size": 2}))


def test_a_chunk_is_what_prefill_is_compiled_for(config: Path, core: CoreSpec) -> None:
    trace = compile_llm_config(config, core, Options(chunk=8))
    assert (trace.header.chunk, trace.phase("prefill").tokens) == (8, 8)


@pytest.mark.parametrize(("context", "chunk"), [(1000, 256), (256, 256), (255, 255), (64, 64), (1, 1)])
def test_a_chunk_nobody_gave_is_256_or_the_context(hand: Make, context: int, chunk: int) -> None:
    trace = _words(hand, chunk=None, context=context)
    assert (trace.header.chunk, trace.phase("prefill").tokens) == (chunk, chunk)


@pytest.mark.parametrize("chunk", [65, 256])
def test_a_chunk_longer_than_the_context_is_refused(hand: Make, chunk: int) -> None:
    with pytest.raises(CompileError) as caught:
        _words(hand, chunk=chunk, context=64)
    assert str(caught.value) == (
        f"error: a chunk of {chunk} tokens exceeds the context of 64; lower --chunk, or raise --context"
    )


def test_a_chunk_may_be_the_whole_context(hand: Make) -> None:
    assert _words(hand, chunk=64, context=64).header.chunk == 64


# --- the scratchpad cuts reads into tiles


def _with_scratchpad(hand: Make, size: int, rows: int = 64) -> Trace:
    model = hand([node("MatMul", ["x", "w"], ["y"])], {"x": [1, rows]}, ["y"], weights={"w": [rows, 1024]})
    trace: Trace = replace(model, core=load_machine("bpu80", [f"machine.cores.scratchpad={size} B"]).cores).trace(
        quant="int8"
    )
    return trace


def test_a_scratchpad_too_small_for_tiles_is_refused(hand: Make) -> None:
    with pytest.raises(CompileError) as caught:
        _with_scratchpad(hand, 16383)
    assert str(caught.value) == (
        "error: a scratchpad of 16383 B; tiles of a quarter of it would be smaller than a weight tile; "
        "give it 16384 B or more"
    )
    assert _with_scratchpad(hand, 16384)


@pytest.mark.parametrize(("scratchpad", "tile"), [(1 << 20, 1 << 18), (4 << 20, 1 << 20), (64 << 20, 1 << 20)])
def test_a_tile_is_a_quarter_of_the_scratchpad_but_no_more_than_a_mebibyte(
    hand: Make, scratchpad: int, tile: int
) -> None:
    trace = _with_scratchpad(hand, scratchpad, rows=4096)
    (op,) = trace.phase("frame").ops()
    read = sum(n for (n,) in op.read.values())
    assert op.tiles == (-(-read // tile),)
