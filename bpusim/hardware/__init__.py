"""Machine descriptions: frozen dataclasses, presets as data, closed-form costs of the array."""

from bpusim.hardware.heat import ClockSpec, ClocksSpec, CoolingSpec, PowerSpec, ZoneSpec
from bpusim.hardware.presets import cooling_document, cooling_names, machine_preset, preset_names
from bpusim.hardware.spec import (
    CoreSpec,
    CoresSpec,
    DmaSpec,
    DramSpec,
    HostSpec,
    MachineSpec,
    MacSpec,
    MasterSpec,
    SlowSpec,
    VectorSpec,
)

__all__ = [
    "ClockSpec",
    "ClocksSpec",
    "CoolingSpec",
    "CoreSpec",
    "CoresSpec",
    "DmaSpec",
    "DramSpec",
    "HostSpec",
    "MacSpec",
    "MachineSpec",
    "MasterSpec",
    "PowerSpec",
    "SlowSpec",
    "VectorSpec",
    "ZoneSpec",
    "cooling_document",
    "cooling_names",
    "machine_preset",
    "preset_names",
]
