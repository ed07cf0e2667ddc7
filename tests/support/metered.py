"""An observer for tests of the CPU cluster."""

from __future__ import annotations

from bpusim.metrics import Recorder


class Metered(Recorder):
    """An observer that looks at what the cluster does."""

    __slots__ = ()

    @property
    def wants_activity(self) -> bool:
        return True
