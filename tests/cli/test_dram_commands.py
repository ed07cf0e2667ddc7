"""The command line of the memory channel: what it shows, what it estimates, what it warns of, and how it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bpusim.cli import main

ROOT = Path(__file__).resolve().parents[2]
SINGLE = str(ROOT / "scenarios" / "single_1_5b.yaml")
SHORT = ("--set", "streams.alice.requests=1", "--set", "streams.alice.prompt=8", "--set", "streams.alice.output=2")
BANK = ("--set", "engine.dram=bank", "--set", "run.until=3 ms")


def bpusim(*arguments: str) -> Result:
    done = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
    assert "Traceback" not in done.output
    return done


def run(*arguments: str) -> Result:
    done = bpusim("run", SINGLE, *SHORT, *arguments)
    assert done.exit_code == 0, done.output
    return done


def codes(*arguments: str) -> list[str]:
    return [w["code"] for w in json.loads(run("--format", "json", *arguments).stdout)["warnings"]]


# Fidelity


@pytest.mark.parametrize(("fidelity", "against"), [("flow", "the bank model"), ("bank", "Ramulator 2.1")])
def test_a_report_says_its_fidelity_and_its_known_error(fidelity: str, against: str) -> None:
    printed = run("--set", f"engine.dram={fidelity}", "--set", "run.until=3 ms").stdout
    assert f"{fidelity} model" in printed
    assert re.search(rf"Known error of the {fidelity} model, against {against}.*: \w+", printed)


def test_the_cost_of_a_bank_run_is_told_before_it() -> None:
    # The flow model moves the same bytes, so that the estimate of the bursts is theirs over 128.
    done = run("--format", "json", *BANK)
    told = re.fullmatch(r"bank model: ([\d.]+) million bursts, about \d+ s of CPU\n", done.stderr)
    assert told is not None
    moved = sum(m["unfinished_bytes"] for m in json.loads(done.stdout)["dram"]["by_master"].values())
    assert float(told[1]) == pytest.approx(moved / 128 / 1e6, abs=0.06)


def test_a_flow_run_costs_nothing_worth_telling() -> None:
    assert run("--set", "run.until=3 ms").stderr == ""


def test_a_mapping_of_ones_own_runs_at_bank_fidelity() -> None:
    run(*BANK, "--set", "machine.dram.mapping=co2 ba3 co4 ra1 ro16")


def test_a_mapping_without_a_table_is_refused_where_it_stands() -> None:
    done = bpusim("run", SINGLE, "--set", "machine.dram.mapping=robaco")
    assert done.exit_code == 2
    assert done.stderr.startswith("--set machine.dram.mapping: error: the flow model has no table of LPDDR4X-3200")


# Warnings


def test_a_channel_smaller_than_the_memory_is_a_warning() -> None:
    assert "dram-capacity" in codes("--set", "machine.dram.preset=LPDDR4X-3200x32", "--set", "run.until=3 ms")
    assert "dram-capacity" not in codes("--set", "run.until=3 ms")


@pytest.mark.parametrize(("cameras", "warned"), [(6, False), (7, True)])
def test_more_streams_than_a_table_knows_are_a_warning(cameras: int, warned: bool) -> None:
    masters = ", ".join(f"cam{n}: {{rate: 100 MB/s, written: 1}}" for n in range(cameras))
    assert ("dram-streams" in codes("--set", f"machine.masters={{{masters}}}", "--set", "run.until=3 ms")) == warned


# The channel by itself


def test_show_prints_the_peak_and_derived_spacings() -> None:
    printed = bpusim("dram", "show", "LPDDR4X-3200x64").stdout
    assert printed.startswith("LPDDR4X-3200x64: 25.600 GB/s peak, 8 GiB, 128 B a burst, clock 0.625 ns\n")
    assert re.search(r"RD->WR +27 clocks +16\.875 ns", printed)  # 28 + 3 + 8 + 2 - 14


def test_explain_places_an_address() -> None:
    # Line 0x12345680 / 128 = 0x2468AD: columns 01 and 0101, bank 011, row 0x1234, whose low bits turn bank 3 into 7.
    printed = bpusim("dram", "explain", "LPDDR4X-3200x64", "0x12345680").stdout
    assert printed == "0x12345680: line 2386093: rank 0, group 0, bank 7, row 4660, column 21\n"


def test_bench_prints_a_row_for_each_case_in_every_format() -> None:
    streams = ("--streams", "seq,n=2000", "--streams", "rand,n=2000,region=1G")
    assert len(bpusim("dram", "bench", "LPDDR4-4266x32", *streams).stdout.splitlines()) == 4
    rows = json.loads(bpusim("dram", "bench", "LPDDR4-4266x32", *streams, "--format", "json").stdout)
    assert [r["requests"] for r in rows] == [2000, 2000]
    assert rows[0]["row_hit_rate"] > 0.9 > rows[1]["row_hit_rate"]
    text = bpusim("dram", "bench", "LPDDR4-4266x32", *streams, "--format", "csv").stdout
    assert text.splitlines()[0].startswith("case,streams,bytes_per_s,peak_fraction,row_hit_rate")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "LPDDR4X-3200"), "write it with its width in bits, such as LPDDR4X-3200x64"),
        (("show", "LPDDR4X-3200x24"), "its devices are 16 bit wide"),
        (("show", "LPDDR4X-3200x64", "--mapping", ""), "give every bit of the channel one place"),
        (("explain", "LPDDR4X-3200x64", "0x200000000"), "is not in the 8589934592 B of LPDDR4X-3200x64"),
        (("explain", "LPDDR4X-3200x64", "here"), "'here' is no address"),
        (("bench", "LPDDR4X-3200x64", "--streams", "seq,out=0"), "keeps no line in flight; write out=1 or more"),
        (("bench", "LPDDR4X-3200x64", "--streams", "seq,w=101"), "write w=0 to w=100"),
        (("bench", "LPDDR4X-3200x64", "--streams", "seq,gap=5"), "a gap after each line needs a master with one line"),
        (("bench", "LPDDR4X-3200x64", "--streams", "seqs"), "unknown pattern 'seqs'; did you mean 'seq'?"),
        (("calibrate", "LPDDR4X-32000"), "unknown DRAM timing set 'LPDDR4X-32000'; did you mean 'LPDDR4X-3200'?"),
    ],
)
def test_what_is_wrong_is_refused_with_what_to_do(arguments: tuple[str, ...], message: str) -> None:
    done = bpusim("dram", *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_check_says_which_table_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bpusim.dram.calibrate.calibrate", lambda *_: {"made": "otherwise"})
    done = bpusim("dram", "calibrate", "DDR4-3200", "--check")
    assert done.exit_code == 2
    assert done.stderr.endswith("does not give any more: DDR4-3200; run: bpusim dram calibrate DDR4-3200\n")
