"""A language model given only by the fields of its public config.json: errors at once, and the export's figures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bpusim.compiler import Options, compile_llm_config, compile_model
from bpusim.compiler.llm_config import build_llm
from bpusim.errors import CompileError
from bpusim.hardware.presets import machine_preset
from bpusim.trace import Trace

THREE_B = {
    "model_type": "qwen2",
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "max_position_embeddings": 4096,
    "num_attention_heads": 16,
    "num_hidden_layers": 36,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
    "vocab_size": 151936,
}
TINY = THREE_B | {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 100}
TINY |= {"num_attention_heads": 4, "max_position_embeddings": 64}

Write = Callable[..., Path]


@pytest.fixture
def config(tmp_path: Path) -> Write:
    """``config(fields, without=(...), key=value)``: a config.json."""

    def write(fields: dict[str, Any] = TINY, /, without: tuple[str, ...] = (), **changes: Any) -> Path:
        path = tmp_path / "config.json"
        path.write_text(json.dumps({k: v for k, v in (fields | changes).items() if k not in without}))
        return path

    return write


def _compile(path: Path, **options: Any) -> Trace:
    return compile_llm_config(path, machine_preset("bpu80").cores, Options(**{"quant": "int4", **options}))


def _refusal(path: Path) -> str:
    with pytest.raises(CompileError) as caught:
        _compile(path)
    return str(caught.value)


# --- the graph equals the export (reference figures of the ONNX exports, without the files)


@pytest.fixture(scope="module")
def three_b(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    path = tmp_path_factory.mktemp("config") / "config.json"
    path.write_text(json.dumps(THREE_B))
    return _compile(path)


def _unique(trace: Trace) -> int:
    return sum(t.bytes * t.count for t in trace.tensors if t.role != "rope")


def test_unique_bytes_equal_the_exports(three_b: Trace) -> None:
    """Linear a layer: 2048 x 2560 + 2048 x 2048 + 3 x 2048 x 11008 = 77,070,336; x 36 layers = 2,774,532,096 at half
    a byte and 2 B a 128; the tied head 151,936 x (2048 + 32); 73 norms x 4096 B; 36 biases x 5120 B."""
    assert _unique(three_b) == 1_747_128_320


def test_decode_macs_equal_the_exports(three_b: Trace) -> None:
    """2,774,532,096 + 151,936 x 2048 + 512 x 36 x 16 x 128 x 2."""
    assert three_b.bind("decode", kv=511).macs == 3_161_194_496


def test_decode_macs_at_full_context_equal_the_exports(three_b: Trace) -> None:
    assert three_b.bind("decode", kv=4095).macs == 3_689_676_800


def test_prefill_macs_equal_the_exports(three_b: Trace) -> None:
    assert three_b.bind("prefill", kv=0, tokens=256).macs == 799_602_114_560


def test_prefill_macs_with_the_last_logit_only_equal_the_exports(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(THREE_B))
    assert _compile(path, last_logit=True).bind("prefill", kv=0, tokens=256).macs == 720_255_057_920


def test_the_cache_equals_the_exports(three_b: Trace) -> None:
    """36 layers x 2 heads x 128 x 2 x 2 B."""
    assert three_b.header.kv_bytes_per_token == 36_864


def test_layers_context_and_vocabulary_equal_the_exports(three_b: Trace) -> None:
    assert (three_b.header.layers, three_b.header.context, three_b.header.vocab) == (36, 4096, 151_936)


def test_dram_bytes_of_a_decode_step_equal_the_exports(three_b: Trace) -> None:
    """Weights, one embedding row, the cache, one RoPE row: see test_exports."""
    moved = three_b.bind("decode", kv=511).traffic()
    total = sum(n for (kind, _), n in moved.items() if kind != "io")
    assert total == 1_747_128_320 + 2_080 + 36_864 * 512 + 256


def test_bytes_of_the_3b_under_int8(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(THREE_B))
    assert _unique(_compile(path, quant="int8")) == 3_134_394_368


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_cycles_equal_the_exports(three_b: Trace, export: Callable[[str], Path], phase: str) -> None:
    """Not only bytes and MACs: the same work for the array and the vector unit (the export's look-up also converts
    its row, which the plan does not tell apart)."""
    path = export("llm/qwen2.5-3b-int4-genai.onnx")
    other = compile_model(path, machine_preset("bpu80").cores, Options(quant="int4"))

    def cycles(trace: Trace) -> int:
        tokens = 256 if phase == "prefill" else 1
        return sum(c.cycles for c in trace.bind(phase, kv=100 * (phase == "decode"), tokens=tokens).calls)

    assert cycles(three_b) == pytest.approx(cycles(other), rel=1e-3)


# --- what the graph is


def test_the_graph_has_the_exports_linear_layers(config: Write) -> None:
    """Query, key and value in one; output; gate, up, down; and the head: 5 a layer and 1."""
    model, _ = build_llm(config())
    assert sum(n.op_type == "MatMul" for n in model.graph.node) == 2 * 5 + 1


def test_the_graph_holds_no_weight_data(config: Write) -> None:
    model, _ = build_llm(config())
    assert all(not t.raw_data for t in model.graph.initializer)
    assert sum(len(t.dims) for t in model.graph.initializer) > 0


def test_untied_words_have_a_head_and_a_table(config: Write) -> None:
    roles = [t.role for t in _compile(config(tie_word_embeddings=False)).tensors]
    assert (roles.count("head"), roles.count("embedding")) == (1, 1)


def test_tied_words_are_stored_once(config: Write) -> None:
    roles = [t.role for t in _compile(config()).tensors]
    assert (roles.count("head"), roles.count("embedding")) == (1, 0)


@pytest.mark.parametrize(("kind", "biased"), [("qwen2", True), ("llama", False), ("mistral", False)])
def test_biases_follow_the_kind_of_model(config: Write, kind: str, biased: bool) -> None:
    assert any(t.role == "bias" for t in _compile(config(model_type=kind)).tensors) is biased


def test_biases_follow_the_configuration_if_it_says(config: Write) -> None:
    assert any(t.role == "bias" for t in _compile(config(model_type="llama", attention_bias=True)).tensors)


def test_a_missing_number_of_kv_heads_means_all_heads(config: Write) -> None:
    """2 layers x 4 heads x 16 x 2 x 2 B."""
    assert _compile(config(without=("num_key_value_heads",))).header.kv_bytes_per_token == 512


def test_the_head_dimension_may_be_stated(config: Write) -> None:
    """2 layers x 2 KV heads x 32 x 2 x 2 B."""
    assert _compile(config(head_dim=32)).header.kv_bytes_per_token == 512


def test_a_shorter_context_can_be_asked_for(config: Write) -> None:
    assert _compile(config(), context=32).header.context == 32


def test_a_longer_context_than_the_model_has_is_an_error(config: Write) -> None:
    with pytest.raises(CompileError, match="a context of 65 exceeds the 64 rows of the RoPE table"):
        _compile(config(), context=65)


def test_keep_takes_the_fp16_that_public_weights_have(config: Write) -> None:
    trace = _compile(config(), quant="keep")
    assert _unique(trace) == _unique(_compile(config(), quant="fp16"))


# --- errors


@pytest.mark.parametrize("field", [k for k in THREE_B if k not in ("hidden_act", "num_key_value_heads")])
def test_a_missing_field_is_named(config: Write, field: str) -> None:
    assert field in _refusal(config(without=(field,)))


@pytest.mark.parametrize("value", [0, -1, 2.5, "36", True, None])
def test_a_field_that_is_no_count_is_named_with_its_value(config: Write, value: Any) -> None:
    message = _refusal(config(num_hidden_layers=value))
    assert f"'num_hidden_layers' must be a whole number of 1 or more, not {value!r}" in message


def test_all_problems_are_reported_at_once(config: Write) -> None:
    path = config(hidden_size=0, vocab_size="x", model_type="gpt2", hidden_act="gelu", use_sliding_window=True)
    with pytest.raises(CompileError) as caught:
        _compile(path)
    assert len(caught.value.problems) == 5


def test_problems_name_the_file(config: Write) -> None:
    path = config(hidden_size=0)
    assert all(line.startswith(f"{path}: error: ") for line in _refusal(path).splitlines())


def test_an_unknown_kind_lists_those_there_are(config: Write) -> None:
    assert "model_type 'gpt2' is not supported; known: llama, mistral, qwen2" in _refusal(config(model_type="gpt2"))


def test_tying_must_be_stated(config: Write) -> None:
    assert "'tie_word_embeddings' is not stated; add true or false" in _refusal(
        config(without=("tie_word_embeddings",))
    )


def test_heads_must_share_kv_heads_evenly(config: Write) -> None:
    assert "num_attention_heads is no multiple of num_key_value_heads" in _refusal(config(num_key_value_heads=3))


def test_a_hidden_size_that_heads_do_not_divide_needs_a_head_dimension(config: Write) -> None:
    """66 / 4 is no whole number; guessing 16 would build another model."""
    assert "head_dim" in _refusal(config(hidden_size=66))


def test_a_sliding_window_bounds_what_a_token_looks_at(config: Write) -> None:
    """2 layers of 4 heads of 16: 256 MACs an entry. Of 8 entries in the window one is the token's own."""
    none, wide, few = (
        _compile(config(model_type="mistral", **w))
        for w in ({"sliding_window": None}, {"sliding_window": 4096}, {"sliding_window": 8})
    )
    macs = [[t.bind("decode", kv=kv).macs for kv in (0, 7, 50)] for t in (none, wide, few)]
    base = macs[0][0]
    assert macs[0] == macs[1] == [base, base + 7 * 256, base + 50 * 256]
    assert macs[2] == [base, base + 7 * 256, base + 7 * 256]
    moved = few.bind("decode", kv=50).traffic()["kv", False]
    assert moved == 7 * few.header.kv_bytes_per_token


@pytest.mark.parametrize("key", ["num_experts", "num_local_experts"])
def test_a_mixture_of_experts_is_refused(config: Write, key: str) -> None:
    assert "mixtures of experts are not supported yet" in _refusal(config(**{key: 8}))


@pytest.mark.parametrize(("text", "message"), [("{", "not a JSON file"), ("[1]", "not a JSON object"), ("", "not a")])
def test_a_file_that_is_no_configuration(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    assert message in _refusal(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert "cannot read the configuration: No such file or directory" in _refusal(tmp_path / "config.json")


def test_qwen3_norms_queries_and_keys_by_head(config: Write) -> None:
    """Three products and two norms in place of one product; their weights are one head wide."""
    plain = _compile(config(model_type="llama", head_dim=16))
    normed = _compile(config(model_type="qwen3", head_dim=16))
    layers = [[o.type for o in t.phase("decode").ops()] for t in (plain, normed)]
    assert layers[1].count("MatMul") - layers[0].count("MatMul") == 2
    assert layers[1].count("SimplifiedLayerNormalization") - layers[0].count("SimplifiedLayerNormalization") == 2
    assert {t.bytes for t in normed.tensors if "_norm." in t.name and ".attn." in t.name} == {16 * 2}
