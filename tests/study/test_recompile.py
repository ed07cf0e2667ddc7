"""Traces for a core that a study changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bpusim import simulate
from bpusim.cli import main
from bpusim.study import Study, load_study, local_pool, run_study
from bpusim.trace import load_trace

CONFIG = {
    "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512,
    "max_position_embeddings": 512, "tie_word_embeddings": True,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny LLM's config, its trace, a scenario."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.json").write_text(json.dumps(CONFIG))
    compiled("tiny.trace")
    (tmp_path / "s.yaml").write_text(
        "machine: bpu80\nmodels: {chat: {trace: tiny.trace, cores: bpu0}}\n"
        "streams: {alice: {chat: chat, prompt: 8, output: 2}}\n"
    )
    return tmp_path


def compiled(out: str, *more: str) -> None:
    main(["compile", "--llm-config", "tiny.json", "--quant", "int4", "-o", out, *more], standalone_mode=False)


def study(folder: Path, text: str) -> Study:
    path = folder / "study.yaml"
    path.write_text(f"scenario: s.yaml\nmeasure: [streams.alice.ttft_mean_ms]\n{text}")
    return load_study(path)


def measures(row: dict[str, Any]) -> list[float]:
    found: list[float] = row["measures"]["streams.alice.ttft_mean_ms"]
    return found


def test_a_point_on_another_core_runs_what_is_compiled_for_it(folder: Path) -> None:
    out = folder / "r.jsonl"
    found = study(folder, "vary: {machine.cores.mac.rows: [128, 64], machine.cores.clock: [1 GHz, 800 MHz]}\n")
    rows = run_study(found, out, local_pool(1)).rows
    compiled("half.trace", "--set", "machine.cores.mac.rows=64")
    for row in rows:
        half = row["point"]["machine.cores.mac.rows"] == 64
        sets = [f"{path}={value}" for path, value in row["point"].items()]
        trace = "half.trace" if half else "tiny.trace"
        alone = simulate("s.yaml", set=[*sets, f"models.chat.trace={folder / trace}"]).to_dict()
        assert measures(row) == [float(f"{alone['streams']['alice']['ttft_mean_ms']:.9g}")]
    assert measures(rows[0]) != measures(rows[2])


def test_a_trace_is_compiled_once_and_kept_by_content(folder: Path) -> None:
    out = folder / "r.jsonl"
    found = study(folder, "vary: {machine.cores.mac.rows: [64], machine.cores.clock: [1 GHz, 800 MHz]}\n")
    run_study(found, out, local_pool(1))
    (kept,) = (folder / "r.jsonl.traces").iterdir()
    before = kept.stat().st_mtime_ns
    assert load_trace(kept).header.target["mac.rows"] == 64
    more = study(folder, "vary: {machine.cores.mac.rows: [64], machine.cores.clock: [600 MHz]}\n")
    run_study(more, out, local_pool(1))
    (still,) = (folder / "r.jsonl.traces").iterdir()
    assert (still, still.stat().st_mtime_ns) == (kept, before)


def test_a_core_is_no_reason_to_compile_if_it_is_the_same(folder: Path) -> None:
    out = folder / "r.jsonl"
    found = study(folder, "vary: {machine.cores.clock: [1 GHz, 800 MHz]}\n")
    assert run_study(found, out, local_pool(1)).counts == {"ok": 2}
    assert not (folder / "r.jsonl.traces").exists()


def test_a_model_that_is_not_there_is_asked_for(folder: Path) -> None:
    (folder / "elsewhere").mkdir()
    (folder / "tiny.json").rename(folder / "elsewhere" / "tiny.json")
    text = "vary: {machine.cores.mac.rows: [64]}\n"
    (row,) = run_study(study(folder, text), pool=local_pool(1)).rows
    assert row["status"] == "failed"
    assert "has to be compiled anew, but tiny.json is in none of" in row["error"]
    assert "sources: [FOLDER]" in row["error"]
    assert run_study(study(folder, f"{text}sources: [elsewhere]\n"), pool=local_pool(1)).counts == {"ok": 1}


def test_a_trace_that_does_not_say_how_it_was_compiled(folder: Path) -> None:
    path = folder / "tiny.trace"
    first, rest = path.read_text().split("\n", 1)
    path.write_text(json.dumps(json.loads(first) | {"command": ""}) + "\n" + rest)
    (row,) = run_study(study(folder, "vary: {machine.cores.mac.rows: [64]}\n"), pool=local_pool(1)).rows
    assert row["status"] == "failed"
    assert "does not say how it was compiled" in row["error"]


def test_a_model_that_does_not_compile_is_a_failed_point(folder: Path) -> None:
    (folder / "tiny.json").write_text(json.dumps(CONFIG | {"num_attention_heads": 5}))
    (row,) = run_study(study(folder, "vary: {machine.cores.mac.rows: [64]}\n"), pool=local_pool(1)).rows
    assert row["status"] == "failed"
    assert "tiny.json does not compile for this core" in row["error"]
