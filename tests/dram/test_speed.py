"""``machine.dram.speed``: the channel at another clock than its preset's."""

from __future__ import annotations

from pathlib import Path

import pytest

import bpusim
from bpusim.errors import ScenarioError
from bpusim.scenario import load_scenario
from bpusim.system.channels import table_of
from bpusim.system.roof import roof_of

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"


def test_peak_and_clock_scale_and_rows_take_as_long_as_ever() -> None:
    plain, fast = (
        table_of(load_scenario(SCENARIOS / "dual_replica.yaml", s)) for s in ([], ["machine.dram.speed=1.25"])
    )
    assert fast.peak == 1.25 * plain.peak
    assert fast.clock == plain.clock / 1.25
    assert fast.blocked * fast.clock == pytest.approx(plain.blocked * plain.clock)
    assert fast == plain.at_clock(1.25)


def test_one_is_the_preset_to_the_byte() -> None:
    plain, same = (
        bpusim.simulate(SCENARIOS / "dual_replica.yaml", set=["streams.alice.requests=1", *s]).to_dict()
        for s in ([], ["machine.dram.speed=1"])
    )
    assert plain == same


def test_the_roof_rises_where_the_channel_is_the_limit() -> None:
    sets = ["machine.dram.preset=LPDDR4X-3200x32"]
    slow, fast = (
        roof_of(load_scenario(SCENARIOS / "single_3b.yaml", [*sets, *s]).machine).bytes_per_s
        for s in ([], ["machine.dram.speed=1.1"])
    )
    assert fast == pytest.approx(1.1 * slow)


def test_the_bank_model_has_the_presets_clock_only() -> None:
    with pytest.raises(ScenarioError, match=r"--set machine.dram.speed: error: the bank model runs"):
        bpusim.simulate(SCENARIOS / "single_3b.yaml", set=["engine.dram=bank", "machine.dram.speed=1.1"])
