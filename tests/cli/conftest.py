"""What the tests of the command line share."""

from __future__ import annotations

from pathlib import Path

import pytest
from desks import Desk


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A desk that is the working directory."""
    monkeypatch.chdir(tmp_path)
    return Desk(tmp_path)
