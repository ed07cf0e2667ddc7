"""Machine presets: found by name, described by their files."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from bpusim.dram import flow_table
from bpusim.errors import HardwareError, Place
from bpusim.hardware import DramSpec, presets
from bpusim.hardware.presets import machine_preset, preset_document, preset_names


def test_names_are_the_files_in_order() -> None:
    names = preset_names()
    assert "bpu80" in names
    assert list(names) == sorted(names)


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_a_machine_of_its_own_name(name: str) -> None:
    assert machine_preset(name).name == name


def test_bpu80_delivers_the_80_tops_on_its_label() -> None:
    cores = machine_preset("bpu80").cores
    # 1 MAC = 2 operations; the label rounds, the clock in the file has five digits.
    assert 2 * cores.peak_macs_per_s * cores.count == pytest.approx(80e12, rel=1e-4)


@pytest.mark.parametrize(("unit", "published"), [("cores", 17.1e9), ("host", 16.0e9)])
def test_a_bpu80_core_and_its_cpu_alone_read_the_published_gigabytes_per_second(unit: str, published: float) -> None:
    board = machine_preset("bpu80")
    dma = getattr(board, unit).dma
    alone = flow_table(board.dram.preset).alone(dma.window, dma.latency, dma.port)
    assert alone == pytest.approx(published, rel=2e-3)


def test_every_number_of_a_preset_has_its_place() -> None:
    document = preset_document("bpu80")
    place = document.where("dram", "usable")
    line = Path(place.file).read_text(encoding="utf-8").splitlines()[place.line - 1]
    assert line[place.col - 1 :].startswith("5.5 GB")


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(HardwareError) as caught:
        machine_preset("bpu81")
    assert str(caught.value) == "error: unknown machine preset 'bpu81'; did you mean 'bpu80'?"


def test_an_unknown_name_is_reported_where_it_is_named() -> None:
    with pytest.raises(HardwareError) as caught:
        preset_document("bpu81", Place("a.yaml", 2, 10))
    assert str(caught.value).startswith("a.yaml:2:10: error: unknown machine preset 'bpu81'")


@pytest.mark.parametrize("name", ["../presets/bpu80", "", "bpu80.yaml"])
def test_a_path_is_not_a_name(name: str) -> None:
    with pytest.raises(HardwareError, match="unknown machine preset"):
        preset_document(name)


def test_a_wrong_preset_file_is_a_hardware_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.yaml").write_text("name: bad\ncores: {count: 2, clock: 3}\n")
    monkeypatch.setattr(presets, "_MACHINES", tmp_path)
    with pytest.raises(HardwareError) as caught:
        machine_preset("bad")
    assert f"{tmp_path}/bad.yaml:2:26: error: cores.clock: " in str(caught.value)


@pytest.mark.parametrize("order", [["bpu0", "bpu0"], ["bpu1", "cpu", "bpu1"]])
def test_an_order_names_a_master_once(order: list[str]) -> None:
    keys = {"preset": "lpddr4x-4266-x32", "capacity": "8 GB", "usable": "5.5 GB", "arbitration": "strict"}
    with pytest.raises(ValidationError, match="order names a master twice; name each once, from the first served to"):
        DramSpec(**keys, order=order)
    assert DramSpec(**keys, order=["bpu0", "cpu"]).order == ["bpu0", "cpu"]
