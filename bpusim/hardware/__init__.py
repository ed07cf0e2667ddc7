"""Machine descriptions: frozen dataclasses, presets as data, closed-form costs of the array."""

from bpusim.hardware.presets import machine_preset, preset_names
from bpusim.hardware.spec import (
    CoreSpec,
    CoresSpec,
    DmaSpec,
    DramSpec,
    HostSpec,
    MachineSpec,
    MacSpec,
    MasterSpec,
    VectorSpec,
)

__all__ = [
    "CoreSpec",
    "CoresSpec",
    "DmaSpec",
    "DramSpec",
    "HostSpec",
    "MacSpec",
    "MachineSpec",
    "MasterSpec",
    "VectorSpec",
    "machine_preset",
    "preset_names",
]
