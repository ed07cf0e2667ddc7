"""A tensor split as a file says it: each mistake at its place, and what the result says of it."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest

from bpusim import simulate
from bpusim.errors import BpusimError
from bpusim.metrics import Result
from bpusim.report.files import summary_json
from bpusim.report.table import print_result

TRACES = Path(__file__).resolve().parents[2] / "traces"
SPLIT = "cores: [bpu0, bpu1], split: tensor, sync: 20 us"


def run(folder: Path, model: str = SPLIT, trace: Path = TRACES / "qwen2.5-0.5b-int4.trace", more: str = "") -> Result:
    path = folder / "a.yaml"
    text = f"models:\n  m: {{trace: '{trace}', {model}}}\nstreams:\n  a: {{chat: m, prompt: 8, output: 3}}\n"
    path.write_text(f"{text}{more or 'machine: bpu80'}\n", encoding="utf-8")
    return simulate(path)


def refusal(folder: Path, model: str, trace: Path = TRACES / "qwen2.5-0.5b-int4.trace", more: str = "") -> str:
    """The one problem, without the folder's name and the column."""
    with pytest.raises(BpusimError) as caught:
        run(folder, model, trace, more)
    (problem,) = caught.value.problems
    return re.sub(r"^a\.yaml:(\d+):\d+", r"a.yaml:\1", str(problem).replace(f"{folder}/", ""))


@pytest.mark.parametrize(
    ("model", "key", "what", "do"),
    [
        ("cores: bpu0, split: tensor, sync: 20 us", "split", "a split needs more than one core",
         "remove it, or list several cores"),
        ("cores: any, split: tensor, sync: 20 us", "split", "a tensor split needs cores of its own",
         "name them, such as cores: [bpu0, bpu1]"),
        ("cores: [bpu0, bpu1], split: tensor", "",
         "a tensor split needs sync, the cost of each barrier between cores", "add sync: 20 us"),
        ("cores: [bpu0, bpu1], split: tensor, sync: 20", "sync", "20 has no unit", "write a time such as '479 ns'"),
        ("cores: [bpu0, bpu1], split: even, sync: 20 us", "sync", "sync means nothing without a tensor split",
         "add split: tensor or remove it"),
        ("cores: bpu0, unsplit: [Softmax]", "unsplit", "unsplit means nothing without a tensor split",
         "add split: tensor or remove it"),
        (f"{SPLIT}, unsplit: Softmax", "unsplit", "not a list of op types",
         "write such as unsplit: [Softmax], types of the trace, or [] for none"),
        ("cores: [bpu0, bpu1], split: tensors", "split", "not a split",
         "write even, layers per core such as [14, 14], or tensor"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_at_its_place(tmp_path: Path, model: str, key: str, what: str, do: str) -> None:
    assert refusal(tmp_path, model) == f"a.yaml:2: error: models.m{key and '.'}{key}: {what}; {do}"


def test_an_op_type_that_the_trace_has_none_of_is_refused_with_what_was_meant(tmp_path: Path) -> None:
    text = refusal(tmp_path, f"{SPLIT}, unsplit: [Sigmod]")
    assert text == "a.yaml:2: error: the trace of model 'm' has no op of type 'Sigmod'; did you mean 'Sigmoid'?"


def test_a_trace_for_one_core_is_refused(tmp_path: Path) -> None:
    pinned = tmp_path / "pinned.trace"
    text = (TRACES / "qwen2.5-0.5b-int4.trace").read_text(encoding="utf-8")
    pinned.write_text(text.replace('"cores":"any"', '"cores":[1]', 1), encoding="utf-8")
    assert refusal(tmp_path, SPLIT, pinned) == (
        "a.yaml:2: error: model 'm' cannot be spread over cores 0,1: its trace is compiled for cores [1]; "
        "compile it with --cores any, or take cores: bpu1 without the split"
    )


def test_a_toolchain_that_nobody_knows_needs_to_be_told(tmp_path: Path) -> None:
    other = tmp_path / "other.trace"
    text = (TRACES / "qwen2.5-0.5b-int4.trace").read_text(encoding="utf-8")
    other.write_text(text.replace('"toolchain":"1.0"', '"toolchain":"2.0"', 1), encoding="utf-8")
    machine = "machine: {preset: bpu80, cores: {toolchain: '2.0'}}"
    assert refusal(tmp_path, SPLIT, other, machine) == (
        "a.yaml:2: error: nobody says which ops toolchain '2.0' leaves on one core; "
        "add unsplit: [Softmax], or [] for none"
    )
    assert run(tmp_path, f"{SPLIT}, unsplit: []", other, machine).splits["m"].phases["decode"].barriers > 24 * 2


def test_what_stays_on_one_core_may_be_said(tmp_path: Path) -> None:
    mine = run(tmp_path, f"{SPLIT}, unsplit: [Sigmoid, GroupQueryAttention]").splits["m"].phases["decode"]
    assert {"Sigmoid", "GroupQueryAttention"} <= set(mine.left)
    assert "SkipSimplifiedLayerNormalization" in mine.split
    assert {"Sigmoid", "GroupQueryAttention"} <= set(run(tmp_path).splits["m"].phases["decode"].split)


def test_the_summary_and_the_tables_have_the_plan(tmp_path: Path) -> None:
    result = run(tmp_path)
    plan = json.loads(summary_json(result))["tensor_splits"]["m"]
    assert (plan["cores"], plan["sync_us"]) == (["bpu0", "bpu1"], 20)
    decode = plan["phases"]["decode"]
    assert (decode["barriers"], decode["layers"]) == (24 * 4 + 1, 24)
    f = decode["splittable_fraction"]
    assert decode["speedup_bound"] == pytest.approx(1 / (1 - f / 2))
    assert f == pytest.approx(sum(decode["split_fractions"].values()))
    assert f + sum(decode["one_core_fractions"].values()) == pytest.approx(1)
    out = io.StringIO()
    print_result(result, out)
    text = out.getvalue()
    assert "Tensor split of m over bpu0, bpu1, 20 us a barrier" in text
    assert "left on one core SkipSimplifiedLayerNormalization" in " ".join(text.split())
    assert "bpu1: load success: m share 2 of 2" in text


def test_ops_on_the_cpu_are_among_what_is_left_on_one_core(tmp_path: Path) -> None:
    trace = TRACES / "qwen2.5-3b-int4-fallback.trace"
    plan = run(tmp_path, trace=trace).splits["m"].phases["decode"]
    assert plan.left["Sigmoid"] > 0.1
    assert plan.barriers % 36 in (1, 2)


@pytest.mark.parametrize(("priority", "warned"), [(253, False), (254, True)])
def test_a_priority_that_cannot_interrupt_another_split_is_warned_about(
    tmp_path: Path, priority: int, warned: bool
) -> None:
    trace = TRACES / "qwen2.5-0.5b-int4.trace"
    path = tmp_path / "a.yaml"
    models = "".join(
        f"  {n}: {{trace: '{trace}', {SPLIT}, max_call: 1 ms, priority: {p}}}\n" for n, p in (("a", priority), ("b", 0))
    )
    streams = "".join(f"  {n}s: {{chat: {n}, prompt: 8, output: 2}}\n" for n in ("a", "b"))
    path.write_text(f"machine: bpu80\nmodels:\n{models}streams:\n{streams}", encoding="utf-8")
    texts = [w.text for w in simulate(path).warnings if w.code == "nothing-to-interrupt"]
    assert (
        texts
        == ["priority 254 of a does not interrupt b: tensor splits that share a core take turns, call by call"] * warned
    )


def test_without_a_tensor_split_nothing_is_said_of_one(tmp_path: Path) -> None:
    assert "tensor_splits" not in run(tmp_path, "cores: bpu0").to_dict()
