"""Results as tables: what they say, how wide, and in which colours."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from bpusim import Result, simulate
from bpusim.report.table import print_markdown, print_result

TRACES = Path(__file__).resolve().parents[2] / "traces"
SCENARIO = """\
about: Two [users] and a camera
machine: bpu80
models:
  chat-bot: {{trace: '{traces}/qwen2.5-0.5b-int4.trace', cores: bpu0}}
  eye:      {{trace: '{traces}/resnet50-992.trace', cores: bpu1}}
streams:
  alice:  {{chat: chat-bot, prompt: 8, output: 3}}
  bob:    {{chat: chat-bot, prompt: 8, output: 3}}
  camera: {{frames: eye, rate: 10 Hz, count: 2}}
"""


def _result(folder: Path, text: str = SCENARIO, name: str = "mixed") -> Result:
    path = folder / f"{name}.yaml"
    path.write_text(text.format(traces=TRACES))
    return simulate(path)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return _result(tmp_path_factory.mktemp("table"))


def _text(result: Result, width: int | None = 120) -> str:
    out = io.StringIO()
    print_result(result, out, console=None if width is None else Console(file=out, width=width, highlight=False))
    return out.getvalue()


def _row(text: str, first: str) -> list[str]:
    """Of the table of a stream, which comes after what matters first."""
    _, _, tables = text.partition("\nChat streams")
    (line,) = [x for x in tables.splitlines() if x.startswith(f"{first} ")]
    return line.split()


def test_the_first_line_names_the_scenario_and_the_run(result: Result) -> None:
    assert re.match(r"mixed: \d+\.\d{3} s simulated, \d+ events\n", _text(result))


def test_what_the_scenario_is_about_is_printed_as_written(result: Result) -> None:
    """Brackets are not colours."""
    assert "Two [users] and a camera" in _text(result)


def test_every_stream_has_a_row(result: Result) -> None:
    text = _text(result)
    assert _row(text, "alice")[1] == "3"
    assert _row(text, "camera")[1:4] == ["2", "2", "0"]


def test_two_chats_have_a_total(result: Result) -> None:
    assert _row(_text(result), "total")[:3] == ["total", "6", f"{result.decode_tokens_per_s:.2f}"]


def test_one_chat_has_no_total(tmp_path: Path) -> None:
    text = SCENARIO.replace("  bob:    {{chat: chat-bot, prompt: 8, output: 3}}\n", "")
    assert not [x for x in _text(_result(tmp_path, text)).splitlines() if x.startswith("total")]


def test_causes_are_columns_and_sum_up(result: Result) -> None:
    text = _text(result)
    (line,) = [x for x in text.splitlines() if x.startswith("alice: each token")]
    *causes, total = [0.0 if c == "-" else float(c) for c in line.removeprefix("alice: each token").split()]
    assert sum(causes) == pytest.approx(total, abs=0.05 * len(causes) + 0.05)


def test_a_cause_that_no_stream_has_is_no_column(result: Result) -> None:
    assert "handover" not in _text(result)


def test_both_cores_say_what_they_loaded(result: Result) -> None:
    text = _text(result)
    assert "chat-bot: qwen2.5-0.5b-int4" in text
    assert "eye: resnet50-992" in text


def test_an_idle_core_is_a_row_too(tmp_path: Path) -> None:
    text = SCENARIO.replace("cores: bpu1", "cores: bpu0")
    rows = [line.split() for line in _text(_result(tmp_path, text)).splitlines() if line.startswith("bpu1 ")]
    assert rows == [["bpu1", "0", *["0.00", "%"] * 4], ["bpu1", *["0.00", "%"] * 3, "100.0", "%"]]


def test_the_channel_says_its_fidelity_and_rate(result: Result) -> None:
    assert "LPDDR4X-3200x64, flow model" in _text(result)


def test_a_warning_says_its_code_and_text(result: Result) -> None:
    """The code is what a user searches for; it must not be taken for a colour."""
    text = " ".join(_text(result).split())
    assert "model-name" in text
    assert "model name 'chat-bot' is dropped by toolchains" in text


def test_a_stream_named_like_a_colour_keeps_its_name(tmp_path: Path) -> None:
    text = SCENARIO.replace("bob: ", "'[red]': ")
    assert "[red]" in _text(_result(tmp_path, text))


def test_a_scenario_named_like_a_colour_keeps_its_name(tmp_path: Path) -> None:
    assert _text(_result(tmp_path, name="[red]x")).startswith("[red]x: ")


def test_a_run_that_ends_before_anything_has_no_empty_table(tmp_path: Path) -> None:
    """Nothing came through, so no time went anywhere: no table of causes, and no title wrapped into a pillar."""
    text = _text(_result(tmp_path, SCENARIO + "run: {{until: 1 ms}}\n"))
    assert "Where" not in text.split()


def test_what_matters_first_comes_first(result: Result) -> None:
    titles = re.findall(r"^[A-Z][a-z].*?(?=:| *$)", _text(result), flags=re.MULTILINE)
    assert titles[:3] == ["Two [users] and a camera", "At a glance", "Chat streams"]


def test_a_partial_run_says_so_in_the_first_line(result: Result) -> None:
    assert _text(replace(result, partial=True)).splitlines()[0].endswith("events, partial: stopped before its end")


def test_a_warning_in_a_file_is_one_line(result: Result) -> None:
    """Whoever searches for it finds all of it."""
    (line,) = [x for x in _text(result, None).splitlines() if x.startswith("warning (model-name)")]
    assert line.endswith("call it 'chat_bot'")


# --- Markdown


def _markdown(result: Result) -> str:
    out = io.StringIO()
    print_markdown(result, out)
    return out.getvalue()


def test_markdown_has_the_same_tables(result: Result) -> None:
    titles = re.findall(r"^\*\*(.*)\*\*$", _markdown(result), flags=re.MULTILINE)
    lines = _text(result, 200).splitlines()
    assert len(titles) >= 8
    assert [t for t in titles if t not in [line.strip() for line in lines]] == []


def test_markdown_has_the_same_figures(result: Result) -> None:
    (line,) = [x for x in _markdown(result).splitlines() if x.startswith("| alice | 3")]
    assert line.strip("| ").split(" | ") == _row(_text(result), "alice")


def test_tables_of_markdown_have_as_many_cells_in_every_row(result: Result) -> None:
    """A rule below the head of each, and nothing that GitHub would not take for the table's."""
    blocks = [b.splitlines() for b in _markdown(result).split("\n\n") if b.startswith("|")]
    assert len(blocks) >= 8
    for rows in blocks:
        assert re.fullmatch(r"\|( -{3}:? \|)+", rows[1])
        assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {rows[1].count("|")}


def test_names_are_no_markup_in_markdown(result: Result) -> None:
    text = _markdown(result)
    assert r"Two \[users\] and a camera" in text
    assert r"* warning (model-name): model name 'chat-bot'" in text


# --- width and colour


@pytest.mark.parametrize("width", [80, 110, 200])
def test_no_table_is_wider_than_asked(result: Result, width: int) -> None:
    """The log and the warnings below the tables are left for the terminal to wrap."""
    tables, log, _ = _text(result, width).partition("bpu0: load success")
    assert log
    assert max(len(line) for line in tables.splitlines()) <= width


@pytest.mark.parametrize("width", [80, 110])
def test_no_figure_is_cut_short(result: Result, width: int) -> None:
    """A terminal of 80 columns shows every column."""
    assert "…" not in _text(result, width)


def test_a_file_has_no_colours(result: Result) -> None:
    assert "\x1b" not in _text(result, None)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _on_terminal(result: Result, monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "120", **environment}.items():
        monkeypatch.setenv(name, value)
    out = _Terminal()
    print_result(result, out)
    return out.getvalue()


COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]")


def test_a_terminal_has_colours(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    assert COLOUR.search(_on_terminal(result, monkeypatch))


def test_no_color_is_honoured(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    """https://no-color.org: no colours whatever the terminal can; bold is not a colour."""
    assert not COLOUR.search(_on_terminal(result, monkeypatch, NO_COLOR="1"))


def test_a_dumb_terminal_has_no_escapes(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in _on_terminal(result, monkeypatch, TERM="dumb")


@pytest.mark.parametrize("cause", ["dram", "compute"])
def test_a_cause_has_one_colour_wherever_it_is_named(
    result: Result, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    colours = re.findall(rf"\x1b\[(?:1;)?([\d;]+)m{cause}\x1b", _on_terminal(result, monkeypatch))
    assert len(colours) > 1
    assert len(set(colours)) == 1


def test_what_was_missed_is_red_and_what_was_kept_green(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = SCENARIO.replace("count: 2", "count: 2, deadline: 1 ms").replace(
        "bob:    {{chat: chat-bot, prompt: 8, output: 3",
        "bob:    {{chat: chat-bot, prompt: 8, output: 3, slo: {{ttft: 9 s}}",
    )
    shown = _on_terminal(_result(tmp_path, text), monkeypatch)
    assert "\x1b[31m2 of 2 late" in shown
    assert "\x1b[32mSLO met" in shown
    assert "\x1b[32mnone dropped" in shown
