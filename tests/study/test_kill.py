"""Sweeps that are killed, told to stop, or run out of disk: what is finished is safe, and the same command goes on."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

POINTS = 48
STUDY = f"""\
scenario: s.yaml
vary:
  streams.alice.output: {{from: 1, to: {POINTS // 2}}}
  machine.cores.clock: [1 GHz, 800 MHz]
measure: [streams.alice.tokens, streams.alice.e2e_mean_ms]
"""


@pytest.fixture
def folder(scenario: Path) -> Path:
    (scenario.parent / "study.yaml").write_text(STUDY)
    return scenario.parent


def begun(folder: Path, *more: str, preexec: Callable[[], None] | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bpusim", "sweep", "study.yaml", "-o", "r.jsonl", *more]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=preexec
    )


def lines(folder: Path) -> int:
    path = folder / "r.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def until(sweep: subprocess.Popen[str], folder: Path, wanted: int) -> None:
    """Until the file has so many rows: the moment does not hang on how fast the machine is."""
    while sweep.poll() is None and lines(folder) < wanted:
        time.sleep(0.005)


def finished(folder: Path) -> list[str]:
    sweep = begun(folder)
    _, err = sweep.communicate(timeout=600)
    assert sweep.returncode == 0, err
    return (folder / "r.jsonl").read_text().splitlines()


def workers_of(pid: int) -> list[int]:
    """Processes whose parent it is."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        if parent == pid:
            found.append(int(stat.parent.name))
    return found


def test_a_sweep_killed_three_times_ends_as_one_that_was_not(folder: Path, tmp_path: Path) -> None:
    chance = random.Random(9)
    for part in (1, 2, 3):
        sweep = begun(folder)
        until(sweep, folder, chance.randint(POINTS * (part - 1) // 6 + 1, POINTS * part // 6))
        workers = workers_of(sweep.pid)
        sweep.kill()
        sweep.communicate(timeout=60)
        assert sweep.returncode == -signal.SIGKILL
        assert 0 < lines(folder) < POINTS
        for worker in workers:  # they end with it; nobody writes a row after it
            _gone(worker)
    killed = finished(folder)
    (folder / "r.jsonl").unlink()
    assert sorted(killed) == sorted(finished(folder))
    assert len({json.loads(line)["key"] for line in killed}) == len(killed) == POINTS


def _gone(pid: int) -> None:
    for _ in range(3000):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return
        except FileNotFoundError:
            return
        time.sleep(0.01)
    pytest.fail(f"worker {pid} outlives its sweep")


def test_a_line_that_a_kill_cut_off_is_made_anew(folder: Path) -> None:
    whole = finished(folder)
    path = folder / "r.jsonl"
    path.write_bytes(path.read_bytes()[:-7])
    sweep = begun(folder)
    _, err = sweep.communicate(timeout=600)
    assert "the last line was cut off and is made anew" in err
    assert sorted(path.read_text().splitlines()) == sorted(whole)


def test_a_killed_worker_costs_no_point(folder: Path) -> None:
    sweep = begun(folder)
    until(sweep, folder, 3)
    os.kill(max(workers_of(sweep.pid)), signal.SIGKILL)
    _, err = sweep.communicate(timeout=600)
    assert sweep.returncode == 0, err
    rows = [json.loads(line) for line in (folder / "r.jsonl").read_text().splitlines()]
    assert len({row["key"] for row in rows}) == len(rows) == POINTS
    assert {row["status"] for row in rows} == {"ok"}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_with_what_it_has(folder: Path, number: signal.Signals, code: int) -> None:
    sweep = begun(folder)
    until(sweep, folder, 3)
    sweep.send_signal(number)
    _, err = sweep.communicate(timeout=600)
    assert sweep.returncode == code
    assert f"stopped by {number.name}" in err
    assert "points are left; the same command goes on" in err
    assert 3 <= lines(folder) < POINTS
    assert len(finished(folder)) == POINTS


def test_a_full_disk_is_told_and_what_is_finished_is_safe(folder: Path) -> None:
    def small() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))

    sweep = begun(folder, preexec=small)
    _, err = sweep.communicate(timeout=600)
    assert sweep.returncode == 2
    assert "r.jsonl: error: cannot write results: No space left on device; those before are safe" in err
    assert "Traceback" not in err
    text = (folder / "r.jsonl").read_text()
    assert text.endswith("\n")
    assert 0 < text.count("\n") < POINTS
    assert len(finished(folder)) == POINTS


def test_a_second_sweep_into_the_same_file_is_refused(folder: Path) -> None:
    first = begun(folder)
    until(first, folder, 1)
    first.send_signal(signal.SIGSTOP)
    second = begun(folder)
    _, err = second.communicate(timeout=600)
    first.send_signal(signal.SIGCONT)
    assert second.returncode == 2
    assert "another sweep writes to this file" in err
    first.communicate(timeout=600)
    assert first.returncode == 0
    assert lines(folder) == POINTS
