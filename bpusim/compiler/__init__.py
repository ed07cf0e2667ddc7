"""Graph to trace. The only package that imports onnx and networkx."""

from bpusim.compiler.build import Options, compile_graph, compile_llm_config, compile_model
from bpusim.compiler.files import read_model
from bpusim.compiler.graph import Graph
from bpusim.compiler.reader import load_graph

__all__ = ["Graph", "Options", "compile_graph", "compile_llm_config", "compile_model", "load_graph", "read_model"]
