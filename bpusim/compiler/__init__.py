"""Graph to trace. The only package that imports onnx and networkx, which come with ``bpusim[compile]``.

Names are imported when first used: what other packages take of this one (how an op is tiled) needs neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bpusim.errors import CompileError

if TYPE_CHECKING:
    from bpusim.compiler.build import Options, compile_graph, compile_llm_config, compile_model
    from bpusim.compiler.files import read_model
    from bpusim.compiler.graph import Graph
    from bpusim.compiler.reader import load_graph

__all__ = [
    "Graph",
    "Options",
    "check_installed",
    "compile_graph",
    "compile_llm_config",
    "compile_model",
    "load_graph",
    "read_model",
]

_HOME = {
    "Graph": "graph",
    "Options": "build",
    "compile_graph": "build",
    "compile_llm_config": "build",
    "compile_model": "build",
    "load_graph": "reader",
    "read_model": "files",
}


def check_installed() -> None:
    """Raise :class:`CompileError` where onnx or networkx is not installed."""
    try:
        import networkx  # noqa: F401
        import onnx  # noqa: F401
    except ModuleNotFoundError as e:
        what = f"compiling a graph needs {e.name}, which is not installed"
        raise CompileError(what, do="pip install 'bpusim[compile]'") from None


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'bpusim.compiler' has no attribute {name!r}")
    from importlib import import_module

    check_installed()
    return getattr(import_module(f"bpusim.compiler.{_HOME[name]}"), name)
