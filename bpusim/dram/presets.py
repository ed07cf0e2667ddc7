"""DRAM channels as data: what a preset moves at best, and how much of it is reached. Each row cites its source."""

from __future__ import annotations

from dataclasses import dataclass

from bpusim.errors import HardwareError, did_you_mean
from bpusim.units import Ps

__all__ = ["PRESETS", "DramPreset", "dram_preset"]


@dataclass(frozen=True, slots=True)
class DramPreset:
    """A channel: transfers per second and pin, width, efficiency under two or more streams, unloaded latency.

    ``efficiency`` is a stated figure, not yet a function of the traffic: the part of the peak that sequential readers
    reach together. ``latency`` is activate, read, and one burst on an idle channel.
    """

    name: str
    transfers_per_s: int
    width_bits: int
    efficiency: float
    latency: Ps
    source: str

    @property
    def peak(self) -> int:
        """Bytes per second on the pins."""
        return self.transfers_per_s * self.width_bits // 8

    @property
    def sustained(self) -> float:
        """Bytes per second that all masters together can get."""
        return self.peak * self.efficiency


def _latency(trcd_ns: float, rl_ck: int, tck_ns: float, burst_ck: int) -> Ps:
    """tRCD + RL + burst, in ps."""
    return round((trcd_ns + (rl_ck + burst_ck) * tck_ns) * 1000)


_ASSUMED = "efficiency assumed equal to LPDDR4X-3200x64 until a bank-level model gives it"
PRESETS: dict[str, DramPreset] = {
    p.name: p
    for p in (
        DramPreset(
            "LPDDR4X-3200x64",
            3_200_000_000,
            64,
            22.66 / 25.6,
            _latency(18.1, 28, 0.625, 8),
            "timing: JEDEC LPDDR4-3200 sets (tRCD 18.1 ns, RL 28, BL16); efficiency: two sequential readers reach "
            "22.66 of 25.6 GB/s in a bank-level trial of this channel (all-bank refresh, FR-FCFS)",
        ),
        DramPreset(
            "LPDDR4X-4266x64",
            4_266_000_000,
            64,
            22.66 / 25.6,
            _latency(18.3, 36, 0.469, 8),
            f"timing: JEDEC LPDDR4-4266 sets (tRCD 18.3 ns, RL 36, BL16); {_ASSUMED}",
        ),
        DramPreset(
            "LPDDR5-6400x64",
            6_400_000_000,
            64,
            22.66 / 25.6,
            _latency(18.0, 17, 1.25, 2),
            f"timing: JEDEC LPDDR5-6400 (tRCD 18 ns, RL 17 at CK 800 MHz, BL16 = 2 CK); {_ASSUMED}",
        ),
    )
}


def dram_preset(name: str) -> DramPreset:
    """The preset called ``name``; :class:`HardwareError` names those there are."""
    if name not in PRESETS:
        raise HardwareError(f"unknown DRAM preset '{name}'", do=did_you_mean(name, list(PRESETS)))
    return PRESETS[name]
