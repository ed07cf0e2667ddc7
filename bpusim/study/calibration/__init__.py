"""Machines from measurements: which numbers fit published runs, how surely, and how well rows unseen are told."""

from bpusim.study.calibration.calibrate import Calibration, Noise, RowResult, calibrate
from bpusim.study.calibration.reading import read_measurements
from bpusim.study.calibration.recipe import Compile, Wish
from bpusim.study.calibration.rows import Measured, Measurements

__all__ = [
    "Calibration",
    "Compile",
    "Measured",
    "Measurements",
    "Noise",
    "RowResult",
    "Wish",
    "calibrate",
    "read_measurements",
]
