"""An explanation as it is printed: what is printed sums, in any form, and says what it must."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpusim.metrics import CAUSES, apportion
from bpusim.metrics.explained import MEANINGS, Explained, Interval
from bpusim.metrics.explanation import Explanation
from bpusim.metrics.versus import Versus
from bpusim.report.blocks import Bullets, Cell, Code, Grid, Heading, Paragraph, markdown, print_blocks
from bpusim.report.explain import blocks_of, write_explanation
from bpusim.report.rounding import ms_text
from bpusim.study.against import against, versus
from bpusim.study.explain import explain

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
SHIPPED = sorted(str(p.relative_to(SCENARIOS).with_suffix("")) for p in SCENARIOS.rglob("*.yaml"))
times = st.dictionaries(st.sampled_from(CAUSES), st.integers(-(10**13), 10**13), min_size=1)


@given(times, st.integers(1, 10**12))
def test_parts_are_rounded_together(parts: dict[str, int], step: int) -> None:
    shown = apportion(parts, step)
    assert abs(sum(shown.values()) * step - sum(parts.values())) * 2 <= step
    for name, t in parts.items():
        assert abs(shown[name] * step - t) < step


def test_parts_by_hand() -> None:
    """1.4 + 1.4 + 1.2 = 4: one of the two largest remainders is rounded up."""
    assert apportion({"a": 14, "b": 14, "c": 12}, 10) == {"a": 2, "b": 1, "c": 1}
    assert apportion({"a": 26, "b": -6}, 10) == {"a": 3, "b": -1}


def text(what: Explanation | Versus, form: str = "table") -> str:
    out = io.StringIO()
    write_explanation(what, form, out)  # type: ignore[arg-type]
    return out.getvalue()


def number(cell: str | Cell) -> float:
    return float((cell.text if isinstance(cell, Cell) else cell).removesuffix(" %"))


def check_sums(grid: Grid) -> None:
    *rows, whole = grid.rows
    assert whole[0] == "sum"
    for k in (1, 2):
        if whole[k]:
            parts = sum(number(row[k]) for row in rows)
            assert parts == pytest.approx(number(whole[k]), abs=1e-6)


@pytest.mark.parametrize("name", SHIPPED)
def test_every_breakdown_sums_as_printed(name: str) -> None:
    short = ["run.until=20 s"] if "thermal" in name and "fast" not in name else []
    found = explain(SCENARIOS / f"{name}.yaml", short, what_if=False)
    blocks = blocks_of(found)
    grids = [b for b in blocks if isinstance(b, Grid)]
    assert grids
    for grid in grids:
        check_sums(grid)
    for b in blocks:
        if isinstance(b, Paragraph) and "Between best and measured" in b.text:
            check_between(b.text)


def check_between(said: str) -> None:
    """What is at best, and what lies between, sum to what was measured."""
    best = float(re.findall(r"At best ([\d.]+) ms", said)[0])
    measured = float(re.findall(r"Measured ([\d.]+) ms", said)[0])
    rest = said.split("Between best and measured lie ")[1]
    between, _, less = rest.partition(" ms, less ")
    parts = sum(float(n) for n in re.findall(r"[a-z] ([\d.]+\d)", between))
    hidden = float(less.split(" ms")[0]) if less else 0.0
    assert best + parts - hidden == pytest.approx(measured, abs=1e-6)


@pytest.fixture(scope="module")
def dual() -> Explanation:
    return explain(SCENARIOS / "dual_replica.yaml", ["streams.alice.requests=1", "streams.bob.requests=1"])


def test_streams_with_the_same_figures_are_told_of_once(dual: Explanation) -> None:
    said = text(dual)
    assert said.count("alice, bob: each token, ") == 1
    assert "DRAM-bound" in said
    assert "Compute-bound" in said


def test_a_stream_that_a_change_treats_otherwise_has_columns_of_its_own(dual: Explanation) -> None:
    said = text(dual)
    assert "alice: first token" in said
    assert "bob: first token" in said


def test_the_share_of_the_first_token_is_said(dual: Explanation) -> None:
    (said,) = [
        b.text
        for b in blocks_of(dual)
        if isinstance(b, Paragraph) and "of a request" in b.text and not b.lead.startswith("time")
    ]
    first = dual.streams[0].first
    assert first is not None
    assert f"{100 * first.ttft / first.e2e:.1f} % of a request" in said
    assert f"{ms_text(first.ttft)} of {ms_text(first.e2e)} ms" in said
    assert "prefill" in said


def test_every_change_is_there_with_its_command(dual: Explanation) -> None:
    said = text(dual)
    assert dual.tried
    for k, t in enumerate(dual.tried, 1):
        assert f"{k} {t.change.name}" in said
        line = next(x for x in said.splitlines() if x.endswith(f"# {k}"))
        assert line.startswith("bpusim run ")
        assert all(s.split("=")[0] in line for s in t.change.sets)


def test_all_forms_are_the_same_each_time(dual: Explanation) -> None:
    for form in ("table", "json", "markdown"):
        assert text(dual, form) == text(dual, form)


def test_json_has_all_to_the_picosecond(dual: Explanation) -> None:
    data = json.loads(text(dual, "json"))
    alice = data["streams"]["alice"]["intervals"]["each token"]
    assert sum(round(c["ms"] * 1e9) for c in alice["causes"]) == round(alice["mean_ms"] * 1e9)
    helps = data["what_helps"]
    assert [t["set"] for t in helps["tried"]] == [list(t.change.sets) for t in dual.tried or ()]
    assert {u["change"] for u in helps["not_tried"]} == {u.name for u in dual.untried}


def test_a_wide_table_is_not_cut_in_a_file(dual: Explanation) -> None:
    assert "…" not in text(dual)
    assert max(map(len, text(dual).splitlines())) > 110


def test_without_what_ifs_nothing_is_said_of_them() -> None:
    found = explain(SCENARIOS / "single_1_5b.yaml", ["streams.alice.requests=1"], what_if=False)
    assert "helps" not in text(found)
    assert found.to_dict()["what_helps"] is None


# --- against


def test_against_the_single_replica_contention_is_named() -> None:
    said = text(against(SCENARIOS / "dual_replica.yaml", SCENARIOS / "single_1_5b.yaml"))
    assert re.search(
        r"alice, bob: each token takes 27\.\d+ ms longer than in single_1_5b .*: contention \+27\.\d+ ", said
    )


def one(**causes: int) -> Explained:
    every = {c: causes.get(c, 0) for c in CAUSES}
    return Explained("x", "chat", [Interval("each token", sum(every.values()), every)])


@given(
    st.dictionaries(st.sampled_from(CAUSES), st.integers(0, 10**12)),
    st.dictionaries(st.sampled_from(CAUSES), st.integers(0, 10**12)),
)
def test_differences_sum_as_printed(ours: Mapping[str, int], theirs: Mapping[str, int]) -> None:
    found = versus(("a", "b"), [one(**ours)], [one(**theirs)])
    for block in blocks_of(found):
        if isinstance(block, Grid):
            check_sums(block)
        elif isinstance(block, Paragraph) and " against " in block.text and "takes" in block.text:
            total, mean, other = map(
                float, re.findall(r"takes ([\d.]+) ms .*\(([\d.]+) against ([\d.]+)\)", block.text)[0]
            )
            sign = 1 if " longer " in block.text else -1
            assert mean - other == pytest.approx(sign * total, abs=1e-6)


def test_no_difference_is_said_to_be_none() -> None:
    assert "takes as long as in b: 5.000 ms." in text(versus(("a", "b"), [one(dram=5 * 10**9)], [one(dram=5 * 10**9)]))


# --- blocks


def test_names_with_marks_mean_themselves() -> None:
    blocks = [Heading("[red]a_b*"), Paragraph("x", "[bold]y: "), Grid(["[red]c", "n|m"], [["a|b", Cell("1", "good")]])]
    out = io.StringIO()
    print_blocks([*blocks, Bullets("head", ["[i]item"]), Code(["[c]"])], out)
    for name in ("[red]a_b*", "[bold]y: x", "[red]c", "a|b", "[i]item", "[c]"):
        assert name in out.getvalue()
    said = markdown(blocks)
    assert "## [red]a\\_b\\*" in said
    assert "| a\\|b | 1 |" in said


def test_every_cause_has_a_meaning() -> None:
    assert tuple(MEANINGS) == CAUSES


@pytest.mark.parametrize(("ps", "shown"), [(88_063_435_146, "88.1"), (1_794_000_000, "1.79"), (949_400_000, "0.949")])
def test_short_times_have_more_digits(ps: int, shown: str) -> None:
    assert ms_text(ps) == shown


# --- the page that says how to read it


def test_the_page_shows_what_is_printed() -> None:
    page = (SCENARIOS.parent / "docs" / "EXPLAIN.md").read_text(encoding="utf-8")
    shown = [part.partition("```")[0] for part in page.split("```text\n")[1:]]
    path = SCENARIOS / "dual_replica.yaml"
    said = [text(explain(path)), text(against(path, SCENARIOS / "single_1_5b.yaml"))]
    printed = {line.rstrip() for t in said for line in t.splitlines()}
    assert len(shown) == 4
    assert not [line for part in shown for line in part.splitlines() if line.rstrip() not in printed]


def test_the_page_tells_of_every_cause() -> None:
    page = (SCENARIOS.parent / "docs" / "EXPLAIN.md").read_text(encoding="utf-8")
    assert all(f"| `{c}` |" in page for c in CAUSES if c != "other")
