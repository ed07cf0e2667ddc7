"""Ctrl-C and SIGTERM: a run ends with what it has; whatever is interrupted leaves whole files or none.

Each is a process of its own that sends itself a real signal at a known point, so that nothing depends on the clock.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from desks import Desk

START = """
import os, signal, sys
from bpusim.cli import main
from bpusim.cli.interrupts import Interrupts

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit that it is ignored

def at(look, *signals):
    asked, looks = Interrupts.asked, []
    def counted(self):
        answer = asked(self)
        looks.append(0)
        if len(looks) == look:
            for number in signals:
                os.kill(os.getpid(), number)
        return answer
    Interrupts.asked = counted

"""
LONG = ("--set", "streams.alice.requests=forever", "--set", "run.until=100000 s")


def _python(desk: Desk, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"{START}{code}\nmain()", "run", "s.yaml", *arguments],
        cwd=desk.folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def _litter(desk: Desk) -> list[str]:
    return [p.name for p in desk.folder.iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_with_what_it_has(desk: Desk, number: signal.Signals, code: int) -> None:
    done = _python(desk, f"at(9, {number:d})", "--format", "json", "-o", "out", *LONG)
    assert done.returncode == code
    summary = json.loads(done.stdout)
    assert summary["partial"] is True
    assert summary["events"] == 9 * 64  # at the look after the one at which it comes
    at = f"{summary['simulated_s']:.3f} s simulated"
    stopped, writing = done.stderr.splitlines()
    assert stopped == f"stopped by {number.name} at {at}: the results are partial"
    assert writing == "writing out; another Ctrl-C leaves it as it was"


def test_the_folder_of_a_stopped_run_is_whole_and_says_so(desk: Desk) -> None:
    done = _python(desk, "at(9, signal.SIGINT)", "--format", "json", "-o", "out", *LONG)
    out = desk.folder / "out"
    assert (out / "summary.json").read_text() == done.stdout
    assert json.loads((out / "manifest.json").read_text())["partial"] is True
    assert len((out / "requests.csv").read_text().splitlines()) - 1 == sum(
        s["requests"] for s in json.loads(done.stdout)["streams"].values()
    )
    assert not _litter(desk)


def test_the_table_of_a_stopped_run_says_so_first_and_last(desk: Desk) -> None:
    done = _python(desk, "at(9, signal.SIGINT)", *LONG)
    assert done.returncode == 130
    first, *_, last = done.stdout.splitlines()
    assert first.endswith("partial: stopped before its end")
    assert last.startswith("warning (partial): the run was stopped at")


def test_a_second_signal_ends_at_once_and_writes_nothing(desk: Desk) -> None:
    done = _python(desk, "at(9, signal.SIGINT, signal.SIGINT)", "-o", "out", *LONG)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
    assert not (desk.folder / "out").exists()
    assert not _litter(desk)


def test_a_second_signal_within_an_event_ends_at_once_too(desk: Desk) -> None:
    """SimPy takes what is raised in a process for its failure; it comes out all the same."""
    code = """
from bpusim.runtime import Executor
begin = Executor.begin
def begun(self, model):
    os.kill(os.getpid(), signal.SIGINT); os.kill(os.getpid(), signal.SIGINT)
    begin(self, model)
Executor.begin = begun
"""
    done = _python(desk, code, "-o", "out", *LONG)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_signal_before_the_run_ends_at_once(desk: Desk) -> None:
    code = """
import bpusim.scenario
def load(*_):
    os.kill(os.getpid(), signal.SIGINT)
    raise AssertionError("it goes on")
bpusim.scenario.load_scenario = load
"""
    done = _python(desk, code, "-o", "out")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
    assert not (desk.folder / "out").exists()


def test_a_signal_while_files_are_put_in_place_leaves_those_of_one_run(desk: Desk) -> None:
    desk.run("-o", "out")
    code = """
replace = os.replace
def replaced(*paths):
    replace(*paths)
    os.kill(os.getpid(), signal.SIGTERM)
os.replace = replaced
"""
    done = _python(desk, code, "-o", "out", "--set", "streams.alice.output=2")
    assert done.returncode == 143
    out = desk.folder / "out"
    assert json.loads((out / "summary.json").read_text())["streams"]["alice"]["tokens"] == 2
    assert json.loads((out / "manifest.json").read_text())["overrides"] == ["streams.alice.output=2"]
    assert not _litter(desk)


def test_a_signal_while_files_are_written_leaves_the_earlier_result(desk: Desk) -> None:
    desk.run("-o", "out")
    before = (desk.folder / "out" / "summary.json").read_bytes()
    code = """
from pathlib import Path
write = Path.write_text
def written(*what, **how):
    write(*what, **how)
    os.kill(os.getpid(), signal.SIGTERM)
Path.write_text = written
"""
    done = _python(desk, code, "-o", "out", "--set", "streams.alice.output=2")
    assert done.returncode == 143
    assert (desk.folder / "out" / "summary.json").read_bytes() == before
    assert not _litter(desk)


def test_a_run_that_ends_before_it_is_asked_again_is_whole(desk: Desk) -> None:
    looks = -(-desk.json()["events"] // 64)
    done = _python(desk, f"at({looks}, signal.SIGINT)", "--format", "json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["partial"] is False


def test_other_commands_end_with_the_same_code(desk: Desk) -> None:
    code = """
import bpusim.scenario
def load(*_):
    raise KeyboardInterrupt
bpusim.scenario.load_scenario = load
sys.argv[1] = "validate"
"""
    done = _python(desk, code)
    assert (done.returncode, done.stdout) == (130, "")


def test_whoever_handled_signals_before_does_so_again(desk: Desk) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    desk.run()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_bar_is_drawn_on_a_terminal_and_the_keyboard_stops_the_run(desk: Desk) -> None:
    """From outside, as a user: wait for the bar, then interrupt."""
    import pty

    ours, theirs = pty.openpty()
    arguments = ["run", "s.yaml", "--format", "json", *LONG]
    run = subprocess.Popen(
        [sys.executable, "-c", "from bpusim.cli import main; main()", *arguments],
        cwd=desk.folder,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "80"},
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    while b"x real time" not in seen:
        seen += os.read(ours, 1024)
    run.send_signal(signal.SIGINT)
    assert run.stdout is not None
    summary = json.loads(run.stdout.read())
    assert run.wait() == 130
    assert summary["partial"] is True
    while b"the results are partial" not in seen:
        seen += os.read(ours, 1024)
    os.close(ours)
    assert b"\x1b[?25h" in seen, "the cursor is back"
