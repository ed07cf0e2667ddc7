"""An LLM known only by its public ``config.json``: its ONNX graph, built in memory without weights.

The graph is the one exporters write for decoder-only models with grouped-query attention, rotary embeddings and a gated
SiLU feed-forward block; it goes through the compiler like any file.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from bpusim.errors import CompileError, Place, Problem

__all__ = ["LlmConfig", "build_llm", "read_llm_config"]

_BIASED = {"qwen2"}
_NORMED = {"qwen3"}
"""Queries and keys are normed by head: their products stay apart from the values'."""
_KNOWN = {"qwen2", "qwen3", "llama", "mistral"}
_MS = "com.microsoft"


@dataclass(frozen=True, slots=True)
class LlmConfig:
    """The fields of a ``config.json`` that shape the graph."""

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    tied: bool
    biased: bool
    head_dim: int
    normed: bool = False
    window: int | None = None
    """Entries that a token looks at, its own among them (the configuration's ``sliding_window``); None: all."""


def read_llm_config(path: str | Path) -> tuple[LlmConfig, str]:
    """(the configuration, SHA-256 of the file). Raises :class:`CompileError` with all missing or unusable fields."""
    place = Place(str(path))
    try:
        data = Path(path).read_bytes()
        raw = json.loads(data)
    except OSError as e:
        raise CompileError(f"cannot read the configuration: {e.strerror}", place=place) from None
    except (ValueError, RecursionError) as e:
        raise CompileError(f"not a JSON file: {e}", place=place) from None
    if not isinstance(raw, dict):
        raise CompileError("not a JSON object", place=place)
    problems: list[Problem] = []

    def number(key: str, default: int | None = None) -> int:
        value = raw.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            problems.append(Problem(f"'{key}' must be a whole number of 1 or more, not {value!r}", place))
            return 1
        return value

    heads, hidden = number("num_attention_heads"), number("hidden_size")
    kind = raw.get("model_type")
    if kind not in _KNOWN:
        problems.append(Problem(f"model_type {kind!r} is not supported", place, "known: " + ", ".join(sorted(_KNOWN))))
    tied = raw.get("tie_word_embeddings")
    if not isinstance(tied, bool):
        problems.append(
            Problem("'tie_word_embeddings' is not stated", place, "add true or false: it decides a table of weights")
        )
    if raw.get("hidden_act", "silu") != "silu":
        problems.append(Problem(f"hidden_act {raw['hidden_act']!r} is not supported", place, "known: silu"))
    if raw.get("use_sliding_window", False):
        problems.append(Problem("a sliding window for some layers only is not supported yet", place))
    if any(k in raw for k in ("num_experts", "num_local_experts")):
        problems.append(Problem("mixtures of experts are not supported yet", place))
    if "head_dim" in raw:
        head_dim = number("head_dim")
    elif hidden % heads and not problems:
        head_dim = 1
        problems.append(Problem(f"hidden_size {hidden} is no multiple of {heads} heads", place, "state 'head_dim'"))
    else:
        head_dim = hidden // heads
    config = LlmConfig(
        hidden,
        number("num_hidden_layers"),
        heads,
        number("num_key_value_heads", heads),
        number("intermediate_size"),
        number("vocab_size"),
        number("max_position_embeddings"),
        bool(tied),
        bool(raw.get("attention_bias", kind in _BIASED)),
        head_dim,
        kind in _NORMED,
        number("sliding_window") if kind == "mistral" and raw.get("sliding_window") is not None else None,
    )
    if config.num_attention_heads % config.num_key_value_heads:
        problems.append(Problem("num_attention_heads is no multiple of num_key_value_heads", place))
    if problems:
        raise CompileError(problems)
    return config, hashlib.sha256(data).hexdigest()


def build_llm(path: str | Path) -> tuple[onnx.ModelProto, str]:
    """(the model, SHA-256 of the configuration)."""
    config, sha = read_llm_config(path)
    return _Builder(config).model(), sha


class _Builder:
    """Collects nodes and weights whose data does not exist."""

    def __init__(self, config: LlmConfig) -> None:
        self.c = config
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, name: str, *dims: int) -> str:
        self.weights.append(
            TensorProto(name=name, dims=dims, data_type=TensorProto.FLOAT16, data_location=TensorProto.EXTERNAL)
        )
        return name

    def node(self, kind: str, path: str, inputs: list[str], outputs: int | list[str] = 1, **attrs: Any) -> str:
        """Add a node; returns its first output."""
        names = [f"{path}/output_{i}" for i in range(outputs)] if isinstance(outputs, int) else outputs
        domain = _MS if kind in ("GroupQueryAttention", "SkipSimplifiedLayerNormalization") else ""
        self.nodes.append(helper.make_node(kind, inputs, names, name=path, domain=domain, **attrs))
        return names[0]

    def linear(self, path: str, x: str, k: int, n: int) -> str:
        return self.node(
            "MatMul", f"{path}/MatMul", [x, self.weight(path.strip("/").replace("/", ".") + ".weight", k, n)]
        )

    def layer(self, i: int, x: str) -> tuple[str, str]:
        """(input of the feed-forward sum, its residual) of layer ``i`` from its normed input ``x``."""
        c, p = self.c, f"/model/layers.{i}"
        q, kv = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
        inputs = self.normed(i, x, q, kv) if c.normed else [self.packed(i, x, q + 2 * kv), "", ""]
        past = [f"past_key_values.{i}.{n}" for n in ("key", "value")]
        attn = self.node(
            "GroupQueryAttention",
            f"{p}/attn/GroupQueryAttention",
            [*inputs, *past, "seqlens_k", "total_seq", "cos_cache", "sin_cache"],
            [f"{p}/attn/output_0", f"present.{i}.key", f"present.{i}.value"],
            num_heads=c.num_attention_heads,
            kv_num_heads=c.num_key_value_heads,
            do_rotary=1,
            local_window_size=-1 if c.window is None else c.window - 1,
        )
        return self.linear(f"{p}/attn/o_proj", attn, q, c.hidden_size), p

    def packed(self, i: int, x: str, n: int) -> str:
        """Queries, keys and values of layer ``i`` in one product."""
        path, name = f"/model/layers.{i}/attn/qkv_proj", f"model.layers.{i}.attn.qkv_proj.bias"
        qkv = self.linear(path, x, self.c.hidden_size, n)
        return self.node("Add", f"{path}/Add", [qkv, self.weight(name, n)]) if self.c.biased else qkv

    def normed(self, i: int, x: str, q: int, kv: int) -> list[str]:
        """The same in three products, queries and keys normed by head."""
        out = []
        for name, n in (("q", q), ("k", kv), ("v", kv)):
            path = f"/model/layers.{i}/attn/{name}_proj"
            part = self.linear(path, x, self.c.hidden_size, n)
            if self.c.biased:
                part = self.node(
                    "Add", f"{path}/Add", [part, self.weight(f"model.layers.{i}.attn.{name}_proj.bias", n)]
                )
            out.append(part if name == "v" else self.head_norm(f"/model/layers.{i}/attn/{name}_norm", part, n))
        return out

    def head_norm(self, path: str, x: str, n: int) -> str:
        by_head, whole = (f"{path}/{k}" for k in ("by_head", "whole"))
        for name, dims in ((by_head, [0, -1, n // self.c.head_dim, self.c.head_dim]), (whole, [0, -1, n])):
            self.weights.append(helper.make_tensor(name, TensorProto.INT64, [len(dims)], dims))
        weight = self.weight(path.strip("/").replace("/", ".") + ".layernorm.weight", self.c.head_dim)
        split = self.node("Reshape", f"{path}/Reshape_1", [x, by_head])
        done = self.node("SimplifiedLayerNormalization", f"{path}/SimplifiedLayerNormalization", [split, weight])
        return self.node("Reshape", f"{path}/Reshape_2", [done, whole])

    def feed_forward(self, p: str, x: str) -> str:
        c = self.c
        gate = self.linear(f"{p}/mlp/gate_proj", x, c.hidden_size, c.intermediate_size)
        up = self.linear(f"{p}/mlp/up_proj", x, c.hidden_size, c.intermediate_size)
        act = self.node("Sigmoid", f"{p}/mlp/act_fn/Sigmoid", [gate])
        silu = self.node("Mul", f"{p}/mlp/act_fn/Mul", [gate, act])
        return self.linear(
            f"{p}/mlp/down_proj", self.node("Mul", f"{p}/mlp/Mul", [silu, up]), c.intermediate_size, c.hidden_size
        )

    def model(self) -> onnx.ModelProto:
        """The whole graph, with the symbols exporters use."""
        c = self.c
        table = self.weight("model.embed_tokens.weight", c.vocab_size, c.hidden_size)
        half = c.head_dim // 2
        self.weight("cos_cache", c.max_position_embeddings, half)
        self.weight("sin_cache", c.max_position_embeddings, half)
        residual = self.node("Gather", "/model/embed_tokens/Gather", [table, "input_ids"])
        x = self.node(
            "SimplifiedLayerNormalization",
            "/model/layers.0/input_layernorm/LayerNorm",
            [residual, self.weight("model.layers.0.input_layernorm.weight", c.hidden_size)],
        )
        for i in range(c.num_hidden_layers):
            attn, p = self.layer(i, x)
            x, residual = self.skip_norm(f"{p}/post_attention_layernorm", residual, attn)
            x, residual = self.skip_norm(f"/model/layers.{i + 1}/input_layernorm", residual, self.feed_forward(p, x))
        head = table
        if c.tied:
            head = self.node("Transpose", "/lm_head/Transpose", [table], perm=[1, 0])
        else:
            self.weight("lm_head.weight", c.hidden_size, c.vocab_size)
            head = "lm_head.weight"
        self.node("MatMul", "/lm_head/MatMul", [x, head], ["logits"])
        return self._wrap()

    def skip_norm(self, path: str, residual: str, x: str) -> tuple[str, str]:
        """(normed, summed)."""
        weight = self.weight(path.strip("/").replace("/", ".") + ".weight", self.c.hidden_size)
        outputs = [f"{path}/output_0", "", "", f"{path}/output_3"]
        self.node("SkipSimplifiedLayerNormalization", f"{path}/SkipLayerNorm", [residual, x, weight], outputs)
        return outputs[0], outputs[3]

    def _wrap(self) -> onnx.ModelProto:
        c = self.c
        mask = ["batch_size", "total_sequence_length"]
        self.nodes[:0] = [
            helper.make_node("Shape", ["attention_mask"], ["mask_shape"], name="/model/attn_mask/Shape"),
            helper.make_node("Cast", ["mask_shape"], ["total_seq"], name="/model/attn_mask/Cast", to=TensorProto.INT32),
            helper.make_node(
                "Cast", ["attention_mask"], ["seqlens_k"], name="/model/attn_mask/Lengths", to=TensorProto.INT32
            ),
        ]
        cache: list[str | int | None] = ["batch_size", c.num_key_value_heads, "past_sequence_length", c.head_dim]
        inputs = [
            helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch_size", "sequence_length"]),
            helper.make_tensor_value_info("attention_mask", TensorProto.INT64, mask),
        ]
        inputs += [
            helper.make_tensor_value_info(f"past_key_values.{i}.{n}", TensorProto.FLOAT16, cache)
            for i in range(c.num_hidden_layers)
            for n in ("key", "value")
        ]
        logits = helper.make_tensor_value_info(
            "logits", TensorProto.FLOAT16, ["batch_size", "sequence_length", c.vocab_size]
        )
        graph = helper.make_graph(self.nodes, "llm", inputs, [logits])
        graph.initializer.extend(self.weights)
        opsets = [helper.make_opsetid("", 22), helper.make_opsetid(_MS, 1)]
        return helper.make_model(graph, opset_imports=opsets, producer_name="bpusim")
