"""The report in a browser: it opens without complaint or network, sorts, searches, explains, changes its theme."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from reports import MIXED, written

sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(MIXED, tmp_path_factory.mktemp("browser"))[0]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def opened(browser: Any, folder: Path, width: int = 1280, scheme: str = "light", **more: Any) -> tuple[Any, list[str]]:
    """The page, and whatever it complains of or asks the network for."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, **more)
    said: list[str] = []
    page.on("console", lambda m: said.append(m.text))
    page.on("pageerror", lambda e: said.append(str(e)))
    page.on("request", lambda r: said.append(r.url) if not r.url.startswith(("file:", "data:")) else None)
    page.goto((folder / "report.html").as_uri())
    return page, said


@pytest.fixture
def page(browser: Any, folder: Path) -> Iterator[Any]:
    page, said = opened(browser, folder)
    yield page
    assert said == []
    page.close()


@pytest.mark.parametrize("width", [1280, 768, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_sticks_out(browser: Any, folder: Path, width: int, scheme: str) -> None:
    page, said = opened(browser, folder, width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    kind = "narrow" if width < 700 else "wide"
    shown = page.eval_on_selector_all(".chart > div", "all => all.map(e => [e.className, e.offsetHeight > 50])")
    assert sorted(shown) == sorted([["wide", kind == "wide"], ["narrow", kind == "narrow"]] * 6)
    assert said == []
    page.close()


def column(page: Any, n: int) -> list[float]:
    script = f"rows => rows.filter(r => !r.hidden).map(r => Number(r.cells[{n}].dataset.v))"
    return list(page.eval_on_selector_all("#op-table tbody tr", script))


def test_the_op_table_sorts(page: Any) -> None:
    """It comes by time, the longest first; a click on executions puts the most first, another the least."""
    heads = page.locator("#op-table thead th")
    names = heads.all_inner_texts()
    time, executions = (next(k for k, n in enumerate(names) if n.startswith(w)) for w in ("Time", "Executions"))
    assert heads.nth(time).get_attribute("aria-sort") == "descending"
    assert column(page, time) == sorted(column(page, time), reverse=True)
    button = heads.nth(executions).locator("button")
    button.click()
    assert column(page, executions) == sorted(column(page, executions), reverse=True)
    assert [heads.nth(k).get_attribute("aria-sort") for k in (time, executions)] == ["none", "descending"]
    button.focus()
    page.keyboard.press("Enter")
    assert column(page, executions) == sorted(column(page, executions))
    assert column(page, executions) != sorted(column(page, executions), reverse=True)
    assert heads.nth(executions).get_attribute("aria-sort") == "ascending"


def test_it_sorts_by_text(page: Any) -> None:
    page.locator("#op-table thead button").first.click()
    names = page.locator("#op-table tbody th").all_inner_texts()
    assert page.evaluate("names => [...names].sort((a, b) => a.localeCompare(b))", names) == names


def test_the_op_table_is_searched(page: Any) -> None:
    rows = page.locator("#op-table tbody tr")
    every = rows.count()
    page.get_by_label("Search ops").fill("decode LM_head")
    shown = rows.locator("visible=true")
    assert shown.count() == 1
    assert "alice/decode" in shown.first.inner_text()
    assert page.locator("#found").inner_text() == f"1 of {every} rows"
    page.get_by_label("Search ops").fill("no such op")
    assert shown.count() == 0
    page.get_by_label("Search ops").fill("")
    assert shown.count() == every


@pytest.mark.parametrize("how", ["hover", "focus"])
def test_a_metric_is_explained(page: Any, how: str) -> None:
    tip = page.get_by_role("tooltip")
    assert tip.is_hidden()
    term = page.locator("#chats [data-def=ttft_p99_ms]")
    getattr(term, how)()
    assert tip.is_visible()
    assert tip.inner_text().startswith("Time to first token: from a request's arrival to its first token.")
    box = tip.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 1280
    page.keyboard.press("Escape")
    assert tip.is_hidden()


def test_a_metric_is_explained_to_a_screen_reader(page: Any) -> None:
    described = page.locator("#chats [data-def=ttft_p99_ms]").get_attribute("aria-describedby")
    assert page.locator(f"[id='{described}']").inner_text().startswith("Time to first token")


PAPER = "getComputedStyle(document.body).backgroundColor"
INK = "getComputedStyle(document.querySelector('.chart .wide text')).fill"
"""Of the first tick's label."""


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_the_theme_is_the_systems_until_it_is_chosen(browser: Any, folder: Path, scheme: str, dark: bool) -> None:
    page, said = opened(browser, folder, scheme=scheme)
    button = page.locator("#theme")

    def looks() -> tuple[str, bool, bool]:
        """What the button says, whether the page is dark, and whether a chart's text is light."""
        light_ink = page.evaluate(INK) == "rgb(167, 173, 183)"
        return button.inner_text(), page.evaluate(PAPER) == "rgb(21, 23, 27)", light_ink

    assert looks() == ("Theme: automatic", dark, dark)
    button.click()
    assert looks() == ("Theme: light", False, False)
    button.click()
    assert looks() == ("Theme: dark", True, True)
    page.emulate_media(media="print")
    assert page.evaluate(PAPER) == "rgb(255, 255, 255)"
    assert button.is_hidden()
    assert said == []
    page.close()


def test_numbers_on_the_page_are_the_summarys(page: Any, folder: Path) -> None:
    summary = json.loads((folder / "summary.json").read_text())
    alice = summary["streams"]["alice"]
    rate = page.locator("[data-path='total.decode_tokens_per_s']").inner_text()
    assert rate == f"{summary['total']['decode_tokens_per_s']:.2f}"
    assert page.locator("[data-path='streams.alice.itl_p99_ms']").inner_text() == f"{alice['itl_p99_ms']:.1f}"
    cells = page.locator("#chats tbody tr").first.locator("td").all_inner_texts()
    assert cells[:2] == [str(alice["tokens"]), f"{alice['ttft_mean_ms']:.1f}"]
    energy = page.locator("[data-path='heat.energy_per_token_j']").inner_text()
    assert float(energy) == pytest.approx(summary["heat"]["energy_per_token_j"], rel=5e-3)


def test_it_has_landmarks_and_named_tables(page: Any) -> None:
    for role in ("banner", "main", "navigation", "contentinfo", "search"):
        assert page.get_by_role(role).count() == 1, role
    assert page.locator("table:not(:has(caption))").count() == 0
    assert page.locator("table:not(:has(thead th[scope=col]))").count() == 0
    assert page.locator("h1").count() == 1


def test_it_can_be_read_without_scripts(browser: Any, folder: Path) -> None:
    page, _ = opened(browser, folder, java_script_enabled=False)
    assert page.locator("#op-table tbody tr").first.is_visible()
    assert page.locator("#theme").is_hidden()
    page.close()
