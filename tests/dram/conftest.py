"""The protocol checker as fixtures; it is a module beside this file, which is no package."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from bpusim.dram.timing import Channel

Check = Callable[[Channel, Sequence[Sequence[int]]], list[str]]
CheckRefresh = Callable[[Channel, Sequence[Sequence[int]], int], list[str]]


@pytest.fixture(scope="session")
def protocol() -> ModuleType:
    """The module ``protocol.py``."""
    spec = importlib.util.spec_from_file_location("dram_protocol", Path(__file__).with_name("protocol.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def check(protocol: ModuleType) -> Check:
    """Problems of a command log."""
    return protocol.check  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def check_refresh(protocol: ModuleType) -> CheckRefresh:
    """Problems of the refreshes in a command log."""
    return protocol.check_refresh  # type: ignore[no-any-return]
