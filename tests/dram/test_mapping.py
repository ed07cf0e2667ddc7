"""Address mappings: text, decoding, and that every line of a channel has one place."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpusim.dram.mapping import FIELDS, Mapping
from bpusim.dram.timing import channel
from bpusim.errors import HardwareError

BITS = {"co": 6, "ro": 16, "ra": 0, "bg": 0, "ba": 3}
"""The reference machine's: 64 lines, 65536 rows, 8 banks."""


def twin(address: int, mapping: str, line: int = 64) -> tuple[int, int, int]:
    """(bank, row, column) as the reference streams decode an address (dram_streams.py, written anew)."""
    x = address // line
    if mapping in ("RoBaCo", "RoBaCoX"):
        column, bank, row = x & 63, x >> 6 & 7, x >> 9 & 0xFFFF
        return (bank ^ (row & 7) if mapping == "RoBaCoX" else bank), row, column
    if mapping == "RoCoBa":
        return x & 7, x >> 9 & 0xFFFF, x >> 3 & 63
    assert mapping == "RoCoBaCo2X"
    row = x >> 9 & 0xFFFF
    return (x >> 2 & 7) ^ (row & 7), row, x & 3 | (x >> 5 & 15) << 2


@pytest.mark.parametrize("name", ["RoBaCo", "RoCoBa", "RoCoBaCo2X", "RoBaCoX"])
def test_decodes_as_the_reference_streams(name: str) -> None:
    mapping = channel("LPDDR4-4266x32").mapping(name)
    pick = random.Random(name)
    lines = [*range(4096), *(1 << k for k in range(25)), *(pick.randrange(1 << 25) for _ in range(4000)), (1 << 25) - 1]
    for line in lines:
        got = mapping.decode(line)
        assert (got["ba"], got["ro"], got["co"]) == twin(64 * line, name), line


def test_the_sets_own_mapping_is_the_folded_one() -> None:
    own, folded = channel("LPDDR4-4266x32").mapping(), channel("LPDDR4-4266x32").mapping("RoCoBaCo2X")
    assert all(own.decode(n) == folded.decode(n) for n in range(0, 1 << 25, 99_991))


def test_pieces_count_from_the_low_end() -> None:
    # 0b1_10_011_01: columns 01, banks 011, columns 10, row 1.
    mapping = Mapping.parse("co2 ba3 co2 ro1", {"co": 4, "ba": 3, "ro": 1, "bg": 0, "ra": 0})
    assert mapping.decode(0b1_10_011_01) == {"co": 0b1001, "ba": 0b011, "bg": 0, "ra": 0, "ro": 1}


def test_an_xor_folds_the_row_bits_it_names() -> None:
    # Row 0b11000 from bit 3 on is 0b011 in three bank bits.
    mapping = Mapping.parse("co6 ba3 ro16 ba^=ro3", BITS)
    assert mapping.decode(0b11000 << 9)["ba"] == 0b011


def test_a_name_puts_groups_and_ranks_after_the_banks() -> None:
    bits = {"co": 1, "ba": 1, "bg": 1, "ra": 1, "ro": 1}
    assert [f for f, _ in Mapping.parse("RoBaCo", bits).pieces] == ["co", "ba", "bg", "ra", "ro"]


def test_lines_beyond_the_channel_wrap_around() -> None:
    mapping = channel("LPDDR4-4266x32").mapping("RoBaCo")
    assert mapping.decode((1 << 25) + 77) == mapping.decode(77)


@pytest.mark.parametrize("piece", ["banks", "co-1", "co6,", "ba^ro0", "ro^=ba0", "co^=ro0", "ba^=ro", "Ro16", "64"])
def test_what_is_no_piece(piece: str) -> None:
    with pytest.raises(HardwareError) as caught:
        Mapping.parse(f"co6 ba3 ro16 {piece}", BITS)
    assert str(caught.value) == (
        f"error: address mapping 'co6 ba3 ro16 {piece}': '{piece}' is no piece of it; "
        "write pieces such as co2 ba3 ro16 ba^=ro0, or one of RoBaCo, RoCoBa, RoCoBaCo2X, RoBaCoX"
    )


@pytest.mark.parametrize(
    ("text", "have"),
    [
        ("co5 ba3 ro16", "co has 5 bits where the channel has 6"),
        ("co6 ba3 ro17", "ro has 17 bits where the channel has 16"),
        ("co6 ro16", "ba has 0 bits where the channel has 3"),
        ("co6 ba3 ra1 ro16", "ra has 1 bits where the channel has 0"),
        ("co6 co6 ba3 ro16", "co has 12 bits where the channel has 6"),
    ],
)
def test_every_bit_has_exactly_one_place(text: str, have: str) -> None:
    with pytest.raises(HardwareError) as caught:
        Mapping.parse(text, BITS)
    assert str(caught.value) == (f"error: address mapping '{text}': {have}; give every bit of the channel one place")


def test_all_fields_that_are_wrong_are_told_at_once() -> None:
    with pytest.raises(HardwareError, match=r"co has 5 bits .*, ro has 17 bits|ro has 17 bits .*, co has 5 bits"):
        Mapping.parse("co5 ba3 ro17", BITS)


@st.composite
def mappings(draw: st.DrawFn) -> Mapping:
    """Any order of any split of a small channel's bits, with any XORs."""
    bits = {f: draw(st.integers(0, 3)) for f in FIELDS}
    single = [f for f in FIELDS for _ in range(bits[f])]
    shuffled = draw(st.permutations(single))
    words = [f"{f}{len(list(run))}" for f, run in itertools.groupby(shuffled)]
    folds = [f for f in ("ba", "bg") if bits[f] and bits["ro"] and draw(st.booleans())]
    words += [f"{f}^=ro{draw(st.integers(0, bits['ro'] - 1))}" for f in folds]
    return Mapping.parse(" ".join(words), bits)


@given(mappings())
def test_every_line_has_a_place_of_its_own(mapping: Mapping) -> None:
    total = 1 << sum(mapping.bits.values())
    step = 1 if total <= 512 else 61  # odd, so prime to a power of two: the places of a sample still differ
    places = [tuple(mapping.decode(n).values()) for n in range(0, total, step)]
    assert len(set(places)) == len(places)
    assert all(v < 1 << mapping.bits[f] for p in places for f, v in zip(FIELDS, p, strict=True))
