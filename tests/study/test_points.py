"""The points of a study, and what is found before any of them runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bpusim.errors import BpusimError, ScenarioError, StudyError
from bpusim.study import Study, load_study, local_pool, points_of, run_study
from bpusim.study.analysis import analyse
from bpusim.study.search import search
from bpusim.study.spec import is_study

ROOT = Path(__file__).resolve().parents[2]
Write = Callable[[str], Study]


def values(study: Study) -> list[dict[str, Any]]:
    return [dict(p.values) for p in points_of(study).points]


def test_a_grid_is_every_combination_the_last_path_fastest(study: Write) -> None:
    found = values(study("vary: {streams.alice.prompt: [8, 16], streams.alice.output: {from: 1, to: 3}}\n"))
    assert [tuple(v.values()) for v in found] == [(8, 1), (8, 2), (8, 3), (16, 1), (16, 2), (16, 3)]


def test_what_is_zipped_advances_together(study: Write) -> None:
    found = values(
        study(
            "vary: {streams.alice.output: [1, 2]}\n"
            "zip:\n- {streams.alice.prompt: [8, 16], machine.cores.clock: [1 GHz, 800 MHz]}\n"
        )
    )
    assert [tuple(v.values()) for v in found] == [
        (1, 8, "1 GHz"), (1, 16, "800 MHz"), (2, 8, "1 GHz"), (2, 16, "800 MHz")
    ]  # fmt: skip


@pytest.mark.parametrize("method", ["random", "lhs", "sobol"])
def test_drawn_points_lie_in_their_ranges_and_come_again(study: Write, method: str) -> None:
    text = (
        "vary: {streams.alice.output: {from: 1, to: 1000}, machine.cores.clock: {from: 0.4 GHz, to: 1.2 GHz}}\n"
        f"sample: {{method: {method}, points: 32, seed: 3}}\n"
    )
    found = values(study(text))
    assert found == values(study(text))
    assert found != values(study(text.replace("seed: 3", "seed: 4")))
    assert len(found) == 32
    assert all(1 <= v["streams.alice.output"] <= 1000 for v in found)
    assert all(0.4 <= float(v["machine.cores.clock"].removesuffix(" GHz")) <= 1.2 for v in found)


@pytest.mark.parametrize("method", ["lhs", "sobol"])
def test_drawn_points_fill_every_part_of_a_range(study: Write, method: str) -> None:
    """One point in each of 32 equal parts of each range: what a Latin hypercube is, and a Sobol sequence of 32 too."""
    found = values(
        study(
            "vary:\n  machine.cores.clock: {from: 1 GHz, to: 33 GHz}\n"
            "  machine.cores.dma.port: {from: 1 GB/s, to: 33 GB/s}\n"
            f"sample: {{method: {method}, points: 32}}\n"
        )
    )
    for path, unit in (("machine.cores.clock", " GHz"), ("machine.cores.dma.port", " GB/s")):
        assert sorted(int(float(v[path].removesuffix(unit))) for v in found) == list(range(1, 33))


def test_conditions_leave_points_out_and_say_how_many(study: Write) -> None:
    found = points_of(
        study(
            "vary: {machine.cores.count: [1, 2, 3], machine.cores.clock: [800 MHz, 1 GHz]}\n"
            "where: [\"machine.cores.count * machine.cores.clock <= '2 GHz'\", \"machine.dram.preset != 'x'\"]\n"
        )
    )
    assert [tuple(p.values.values()) for p in found.points] == [
        (1, "800 MHz"), (1, "1 GHz"), (2, "800 MHz"), (2, "1 GHz")
    ]  # fmt: skip
    assert found.left_out == 2


def test_the_same_values_twice_are_one_point(study: Write) -> None:
    assert len(values(study("vary: {streams.alice.output: [2, 2, 3]}\n"))) == 2


# Keys


def key(study: Study) -> str:
    (point,) = points_of(study).points
    return point.key


def test_a_key_is_that_of_what_the_result_depends_on(study: Write, tmp_path: Path) -> None:
    """The configuration as it is resolved, the files it names, what is measured, seeds: not the study's words."""
    text = "vary: {streams.alice.output: [2]}\n"
    first = key(study(text))
    assert key(study(f"about: another name\n{text}")) == first
    assert key(study(f"{text}where: ['streams.alice.output < 9']\n")) == first
    others = {
        key(study("vary: {streams.alice.output: [3]}\n")),
        key(study(f"{text}seeds: 2\n")),
        key(study(f"{text}measure: [events]\n")),
        key(study(f"{text}set: {{machine.cores.clock: 1 GHz}}\n")),
    }
    scenario = tmp_path / "s.yaml"
    before = scenario.read_text()
    scenario.write_text(before.replace("prompt: 8", "prompt: 9"))
    others.add(key(study(text)))
    scenario.write_text(f"{before}\n# a remark\n")
    assert key(study(text)) == first
    trace = tmp_path / "small.trace"
    lines = trace.read_text().split("\n", 1)
    header = json.loads(lines[0]) | {"name": "other"}
    trace.write_text(json.dumps(header) + "\n" + lines[1])
    others.add(key(study(text)))
    assert first not in others
    assert len(others) == 6


def test_a_key_knows_the_version(study: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "vary: {streams.alice.output: [2]}\n"
    first = key(study(text))
    monkeypatch.setattr("bpusim.study.keys.versions", lambda: {"bpusim": "9"})
    assert key(study(text)) != first


def test_a_trace_that_is_varied_is_found_beside_the_study_and_known_by_its_content(
    study: Write, tmp_path: Path
) -> None:
    (tmp_path / "sub").mkdir()
    shutil.copy(tmp_path / "small.trace", tmp_path / "sub" / "other.trace")
    text = "vary: {models.chat.trace: [sub/other.trace]}\n"
    first = study(text)
    assert first.overrides(points_of(first).points[0].values)["models.chat.trace"].endswith("sub/other.trace")
    before = key(first)
    with (tmp_path / "sub" / "other.trace").open("a") as file:
        file.write("\n")
    assert key(study(text)) != before


# What is wrong


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("vary: {machine.cores.cuont: [1, 2]}\n", "did you mean 'count'?"),
        ("vary: {machine.cores.count: []}\n", "study.yaml:2:29: error: machine.cores.count: an empty list"),
        ("vary: {machine.cores.count: {from: 4, to: 1}}\n", "an empty range, from 4 to 1"),
        ("vary: {machine.cores.clock: {from: 1 GHz, to: 2 GB/s}}\n", "in units of one kind"),
        ("vary: {machine.cores.clock: [1 GB/s]}\n", "study.yaml:2:29: error: machine.cores.clock=1 GB/s"),
        ("vary: {machine.cores: [1], machine.cores.clock: [1 GHz, 2 GHz]}\n", "machine.cores=1: 1 is not a mapping"),
        ("vary: {machine.cores.clock: [1 GHz]}\nset: {host.none: 1}\n", "study.yaml:3:"),
        ("vary: {machine.cores.clock: [1 GHz]}\nwhere: [machine.cores.clock < '1 B/s']\n", "study.yaml:3:9: error: wh"),
        ("vary: {machine.cores.clock: [1.2]}\n", "machine.cores.clock=1.2"),
        ("vary: {machine.cores.count: [1, 2]}\nwhere: [machine.cores.count > 2]\n", "no point meets every condition"),
        ("vary: {machine.cores.count: [1]}\nwhere: [machine.cores.cuont > 0]\n", "did you mean 'count'?"),
        ("vary: {machine.cores.count: [1]}\nwhere: [machine.cores.count >]\n", "cannot be read"),
        ("vary: {machine.cores.count: [1]}\nset: {machine.cores.count: 2}\n", "both set and varied"),
        ("vary: {machine.cores.count: [1]}\nzip: [{machine.cores.count: [2]}]\n", "varied twice"),
        ("vary: {machine.cores.clock: {from: 1 GHz, to: 2 GHz}}\n", "a range without steps has no end of values"),
        ("vary: {machine.cores.count: [1]}\nsample: {method: lhs}\n", "without a number of points"),
        ("vary: {machine.cores.count: [1]}\nsample: {points: 9}\n", "a grid has as many points as it has"),
        ("zip: [{machine.cores.count: [1, 2], machine.cores.clock: [1 GHz]}]\n", "of different numbers"),
        ("vary: {machine.cores.count: [1]}\nmesure: []\n", "study.yaml:3:1: error: unknown key 'mesure'"),
        ("vary: {engine.seed: [1]}\nseeds: 2\n", "engine.seed is varied"),
        ("about: nothing\n", "nothing is varied"),
        ("vary: {models.chat.trace: [none.trace]}\n", "none.trace"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_before_anything_runs(study: Write, text: str, said: str) -> None:
    with pytest.raises(BpusimError) as caught:
        points_of(study(text))
    assert said in str(caught.value)


def test_all_that_is_wrong_is_told_at_once(study: Write) -> None:
    with pytest.raises(StudyError) as caught:
        study("vary: {machine.cores.count: [], machine.cores.clock: {from: 2 GHz, to: 1 GHz}}\nwhere: ['a <']\n")
    assert len(caught.value.problems) == 3


def test_every_wrong_value_is_told(study: Write) -> None:
    with pytest.raises(StudyError) as caught:
        points_of(study("vary: {machine.cores.clock: [1 GHz, fast, 2 GB], streams.alice.output: [2, many]}\n"))
    shown = [p.what.split(":")[0] for p in caught.value.problems]
    assert shown == ["machine.cores.clock=fast", "machine.cores.clock=2 GB", "streams.alice.output=many"]


def test_a_scenario_that_is_wrong_by_itself_is_told_as_such(study: Write, tmp_path: Path) -> None:
    found = study("vary: {streams.alice.output: [2]}\n")
    (tmp_path / "s.yaml").write_text("machine: bpu81\nmodels: {}\nstreams: {}\n")
    with pytest.raises(ScenarioError, match="bpu81"):
        points_of(found)


def test_a_study_without_its_scenario(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text("scenario: none.yaml\nvary: {machine.cores.count: [1]}\n")
    with pytest.raises(ScenarioError, match=r"none\.yaml"):
        points_of(load_study(path))


def test_a_value_that_another_value_mends_is_no_mistake(study: Write) -> None:
    """The scenario has two cores; a third there is only at some points."""
    text = "vary: {machine.cores.count: [2, 3], models.chat.cores: [bpu1, bpu2]}\n"
    assert len(values(study(text))) == 4
    text = "vary: {models.chat.split: [even], models.chat.cores: [[bpu0, bpu1]]}\n"
    assert len(values(study(text))) == 1
    text = "set: {models.chat.split: even}\nvary: {models.chat.cores: [[bpu0, bpu1]]}\n"
    assert len(values(study(text))) == 1


def test_a_value_that_no_point_can_take_is_told_unless_the_study_takes_what_is_infeasible(study: Write) -> None:
    text = "vary: {machine.cores.count: [1, 2], models.chat.cores: [bpu0, bpu2]}\n"
    with pytest.raises(StudyError) as caught:
        points_of(study(text))
    assert "models.chat.cores=bpu2: the machine has no core 'bpu2'" in str(caught.value)
    assert len(values(study(f"{text}skip: infeasible\n"))) == 4


def test_a_trace_within_a_mapping_is_found_beside_the_study(study: Write, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    shutil.copy(tmp_path / "small.trace", tmp_path / "sub" / "other.trace")
    text = "vary: {models.chat: [{trace: sub/other.trace, cores: bpu1}]}\n"
    found = study(f"{text}set: {{models.more: {{trace: sub/other.trace, cores: bpu1}}}}\n")
    (point,) = points_of(found).points
    overrides = found.overrides(point.values)
    assert overrides["models.chat"]["trace"] == overrides["models.more"]["trace"] == str(tmp_path / "sub/other.trace")
    before = key(study(text))
    with (tmp_path / "sub" / "other.trace").open("a") as file:
        file.write("\n")
    assert key(study(text)) != before


def test_conditions_see_the_preset_and_the_machine_of_the_point(study: Write) -> None:
    text = "vary: {machine: [bpu80, {preset: bpu80, cores: {count: 4}}]}\nwhere: [machine.cores.count > 2]\n"
    found = points_of(study(text))
    assert [p.values["machine"] for p in found.points] == [{"preset": "bpu80", "cores": {"count": 4}}]
    assert found.left_out == 1
    assert len(values(study("vary: {streams.alice.output: [1]}\nwhere: [machine.cores.count == 2]\n"))) == 1


def test_costs_see_the_machine_of_the_point(study: Write, tmp_path: Path) -> None:
    """Rows of two machines: each costs by its own number of cores, in tables and in searches."""
    text = (
        "vary: {machine: [bpu80, {preset: bpu80, cores: {count: 4}}]}\nmeasure: [events]\n"
        "slo: [events > 0]\ncost: machine.cores.count\nsearch: {minimize: [cost], trials: 2}\n"
    )
    run_study(study(text), tmp_path / "r.jsonl", local_pool(1))
    smallest = analyse(tmp_path / "r.jsonl", tmp_path / "study.yaml").smallest
    assert smallest is not None
    assert [c.cost for c in smallest.candidates] == [2.0, 4.0]
    assert [t.objectives for t in search(study(text), tmp_path / "r.jsonl").tried] == [(2.0,), (4.0,)]


def test_figures_that_limits_and_costs_need_are_taken(study: Write) -> None:
    found = study(
        "vary: {streams.alice.output: [1]}\nmeasure: [events]\nslo: [streams.alice.ttft_p99_ms <= 200]\n"
        "cost: machine.cores.clock / 1e9 + dram.achieved_bytes_per_s\n"
    )
    assert found.measures == ("events",)
    assert found.also == ("dram.achieved_bytes_per_s", "streams.alice.ttft_p99_ms")


def test_limits_and_costs_that_cannot_be_read_are_told_with_their_line(study: Write) -> None:
    with pytest.raises(StudyError) as caught:
        study("vary: {streams.alice.output: [1]}\nslo:\n- a <\ncost: b +\n")
    assert [p.place.line for p in caught.value.problems if p.place] == [4, 5]


def test_a_machine_file_is_found_beside_the_study_and_known_by_its_content(study: Write, tmp_path: Path) -> None:
    machine = tmp_path / "mine.yaml"
    machine.write_text("preset: bpu80\ncores: {count: 4}\n")
    text = "vary: {machine: [mine.yaml, bpu80]}\n"
    found = study(text)
    first, second = points_of(found).points
    assert found.overrides(first.values)["machine"] == str(machine)
    assert found.overrides(second.values)["machine"] == "bpu80"
    machine.write_text("preset: bpu80\ncores: {count: 3}\n")
    third, fourth = points_of(study(text)).points
    assert first.key != third.key
    assert second.key == fourth.key


def test_parts_of_a_machine_are_changed_after_the_whole(study: Write) -> None:
    found = study("set: {machine.cores.count: 3}\nvary: {machine.cores.clock: [1 GHz], machine: [bpu80]}\n")
    (point,) = points_of(found).points
    assert list(found.overrides(point.values)) == ["machine", "machine.cores.count", "machine.cores.clock"]


def test_a_study_that_lacks_its_scenario_says_so(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text("vary: {machine.cores.count: [1]}\n")
    assert is_study(path)
    with pytest.raises(StudyError, match="'scenario' is missing"):
        load_study(path)


def test_a_figure_that_a_limit_needs_must_be_there(study: Write) -> None:
    """A parameter and a pattern need not."""
    found = study(
        "vary: {streams.alice.output: [2]}\nmeasure: [events]\n"
        "slo: ['streams.alice.itl_p9_ms <= 3', 'streams.*.ttft_mean_ms <= 1000']\n"
        "cost: machine.cores.clock * streams.alice.output\n"
    )
    assert points_of(found).must == ("events", "streams.alice.itl_p9_ms")
    with pytest.raises(StudyError, match=r"no 'streams\.alice\.itl_p9_ms'; did you mean 'streams\.alice\.itl_p9"):
        run_study(found, pool=local_pool(1))
