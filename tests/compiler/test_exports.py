"""Reference figures of the ONNX exports: what the real files of three language models come to, to the byte.

The exports lie beside the repository (they are real, and large); without them these tests are skipped. The figures
that need no file are in ``test_llm_config.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import onnx
import pytest

from bpusim.compiler import Options, compile_llm_config, compile_model, load_graph, read_model
from bpusim.hardware.presets import machine_preset
from bpusim.trace import Trace

Find = Callable[[str], Path]


@dataclass(frozen=True)
class Figures:
    """Reference figures of the ONNX exports, for one size."""

    layers: int
    linear_packed: int
    linear_scales: int
    head_packed: int
    head_scales: int
    norms: int
    biases: int
    as_exported: int
    int4: int
    int8: int
    kv: int
    linear_mac: int
    head_mac: int
    slot_mac: int
    decode_512: int
    decode_4096: int
    prefill_256: int
    prefill_256_last: int


FIGURES = {
    "0.5b": Figures(
        layers=24,
        linear_packed=178_913_280,
        linear_scales=44_728_320,
        head_packed=68_067_328,
        head_scales=17_016_832,
        norms=175_616,
        biases=110_592,
        as_exported=309_011_968,
        int4=322_909_184,
        int8=501_822_464,
        kv=12_288,
        linear_mac=357_826_560,
        head_mac=136_134_656,
        slot_mac=43_008,
        decode_512=515_981_312,
        decode_4096=670_121_984,
        prefill_256=129_272_643_584,
        prefill_256_last=94_558_306_304,
    ),
    "1.5b": Figures(
        layers=28,
        linear_packed=655_097_856,
        linear_scales=163_774_464,
        head_packed=116_686_848,
        head_scales=29_171_712,
        norms=350_208,
        biases=229_376,
        as_exported=965_310_464,
        int4=912_879_616,
        int8=1_567_977_472,
        kv=28_672,
        linear_mac=1_310_195_712,
        head_mac=233_373_696,
        slot_mac=86_016,
        decode_512=1_587_609_600,
        decode_4096=1_895_890_944,
        prefill_256=400_790_913_024,
        prefill_256_last=341_280_620_544,
    ),
    "3b": Figures(
        layers=36,
        linear_packed=1_387_266_048,
        linear_scales=346_816_512,
        head_packed=155_582_464,
        head_scales=38_895_616,
        norms=598_016,
        biases=368_640,
        as_exported=1_929_527_296,
        int4=1_747_128_320,
        int8=3_134_394_368,
        kv=36_864,
        linear_mac=2_774_532_096,
        head_mac=311_164_928,
        slot_mac=147_456,
        decode_512=3_161_194_496,
        decode_4096=3_689_676_800,
        prefill_256=799_602_114_560,
        prefill_256_last=720_255_057_920,
    ),
}


@cache
def _compiled(path: Path, quant: str, last_logit: bool) -> Trace:
    core = machine_preset("bpu80").cores
    return compile_model(path, core, Options(quant=quant, last_logit=last_logit))


@dataclass(frozen=True)
class Export:
    """One size: its file and its figures."""

    path: Path
    figures: Figures

    def trace(self, quant: str = "int4", last_logit: bool = False) -> Trace:
        return _compiled(self.path, quant, last_logit)


@pytest.fixture(params=FIGURES)
def llm(request: pytest.FixtureRequest, export: Find) -> Export:
    return Export(export(f"llm/qwen2.5-{request.param}-int4-genai.onnx"), FIGURES[request.param])


@pytest.fixture
def three_b(export: Find) -> Export:
    return Export(export("llm/qwen2.5-3b-int4-genai.onnx"), FIGURES["3b"])


def _bytes(trace: Trace, *roles: str) -> int:
    return sum(t.bytes * t.count for t in trace.tensors if t.role in roles)


def _unique(trace: Trace) -> int:
    """All weights but the RoPE tables, each once."""
    return trace.resident_bytes - _bytes(trace, "rope")


# --- bytes


def test_unique_bytes_as_exported(llm: Export) -> None:
    """3B: 1,387,266,048 + 346,816,512 (linear) + 155,582,464 + 38,895,616 (head) + 598,016 + 368,640 = 1,929,527,296.

    The embedding table is the head seen through a Reshape, so it adds nothing.
    """
    assert _unique(llm.trace("keep")) == llm.figures.as_exported


def test_unique_bytes_under_int4(llm: Export) -> None:
    """3B: linear 2,774,532,096 elements / 2 + 2 B a 128 = 1,430,618,112; head 311,164,928 + 2 B a 128 = 316,026,880;
    norms and biases fp16 299,008 + 184,320. Sum 1,747,128,320."""
    assert _unique(llm.trace("int4")) == llm.figures.int4


def test_unique_bytes_under_int8(llm: Export) -> None:
    """3B: the int4 sum and half a byte more for each of 2,774,532,096 linear elements: 3,134,394,368."""
    assert _unique(llm.trace("int8")) == llm.figures.int8


def test_unique_bytes_under_fp16(llm: Export) -> None:
    """Two bytes an element and no scales: linear and head elements equal their MACs a token; norms as in int4."""
    f = llm.figures
    assert _unique(llm.trace("fp16")) == 2 * (f.linear_mac + f.head_mac) + (f.norms + f.biases) // 2


def test_linear_bytes_as_exported(llm: Export) -> None:
    """0.5B: 357,826,560 elements / 2 = 178,913,280 and an fp32 scale for each block of 32: 44,728,320."""
    assert _bytes(llm.trace("keep"), "linear") == llm.figures.linear_packed + llm.figures.linear_scales


def test_linear_bytes_under_int4(llm: Export) -> None:
    """0.5B: K is 896 or 4864, both whole blocks of 128: 178,913,280 + 357,826,560 / 128 x 2 B = 184,504,320."""
    f = llm.figures
    assert _bytes(llm.trace("int4"), "linear") == f.linear_mac // 2 + f.linear_mac // 128 * 2


def test_the_tied_head_is_stored_once_as_exported(llm: Export) -> None:
    """0.5B: 151,936 x 896 / 2 = 68,067,328 and 28 fp32 scales a row = 17,016,832; no second table."""
    trace = llm.trace("keep")
    assert _bytes(trace, "head") == llm.figures.head_packed + llm.figures.head_scales
    assert _bytes(trace, "embedding") == 0


def test_the_tied_head_is_int8_under_int4(llm: Export) -> None:
    """0.5B: 136,134,656 elements of a byte and 7 fp16 scales a row: 136,134,656 + 151,936 x 14 = 138,261,760."""
    f = llm.figures
    assert _bytes(llm.trace("int4"), "head") == f.head_mac + f.head_mac // 128 * 2


def test_the_tied_head_names_both_its_users(llm: Export) -> None:
    (head,) = [t for t in llm.trace().tensors if t.role == "head"]
    assert {name.split("/")[0] for name in head.shared_by} == {"embed_tokens", "lm_head"}


@pytest.mark.parametrize(("quant", "width"), [("keep", 4), ("int4", 2), ("int8", 2)])
def test_norms_and_biases(llm: Export, quant: str, width: int) -> None:
    """The file stores fp32; every plan takes fp16. 3B: 73 norms x 2048 x 4 B = 598,016; 36 x 2560 x 4 B = 368,640."""
    trace = llm.trace(quant)
    assert _bytes(trace, "norm") == llm.figures.norms * width // 4
    assert _bytes(trace, "bias") == llm.figures.biases * width // 4


def test_the_rope_tables_as_exported(three_b: Export) -> None:
    """Two tables, cosine and sine, of 4096 rows x 64 fp32 values: 2,097,152."""
    assert _bytes(three_b.trace("keep"), "rope") == 2_097_152


@pytest.mark.parametrize(("quant", "factor"), [("int4", 1), ("int8", 1), ("keep", 2)])
def test_kv_bytes_per_token(llm: Export, quant: str, factor: int) -> None:
    """0.5B: 24 layers x 2 KV heads x 64 x 2 (key, value) x 2 B = 12,288; ``keep`` takes the file's fp32 cache."""
    assert llm.trace(quant).header.kv_bytes_per_token == llm.figures.kv * factor


# --- shape of the model


def test_layers(llm: Export) -> None:
    assert llm.trace().header.layers == llm.figures.layers


def test_layers_are_folded_in_both_phases(llm: Export) -> None:
    """A trace holds every layer once: far fewer lines than ops (0.5B: 12 ops x 24 layers)."""
    for phase in llm.trace().phases.values():
        assert len(list(phase.ops())) < 2 * 20


def test_the_context_is_the_rope_tables_length(llm: Export) -> None:
    assert llm.trace().header.context == 4096


def test_nothing_falls_back_to_the_cpu(llm: Export) -> None:
    assert llm.trace().header.report["cpu_fallbacks"] == {}


def test_a_decode_step_is_one_call(llm: Export) -> None:
    """The integer ops on the attention mask must not split it."""
    assert len(llm.trace().bind("decode", kv=100).segments) == 1


def test_the_mask_subgraph_is_host_bookkeeping(llm: Export) -> None:
    """ReduceSum, Sub, Cast give the lengths; Shape, Gather, Cast the total."""
    listed = llm.trace().header.report["host_bookkeeping"]
    assert listed == {"Cast": 2, "Gather": 1, "ReduceSum": 1, "Shape": 1, "Sub": 1}


# --- MACs


@pytest.mark.parametrize("quant", ["int4", "keep"])
def test_decode_macs_with_512_attended(llm: Export, quant: str) -> None:
    """0.5B: 357,826,560 + 136,134,656 + 512 x 43,008 = 515,981,312 (511 cached slots and the token itself)."""
    assert llm.trace(quant).bind("decode", kv=511).macs == llm.figures.decode_512


def test_decode_macs_with_4096_attended(llm: Export) -> None:
    """3B: 2,774,532,096 + 311,164,928 + 4096 x 147,456 = 3,689,676,800."""
    assert llm.trace().bind("decode", kv=4095).macs == llm.figures.decode_4096


def test_attention_macs_per_attended_slot(llm: Export) -> None:
    """3B: 36 layers x 16 heads x 128 x 2 products = 147,456."""
    trace = llm.trace()
    assert trace.bind("decode", kv=1000).macs - trace.bind("decode", kv=999).macs == llm.figures.slot_mac


def test_linear_and_head_macs_are_what_no_slot_explains(llm: Export) -> None:
    """3B: at kv 0 the token attends itself only, so MACs - 147,456 = 2,774,532,096 + 311,164,928."""
    f = llm.figures
    assert llm.trace().bind("decode", kv=0).macs - f.slot_mac == f.linear_mac + f.head_mac


def test_prefill_macs_of_a_whole_chunk(llm: Export) -> None:
    """1.5B: 256 x (1,310,195,712 + 233,373,696) + 256 x 256 x 86,016 = 400,790,913,024: logits for every row."""
    assert llm.trace().bind("prefill", kv=0, tokens=256).macs == llm.figures.prefill_256


def test_prefill_macs_with_the_last_logit_only(llm: Export) -> None:
    """1.5B: 255 head rows less: 400,790,913,024 - 255 x 233,373,696 = 341,280,620,544."""
    trace = llm.trace(last_logit=True)
    assert trace.bind("prefill", kv=0, tokens=256).macs == llm.figures.prefill_256_last


def test_last_logit_leaves_decode_alone(three_b: Export) -> None:
    assert three_b.trace(last_logit=True).bind("decode", kv=511).macs == three_b.figures.decode_512


def test_useful_prefill_macs_count_real_tokens_only(three_b: Export) -> None:
    """32 tokens: 32 x (2,774,532,096 + 311,164,928) + 32 x 32 x 147,456, though the array works through 256."""
    f = three_b.figures
    program = three_b.trace().bind("prefill", kv=0, tokens=32)
    assert program.macs == 32 * (f.linear_mac + f.head_mac) + 32 * 32 * f.slot_mac
    assert sum(c.issued for c in program.calls) >= f.prefill_256


# --- DRAM bytes of one step


@pytest.mark.parametrize("kv", [0, 1, 511, 4095])
def test_dram_bytes_of_a_3b_decode_step(three_b: Export, kv: int) -> None:
    """kv 511: 1,747,128,320 weights once + 2,080 for the embedding row (2048 int8 and 16 fp16 scales)
    + 36,864 x (511 read + 1 written) + 256 for the cosine and sine row (2 x 64 fp16) = 1,766,005,024. Nothing spills.
    """
    moved = three_b.trace().bind("decode", kv=kv).traffic()
    io = sum(n for (kind, _), n in moved.items() if kind == "io")
    assert sum(moved.values()) - io == 1_747_128_320 + 2_080 + 36_864 * (kv + 1) + 256
    assert not any(kind == "spill" for kind, _ in moved)


def test_inputs_and_outputs_of_a_3b_decode_step_are_listed_apart(three_b: Export) -> None:
    """An int64 token comes in, 151,936 16-bit logits go out."""
    moved = three_b.trace().bind("decode", kv=511).traffic()
    assert moved["io", False] == 8
    assert moved["io", True] == 151_936 * 2


def test_a_decode_step_streams_its_cache_by_kind(three_b: Export) -> None:
    """36,864 B for each of 511 cached tokens read and for the new one written."""
    moved = three_b.trace().bind("decode", kv=511).traffic()
    assert moved["kv", False] == 36_864 * 511
    assert moved["kv", True] == 36_864


def test_weight_bytes_of_a_3b_prefill_chunk(three_b: Export) -> None:
    """All weights once, and an embedding row of 2,080 B and RoPE rows of 256 B for each of the chunk's 256 places."""
    moved = three_b.trace().bind("prefill", kv=0, tokens=256).traffic()
    assert moved["weights", False] == 1_747_128_320 + 256 * (2_080 + 256)


def test_weight_bytes_of_a_static_chunk_do_not_depend_on_the_prompt(three_b: Export) -> None:
    trace = three_b.trace()
    few, all_ = (trace.bind("prefill", kv=0, tokens=n).traffic()["weights", False] for n in (1, 256))
    assert few == all_


# --- the other files


def test_the_decomposed_export_has_the_macs_of_the_fused_one(export: Find) -> None:
    """Torch export of the 0.5B at [1, 64], attention decomposed: 31,789,678,592 = 64 x (357,826,560 + 136,134,656)
    + 64 x 64 x 43,008 = the fused export at 64 tokens."""
    core = machine_preset("bpu80").cores
    torch = compile_model(export("llm/qwen2.5-0.5b-prefill64-torch.onnx"), core)
    fused = compile_model(export("llm/qwen2.5-0.5b-int4-genai.onnx"), core, Options(quant="int4", chunk=64))
    assert torch.bind("frame").macs == 31_789_678_592
    assert fused.bind("prefill", kv=0, tokens=64).macs == 31_789_678_592


def test_the_decomposed_export_has_the_weights_of_the_fused_one(export: Find) -> None:
    """357,826,560 linear and 136,134,656 table elements in both; all int4 with an fp16 scale for each 32 (K is 896 or
    4864, both whole blocks): 246,980,608 + 30,872,576 = 277,853,184 B."""
    core = machine_preset("bpu80").cores
    for name in ("qwen2.5-0.5b-prefill64-torch", "qwen2.5-0.5b-int4-genai"):
        trace = compile_model(export(f"llm/{name}.onnx"), core, Options(quant="fp16"))
        elements = _bytes(trace, "linear", "head", "embedding") // 2
        assert elements // 2 + elements // 32 * 2 == 277_853_184


@pytest.mark.parametrize(("name", "nodes", "products"), [("0.5b", 301, 121), ("1.5b", 349, 141), ("3b", 445, 181)])
def test_nodes_of_the_fused_exports(export: Find, name: str, nodes: int, products: int) -> None:
    """As the file has them, constants among them."""
    graph = onnx.load(export(f"llm/qwen2.5-{name}-int4-genai.onnx"), load_external_data=False).graph
    assert len(graph.node) == nodes
    assert sum(n.op_type == "MatMulNBits" for n in graph.node) == products


@pytest.mark.parametrize(("side", "macs"), [(640, 2_301_935_744), (960, 5_179_215_744)])
def test_the_text_detector(export: Find, side: int, macs: int) -> None:
    """Convolutions grow with the area, the channel gates behind ten global pools (111,744 MACs) do not:
    (5,179,215,744 - 111,744) x 640^2 / 960^2 + 111,744 = 2,301,935,744 exactly. (2,301,935,616, a figure found
    elsewhere, is this number rounded to 32-bit floating point.) Two transposed convolutions make
    24 x 24 x 4 x 160^2 and 24 x 4 x 320^2 of them. Nothing runs on the CPU."""
    options = Options(shapes={"x": (1, 3, side, side)}, strict=True)
    trace = compile_model(export("vision/ppocrv4-det.onnx"), machine_preset("bpu80").cores, options)
    assert trace.bind("frame").macs == macs
    assert trace.header.report["cpu_fallbacks"] == {}


def test_the_text_detectors_weights_are_constants(export: Find) -> None:
    """4,687,364 B in Constant nodes; an initialiser there is none."""
    model, sha = read_model(export("vision/ppocrv4-det.onnx"))
    assert not model.graph.initializer
    assert sum(t.bytes for t in load_graph(model, "det", sha).stored.values()) == 4_687_364


@pytest.mark.parametrize(("samples", "rate", "macs"), [(512, 16000, 563_968), (256, 8000, 342_016)])
def test_the_voice_activity_model(export: Find, samples: int, rate: int, macs: int) -> None:
    """At 16 kHz: a transform as a convolution, 3 places x 258 x 256; convolutions 3 x 129 x 128 x 3, 2 x 128 x 64 x 3,
    64 x 64 x 3 and 64 x 128 x 3; an LSTM of 512 x (128 + 128); 128 of the result. Its LSTM weights are put together
    from slices in the file, once: they are read like any weights."""
    shapes = {"input": (1, samples), "state": (2, 1, 128)}
    options = Options(shapes=shapes, bind={"sr": rate}, strict=True)
    trace = compile_model(export("audio/silero-vad.onnx"), machine_preset("bpu80").cores, options)
    by_hand = 3 * 258 * 256 + 3 * (3 * 129 * 128 + 2 * 128 * 64 + 64 * 64 + 64 * 128) + 512 * 256 + 128
    assert by_hand == 563_968
    assert trace.bind("frame").macs == macs
    assert trace.header.report["cpu_fallbacks"] == {}


@pytest.mark.parametrize(
    ("name", "macs"),
    [("qwen2-tiny-decode-kv128-torch", 157_952), ("qwen2-tiny-prefill64-torch", 9_043_968)],
)
def test_tiny_torch_exports(export: Find, name: str, macs: int) -> None:
    """Reference figures of the ONNX exports: fixed shapes, so one frame."""
    assert compile_model(export(f"tiny/{name}.onnx"), machine_preset("bpu80").cores).bind("frame").macs == macs


def test_the_tiny_fused_export(export: Find) -> None:
    """124,928 MAC a token and 256 an attended slot; 80,640 B as stored, without RoPE."""
    trace = compile_model(export("tiny/qwen2-tiny-int4-genai.onnx"), machine_preset("bpu80").cores)
    assert trace.bind("decode", kv=99).macs == 124_928 + 256 * 100
    assert _unique(trace) == 80_640


TINY_FP16 = "tiny/qwen2-tiny-fp16-genai.onnx"


@cache
def _tiny_fp16(path: Path, quant: str, chunk: int | None = None) -> Trace:
    return compile_model(path, machine_preset("bpu80").cores, Options(quant=quant, chunk=chunk))


def test_macs_of_the_tiny_unfused_export(export: Find) -> None:
    """The same model without GroupQueryAttention: 2 layers of 64 x (64 + 32 + 32 + 64 + 3 x 176), a head of 64 x 512,
    4 heads x 16 x 2 products x 2 layers a slot. 64 tokens: 9,043,968, as its torch export."""
    trace = _tiny_fp16(export(TINY_FP16), "keep", 64)
    assert 2 * 64 * (64 + 32 + 32 + 64 + 3 * 176) + 64 * 512 == 124_928
    assert trace.bind("decode", kv=99).macs == 124_928 + 256 * 100
    assert trace.bind("decode", kv=128).macs == 157_952
    assert trace.bind("prefill", kv=0, tokens=64).macs == 9_043_968


@pytest.mark.parametrize(
    ("quant", "bytes_"),
    [
        ("keep", 2 * (124_928 + 320)),  # 5 norms of 64
        ("int4", 2 * (23_040 + 2 * 672) + 32_768 + 2 * 512 + 640),  # a row of 64 is a block, one of 176 are two
        ("int8", 2 * (46_080 + 2 * 672) + 32_768 + 2 * 512 + 640),
    ],
)
def test_weights_of_the_tiny_unfused_export(export: Find, quant: str, bytes_: int) -> None:
    """Tied: the table is the head seen through a Transpose. 672 = 64 + 32 + 32 + 64 + 2 x 176 rows of one block and
    64 rows of two."""
    trace = _tiny_fp16(export(TINY_FP16), quant)
    assert _unique(trace) == bytes_
    assert _bytes(trace, "rope") == 2 * 256 * 8 * 2


def test_dram_bytes_of_the_tiny_unfused_export(export: Find) -> None:
    """All weights once, an embedding row of 64 x 2 B and RoPE rows of 2 x 8 x 2 B; 2 layers x 2 x 32 x 2 B a cached
    token read and one written, as with a fused attention; a token in, 512 logits out. Nothing spills."""
    trace = _tiny_fp16(export(TINY_FP16), "keep")
    assert trace.bind("decode", kv=99).traffic() == {
        ("weights", False): 250_496 + 128 + 32,
        ("kv", False): 256 * 99,
        ("kv", True): 256,
        ("io", False): 8,
        ("io", True): 1024,
    }
    assert (trace.header.layers, trace.header.kv_bytes_per_token, trace.header.context) == (2, 256, 256)


def test_the_mask_of_the_tiny_unfused_export_is_for_an_empty_cache(export: Find) -> None:
    """[s, s], expanded to [s, past + s]: onnxruntime too says "invalid expand shape", but where past = 0 or s = 1."""
    trace = _tiny_fp16(export(TINY_FP16), "keep")
    assert {name: phase.empty_cache for name, phase in trace.phases.items()} == {"prefill": True, "decode": False}
    assert any(n.startswith("prefill is for an empty cache: Expand '/model/") for n in trace.header.report["notes"])
    assert trace.header.report["cpu_fallbacks"] == {}


# --- the 7B, known by its configuration only


@pytest.fixture(scope="module")
def seven_b(repository: Path) -> Trace:
    config = repository / "traces" / "models" / "qwen2.5-7b.config.json"
    return compile_llm_config(config, machine_preset("bpu80").cores, Options(quant="int4", context=4096))


def _norms_and_biases_7b() -> int:
    """fp16: 57 norms of 3584 and 28 biases of (28 + 2 x 4) x 128 = 4608."""
    return 2 * (57 * 3584 + 28 * 4608)


def test_resident_bytes_of_the_7b(seven_b: Trace) -> None:
    """Linear 6,525,288,448 / 2 and a scale a 128 = 3,364,601,856; head and table 2 x 544,997,376 x (1 + 2/128)
    = 1,107,025,920; in all 4,471,627,776. Norms and biases are listed apart."""
    assert _bytes(seven_b, "linear", "head", "embedding") == 4_471_627_776


def test_streamed_bytes_of_a_7b_token(seven_b: Trace) -> None:
    """All but the embedding table, of which one row of 3584 + 28 x 2 B is read, and the RoPE row of 256 B."""
    moved = seven_b.bind("decode", kv=0).traffic()
    assert moved["weights", False] == 3_918_114_816 + _norms_and_biases_7b() + (3584 + 28 * 2) + 256


def test_norms_and_biases_of_the_7b(seven_b: Trace) -> None:
    assert _bytes(seven_b, "norm", "bias") == _norms_and_biases_7b()


def test_nothing_of_the_7b_falls_back_to_the_cpu(seven_b: Trace) -> None:
    assert seven_b.header.report["cpu_fallbacks"] == {}
