"""A pytest plugin for people who regression-test deployments: the ``simulate`` fixture.

pytest loads this module in every project, so it imports the simulator only when a test asks for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from bpusim.metrics import Result

__all__ = ["simulate"]


@pytest.fixture
def simulate() -> Callable[..., Result]:
    """``simulate(path, set=[...])`` as :func:`bpusim.simulate`."""
    from bpusim.system import simulate as run

    return run
