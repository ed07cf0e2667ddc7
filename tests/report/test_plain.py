"""Tables without lines: their width, and the same ones in Markdown."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bpusim.report.plain import markdown_table, markdown_text, narrow, plain_table


def _table() -> Table:
    table = plain_table("Title", "stream", "decode tok/s", "late")
    table.add_row(Text("a_long_name"), "12.34", Text("5", "red"))
    return table


def _shown(table: Table, width: int) -> list[str]:
    out = io.StringIO()
    narrow(table, width)
    Console(file=out, width=width).print(table)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_table_that_fits_is_left_alone() -> None:
    """11 + 2 + 12 + 2 + 4 letters."""
    assert _shown(_table(), 31) == [
        "Title",
        "stream       decode tok/s  late",
        "a_long_name         12.34     5",
    ]


def test_heads_break_first() -> None:
    """``decode`` is 6 wide: 11 + 2 + 6 + 2 + 4 at least."""
    for width in (30, 25):
        shown = _shown(_table(), width)
        assert [line.split() for line in shown] == [
            ["Title"], ["decode"], ["stream", "tok/s", "late"], ["a_long_name", "12.34", "5"],
        ]  # fmt: skip


def test_names_break_next_and_figures_never() -> None:
    shown = _shown(_table(), 20)
    assert [line.split() for line in shown[1:]] == [
        ["decode"], ["stream", "tok/s", "late"], ["a_long", "12.34", "5"], ["_name"],
    ]  # fmt: skip


@given(st.integers(22, 60), st.text("abc", min_size=1, max_size=30), st.integers(0, 10**9))
def test_no_letter_is_lost_while_there_is_room_for_figures(width: int, name: str, figure: int) -> None:
    table = plain_table("", "stream", "what it is")
    table.add_row(Text(name), str(figure))
    text = "".join("".join(_shown(table, width)).split())
    assert str(figure) in text
    assert sum(text.count(c) for c in "bc") >= sum(name.count(c) for c in "bc")
    assert "…" not in text


def test_a_column_of_text_breaks_by_itself() -> None:
    table = plain_table("", "", "")
    table.columns[1].no_wrap = False
    table.add_row("name", "some words that are many")
    assert [line.split() for line in _shown(table, 20)] == [["name", "some", "words"], ["that", "are", "many"]]


def test_heads_without_words_are_no_line() -> None:
    table = plain_table("T", "", "")
    table.add_row("a", "b")
    assert _shown(table, 20) == ["T", "a  b"]


def test_markdown_of_a_table() -> None:
    assert markdown_table(_table()) == (
        "**Title**\n\n| stream | decode tok/s | late |\n| --- | ---: | ---: |\n| a_long_name | 12.34 | 5 |\n"
    )


def test_markup_of_cells_is_not_in_markdown() -> None:
    table = plain_table("", "[cyan]compute[/]")
    table.add_row("[bold]1[/]")
    table.add_row(Text("[red]"))
    assert markdown_table(table) == "| compute |\n| --- |\n| 1 |\n| \\[red\\] |\n"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a_b", "a_b"),
        ("_a_", r"\_a\_"),
        ("__init__", r"\_\_init\_\_"),
        ("a|b", r"a\|b"),
        ("*x* <b> `c` [d] ~e~", r"\*x\* \<b\> \`c\` \[d\] \~e\~"),
        ("two\nlines", "two lines"),
        ("\\", r"\\"),
    ],
)
def test_text_is_only_text_in_markdown(text: str, written: str) -> None:
    assert markdown_text(text) == written
