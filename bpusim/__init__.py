"""bpusim: a cycle-approximate simulator of a dual-core edge NPU.

The facade: :func:`load_scenario`, :func:`simulate`, :func:`compile_model`, :func:`load_trace` and what they give.
Names are imported when first used, so that a command pays only for what it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bpusim.compiler import compile_llm_config, compile_model
    from bpusim.errors import BpusimError
    from bpusim.metrics import Result
    from bpusim.scenario import Scenario, load_scenario
    from bpusim.system import simulate
    from bpusim.trace import Trace, load_trace

__all__ = [
    "BpusimError",
    "Result",
    "Scenario",
    "Trace",
    "compile_llm_config",
    "compile_model",
    "load_scenario",
    "load_trace",
    "simulate",
]

__version__ = "0.1.0"

_HOME = {
    "BpusimError": "bpusim.errors",
    "Result": "bpusim.metrics",
    "Scenario": "bpusim.scenario",
    "Trace": "bpusim.trace",
    "compile_llm_config": "bpusim.compiler",
    "compile_model": "bpusim.compiler",
    "load_scenario": "bpusim.scenario",
    "load_trace": "bpusim.trace",
    "simulate": "bpusim.system",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        from importlib import import_module

        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'bpusim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
