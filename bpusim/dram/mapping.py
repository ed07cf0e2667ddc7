"""Address mappings: which bits of a line's index are column, bank, group, rank and row.

Written low bits first: ``co2 ba3 co4 ro16 ba^=ro0`` is two column bits, three bank bits, four more column bits, sixteen
row bits, and the bank XORed with as many row bits from bit 0 on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping as Bits
from dataclasses import dataclass

from bpusim.errors import HardwareError

__all__ = ["FIELDS", "NAMED", "Mapping"]

FIELDS = ("co", "ba", "bg", "ra", "ro")

NAMED = {
    "RoBaCo": "co ba ro",
    "RoCoBa": "ba co ro",
    "RoCoBaCo2X": "co2 ba co ro ba^=ro0",
    "RoBaCoX": "co ba ro ba^=ro0",
}
"""Short names; a field without a number takes what is left of its bits. Groups and ranks come after the banks."""

_PIECE = re.compile(r"(co|ba|bg|ra|ro)(\d+)?")
_XOR = re.compile(r"(ba|bg)\^=ro(\d+)")


@dataclass(frozen=True, slots=True)
class Mapping:
    """Pieces (field, bits) from the low end, and XORs (field, first row bit)."""

    text: str
    pieces: tuple[tuple[str, int], ...]
    xors: tuple[tuple[str, int], ...]
    bits: Bits[str, int]

    @classmethod
    def parse(cls, text: str, bits: Bits[str, int]) -> Mapping:
        """Read ``text`` (a mapping or a short name) for fields of so many bits. Raises :class:`HardwareError`."""
        words = NAMED.get(text, text).split()
        if text in NAMED:
            words = [w for word in words for w in ([word, "bg", "ra"] if word == "ba" else [word])]
        pieces: list[tuple[str, int]] = []
        xors: list[tuple[str, int]] = []
        left = dict(bits)
        for word in words:
            if match := _XOR.fullmatch(word):
                xors.append((match[1], int(match[2])))
                continue
            match = _PIECE.fullmatch(word)
            if not match:
                do = f"write pieces such as co2 ba3 ro16 ba^=ro0, or one of {', '.join(NAMED)}"
                raise HardwareError(f"address mapping '{text}': '{word}' is no piece of it", do=do)
            take = int(match[2]) if match[2] else left[match[1]]
            left[match[1]] -= take
            pieces.append((match[1], take))
        wrong = {f: bits[f] - n for f, n in left.items() if n}
        if wrong:
            have = ", ".join(f"{f} has {n} bits where the channel has {bits[f]}" for f, n in wrong.items())
            raise HardwareError(f"address mapping '{text}': {have}", do="give every bit of the channel one place")
        return cls(text, tuple(pieces), tuple(xors), dict(bits))

    def decode(self, line: int) -> dict[str, int]:
        """Column, bank, group, rank and row of a line index; lines beyond the channel wrap around."""
        out = dict.fromkeys(FIELDS, 0)
        have = dict.fromkeys(FIELDS, 0)
        for field, n in self.pieces:
            out[field] |= (line & ((1 << n) - 1)) << have[field]
            have[field] += n
            line >>= n
        for field, first in self.xors:
            out[field] ^= (out["ro"] >> first) & ((1 << self.bits[field]) - 1)
        return out
