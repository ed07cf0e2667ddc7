"""A plain install, without onnx and networkx: what needs neither works, what needs one names the extra."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TRACE = Path(__file__).parents[2] / "traces" / "wake_word.trace"
TEXTS = {
    "p.csv": "name,engine,us,bytes\na,mac,100,1000\nb,cpu,500,10\n",
    "s.csv": "Layer,M,N,K,\na,10,20,30,\n",
}


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A folder to run in, with modules in ``none`` that are as good as not installed."""
    for name, text in TEXTS.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "none").mkdir()
    for name in ("onnx", "networkx"):
        _absent(tmp_path / "none" / f"{name}.py", name)
    return tmp_path


def _absent(path: Path, name: str) -> None:
    path.write_text(f"raise ModuleNotFoundError('No module named {name}', name={name!r})\n", encoding="utf-8")


def _run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(folder / "none"), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "words",
    [
        "import scalesim s.csv -o out.trace",
        "import profile p.csv -o out.trace",
        f"trace show {TRACE}",
        f"trace check {TRACE}",
        f"trace diff {TRACE} {TRACE}",
        f"trace export-chakra {TRACE} -o out.et",
    ],
    ids=lambda words: " ".join(words.split()[:2]),
)
def test_what_needs_no_onnx(plain: Path, words: str) -> None:
    done = _run(plain, "-m", "bpusim", *words.split())
    assert done.returncode == 0, done.stderr


def test_chakra_needs_protobuf_alone(plain: Path) -> None:
    assert _run(plain, "-m", "bpusim", "trace", "export-chakra", str(TRACE), "-o", "x.et").returncode == 0
    assert _run(plain, "-m", "bpusim", "import", "chakra", "x.et", "-o", "y.trace").returncode == 0
    (plain / "none" / "google").mkdir()
    _absent(plain / "none" / "google" / "__init__.py", "google")
    done = _run(plain, "-m", "bpusim", "import", "chakra", "x.et", "-o", "z.trace")
    assert (done.returncode, done.stderr) == (
        2,
        "error: Chakra needs protobuf, which is not there; pip install 'bpusim[compile]'\n",
    )


def test_compiling_names_the_extra(plain: Path) -> None:
    done = _run(plain, "-m", "bpusim", "compile", "x.onnx", "-o", "x.trace")
    assert "Traceback" not in done.stderr
    assert done.stderr.endswith("which is not installed; pip install 'bpusim[compile]'\n")
    assert done.returncode == 2


def test_the_facade_names_the_extra(plain: Path) -> None:
    done = _run(plain, "-c", "import bpusim; bpusim.compile_model")
    assert "CompileError: error: compiling a graph needs" in done.stderr
    assert "pip install 'bpusim[compile]'" in done.stderr
