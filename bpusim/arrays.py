"""Names of array types, for annotations alone: loading ``numpy.typing`` would cost a run as much as the run itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bools = NDArray[np.bool_]
    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["Bools", "Floats", "Ints"]
