"""The heat path: lumps with a heat capacity each, resistances between them, and air whose temperature is given.

``C dT/dt = -G (T - T_air) + P`` is linear, so it is solved, not stepped through: in the coordinates of its modes,
``C^1/2 (T - T_air)`` turned onto the eigenvectors of ``C^-1/2 G C^-1/2``, each mode decays by itself, and power that is
constant over an interval adds a term that is known in closed form. Any number of such intervals, however they overlap,
are simply added. So temperatures do not depend on when anybody looks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bpusim.hardware.heat import AMBIENT

if TYPE_CHECKING:
    from bpusim.arrays import Floats, Ints

__all__ = ["Network", "Pulses"]

_STEADY = 1e-10
"""A mode this much slower than the fastest is lost in the rounding of floats, or of a node joined to nothing."""


@dataclass(frozen=True, slots=True)
class Pulses:
    """Power that is constant over an interval each: ``watts`` into ``node`` from ``begin`` to ``end``, in seconds from
    the beginning of the step."""

    node: Ints
    begin: Floats
    end: Floats
    watts: Floats


class Network:
    """Nodes with capacities (J/K), links (two names, K/W), and the temperature of ``ambient`` (degC).

    Raises :class:`ValueError` for capacities or resistances that are not positive, and for a node without a way to
    ``ambient``.
    """

    def __init__(
        self, capacities: Mapping[str, float], links: Sequence[tuple[str, str, float]], ambient: float
    ) -> None:
        self.names = tuple(capacities)
        self.ambient = ambient
        if any(not c > 0 for c in capacities.values()) or any(not r > 0 for _, _, r in links):
            raise ValueError("capacities and resistances must be positive")
        n, at = len(self.names), {name: k for k, name in enumerate(self.names)}
        conductance = np.zeros((n, n))
        for a, b, resistance in links:
            ends = [at[e] for e in (a, b) if e != AMBIENT]
            for e in ends:
                conductance[e, e] += 1 / resistance
            if len(ends) == 2:
                conductance[ends[0], ends[1]] -= 1 / resistance
                conductance[ends[1], ends[0]] -= 1 / resistance
        self._conductance = conductance
        root = np.sqrt(np.array(list(capacities.values())))
        rates, vectors = np.linalg.eigh(conductance / np.outer(root, root))
        if rates[0] <= rates[-1] * _STEADY:
            raise ValueError("a node has no way to ambient, or warms up ten billion times as fast as another")
        self._rates = rates
        self._into = vectors.T / root
        """Modes from power."""
        self._out = vectors / root[:, None]
        """Temperatures from modes."""
        self._modes = vectors.T * root
        """Modes from temperatures."""

    @property
    def time_constants(self) -> list[float]:
        """Of its modes in seconds, the slowest first."""
        return [float(1 / r) for r in self._rates]

    def steady(self, watts: Sequence[float]) -> Floats:
        """Temperatures in degC that constant power leads to."""
        return self.ambient + np.linalg.solve(self._conductance, np.asarray(watts, dtype=float))

    def after(
        self, temperatures: Sequence[float] | Floats, seconds: float, watts: Sequence[float] | Floats, pulses: Pulses
    ) -> Floats:
        """Temperatures in degC ``seconds`` later, ``watts`` going into each node all the time and ``pulses`` besides.

        Exact but for the rounding of floats.
        """
        rates = self._rates
        x = self._modes @ (np.asarray(temperatures) - self.ambient) * np.exp(-rates * seconds)
        x += self._into @ np.asarray(watts) * (-np.expm1(-rates * seconds) / rates)
        if len(pulses.watts):
            grown = -np.expm1(np.multiply.outer(pulses.begin - pulses.end, rates)) / rates
            grown *= np.exp(np.multiply.outer(pulses.end - seconds, rates))
            x += np.einsum("k,mk,km->m", pulses.watts, self._into[:, pulses.node], grown)
        out: Floats = self.ambient + self._out @ x
        return out
