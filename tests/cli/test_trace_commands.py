"""The command line of traces: imports, show, diff, check, export; what it prints, its exit codes, how it refuses."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import bpusim as library
from bpusim.cli import main
from bpusim.trace import load_trace

ROOT = Path(__file__).resolve().parents[2]
SMALL = str(ROOT / "traces" / "qwen2.5-0.5b-int4.trace")
FALLBACK = str(ROOT / "traces" / "qwen2.5-3b-int4-fallback.trace")
PROFILE = "name,engine,us,bytes\nconv,mac,1000,100000\npool,vector,500,100000\nnms,cpu,700,4000\nlast,mac,2000,100000\n"
TOPOLOGY = "Layer name, M, N, K,\nfirst, 256, 128, 256,\nsecond, 256, 64, 128,\n"


def bpusim(*arguments: str | Path) -> Result:
    done = CliRunner().invoke(main, [str(a) for a in arguments], catch_exceptions=False)
    assert "Traceback" not in done.output
    return done


def good(*arguments: str | Path) -> str:
    done = bpusim(*arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    (tmp_path / "board.csv").write_text(PROFILE)
    good("import", "profile", tmp_path / "board.csv", "-o", tmp_path / "board.trace")
    return tmp_path / "board.trace"


# Imports


def test_a_topology_imports_and_says_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "net.csv").write_text(TOPOLOGY)
    printed = good("import", "scalesim", tmp_path / "net.csv", "--activations", "int16", "-o", tmp_path / "n.trace")
    macs = 256 * 128 * 256 + 256 * 64 * 128
    assert f"n.trace: net, 2 ops, {macs} MACs, " in printed
    header = load_trace(tmp_path / "n.trace").header
    assert header.command == (
        "bpusim import scalesim net.csv --machine bpu80 --activations int16 --quant int8 -o n.trace"
    )
    assert header.quant["activation"] == "int16"


def test_an_imported_profile_runs_in_its_measured_time(profile: Path, tmp_path: Path) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text(
        "machine: bpu80\nmodels:\n  m: {trace: board.trace, cores: bpu0}\n"
        "streams:\n  cam: {frames: m, rate: 10 Hz, count: 3}\n"
    )
    breakdown = library.simulate(scenario).streams["cam"].breakdown_ms
    # 1 ms, 0.5 ms and 2 ms on the core, of which the start of three ops is dispatch; the first tiles of two calls come
    # before their compute. On the CPU 0.7 ms; doorbell and interrupt around it are the runtime's.
    assert breakdown["compute"] == pytest.approx(3.5 - 3 * 0.001, abs=1e-5)
    assert breakdown["dram"] == pytest.approx(2 * 100_000 / 17.1e6, rel=0.1)
    assert breakdown["fallback"] == pytest.approx(0.7 + 0.010 + 0.015, abs=1e-5)


def test_the_clock_of_a_profile_has_a_unit(profile: Path, tmp_path: Path) -> None:
    given = tmp_path / "board.csv"
    good("import", "profile", given, "--clock", "1 GHz", "-o", tmp_path / "slow.trace")
    slow, own = (list(load_trace(p).phase("frame").ops()) for p in (tmp_path / "slow.trace", profile))
    assert slow[0].cycles == (999000,)
    assert own[0].cycles == (round(999e-6 * 1.2207e9),)
    for clock, message in (("1000", "has no unit"), ("0 Hz", "never ticks"), ("1 GB", "is a size, not a frequency")):
        done = bpusim("import", "profile", given, "--clock", clock, "-o", tmp_path / "x.trace")
        assert (done.exit_code, message in done.stderr) == (2, True)


def test_warnings_of_an_import_name_the_row(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("name,engine,us,bytes\ncopy,dma,10,2000000\n")
    done = bpusim("import", "profile", tmp_path / "p.csv", "-o", tmp_path / "p.trace")
    assert done.exit_code == 0
    assert done.stderr.startswith(f"warning: {tmp_path}/p.csv:2: op 'copy': 2000000 bytes take 11")


def test_chakra_goes_out_and_comes_back(tmp_path: Path) -> None:
    out = tmp_path / "out.et"
    printed = good("trace", "export-chakra", FALLBACK, "--phase", "decode", "--kv", "512", "-o", out)
    assert printed.endswith("out.et: 1164 nodes of phase decode at kv 512, 1 token\n")
    good("import", "chakra", out, "-o", tmp_path / "back.trace")
    ours = json.loads(good("trace", "show", FALLBACK, "--kv", "512", "--format", "json"))
    back = json.loads(good("trace", "show", tmp_path / "back.trace", "--format", "json"))
    assert back["total"] == ours["total"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("import", "scalesim", "none.csv", "-o", "x.trace"), "none.csv: error: cannot read the file: No such file"),
        (("import", "profile", "none.csv", "-o", "no/x.trace"), "no/x.trace: error: the folder does not exist"),
        (("import", "chakra", "none.et", "-o", "x.trace"), "none.et: error: cannot read the execution trace"),
        (("import", "chakra", "none.et", "-o", "."), "this is a folder; name the file"),
        (("trace", "show", "none.trace"), "none.trace: error: cannot read the trace"),
        (("trace", "show", SMALL, "--phase", "frame"), "has no phase 'frame'; it has: prefill, decode"),
        (("trace", "show", SMALL, "--tokens", "9"), "9 tokens do not fit the 1 of phase 'decode'"),
        (("trace", "show", SMALL, "--machine", "bpu81"), "bpu81"),
        (("trace", "show", SMALL, "--graph", "x.png"), "name it such as calls.svg"),
        (("trace", "show", SMALL, "--batch", "0"), "0 is not in the range"),
        (("trace", "export-chakra", SMALL, "-o", "no/x.et"), "no/x.et: error: the folder does not exist"),
    ],
)
def test_what_is_wrong_is_refused_with_what_to_do(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = bpusim(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""


# Show


def test_show_tells_the_balance_and_what_holds_each_op_up() -> None:
    lines = good("trace", "show", FALLBACK, "--kv", "512").splitlines()
    assert lines[0] == "phase decode at kv 512, 1 token"
    assert lines[1].startswith("balance at 2339 operations a byte (40 TOPS, 17.1 GB/s alone)")
    rows = {line.split()[0]: line.split() for line in lines if line}
    assert "dram" in rows["lm_head/MatMul_Q4"]
    assert rows["act_fn/Sigmoid"][1:3] in (["cpu", "35"], ["cpu", "1"])
    assert any(line.startswith("act_fn/Mul .. up_proj/MatMul_Q4") and " 34 " in line for line in lines)


def test_show_as_csv_and_json_has_the_same_ops() -> None:
    rows = list(csv.DictReader(io.StringIO(good("trace", "show", SMALL, "--format", "csv"))))
    data = json.loads(good("trace", "show", SMALL, "--format", "json"))
    assert [(r["op"], int(r["macs"]), int(r["bytes"])) for r in rows] == [
        (r["op"], r["macs"], r["bytes"]) for r in data["ops"]
    ]
    assert data["total"]["macs"] == sum(r["macs"] * r["count"] for r in data["ops"])
    assert data["total"]["macs"] == load_trace(SMALL).bind("decode").macs


def test_show_takes_a_batch_and_a_faster_memory() -> None:
    one, four = (
        json.loads(good("trace", "show", SMALL, "--batch", n, "--kv", "9", "--format", "json")) for n in ("1", "4")
    )
    assert four["total"]["macs"] == 4 * one["total"]["macs"]
    fast = json.loads(
        good("trace", "show", SMALL, "--kv", "9", "--format", "json", "--set", "machine.cores.dma.port=8 GB/s")
    )
    assert fast["balance_operations_per_byte"] > one["balance_operations_per_byte"]


def test_show_warns_of_a_trace_for_another_core() -> None:
    done = bpusim("trace", "show", SMALL, "--set", "machine.cores.vector.lanes=32")
    assert done.exit_code == 0
    assert "the trace is for another core than bpu80's: vector.lanes differ" in done.stderr


def test_show_draws_the_graph_of_calls(tmp_path: Path) -> None:
    out = tmp_path / "calls.svg"
    assert good("trace", "show", FALLBACK, "--graph", out) == f"{out}: 73 calls and CPU ops\n"
    assert ET.parse(out).getroot().tag.endswith("svg")


# Diff and check


def test_diff_of_equals_is_silent_and_good() -> None:
    assert good("trace", "diff", SMALL, SMALL) == "no difference\n"
    assert good("trace", "diff", SMALL, SMALL, "--format", "json") == "[]\n"


def test_diff_tells_ops_and_totals_and_exits_with_1() -> None:
    other = str(ROOT / "traces" / "qwen2.5-3b-int8.trace")
    arguments = ("trace", "diff", str(ROOT / "traces" / "qwen2.5-3b-int4.trace"), other, "--phase", "decode")
    done = bpusim(*arguments)
    assert done.exit_code == 1
    assert "decode: gate_proj/MatMul_Q4" in done.stdout
    assert "+96.97%" in done.stdout
    rows = list(csv.DictReader(io.StringIO(bpusim(*arguments, "--format", "csv").stdout)))
    (resident,) = [r for r in rows if r["figure"] == "resident_bytes"]
    assert int(resident["after"]) == load_trace(other).resident_bytes


def test_check_says_what_it_checked(profile: Path) -> None:
    printed = good("trace", "check", profile)
    assert "bytes of calls by kind: 8 checked" in printed
    assert printed.endswith("good\n")


def test_check_exits_with_1_for_nonsense_and_2_for_what_cannot_be_read(profile: Path) -> None:
    text = profile.read_text()
    profile.write_text(text.replace('"mac_cycles":[', '"mac_cycles":[9', 1))
    done = bpusim("trace", "check", profile)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"{profile}: error: phase frame, op 'conv': the array works 9")
    assert done.stdout.endswith("1 problems\n")
    profile.write_text(text[:-30])
    assert bpusim("trace", "check", profile).exit_code == 2
