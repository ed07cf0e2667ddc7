"""Sobol' indices and elasticities against functions whose values are known."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import qmc
from study_rows import grid, rows_of, written

from bpusim.metrics.studied import Sensitivity
from bpusim.study.analysis import analyse
from bpusim.study.analysis.data import gather
from bpusim.study.analysis.variance import exact, first_order

PI = math.pi


def sensitivity(rows: list[dict[str, Any]], tmp_path: Path) -> dict[str, Sensitivity]:
    return {s.parameter: s for s in analyse(written(rows, tmp_path / "r.jsonl")).sensitivity}


def ishigami(x: float, y: float, z: float) -> float:
    """Ishigami and Homma (1990) with a = 7, b = 0.1."""
    return math.sin(x) + 7 * math.sin(y) ** 2 + 0.1 * z**4 * math.sin(x)


def ishigami_indices() -> tuple[list[float], list[float]]:
    """(first, total) order, from its analytic variances."""
    b, a = 0.1, 7.0
    v1 = 0.5 * (1 + b * PI**4 / 5) ** 2
    v2 = a**2 / 8
    v13 = b**2 * PI**8 * (1 / 18 - 1 / 50)
    v = v1 + v2 + v13
    return [v1 / v, v2 / v, 0.0], [(v1 + v13) / v, v2 / v, v13 / v]


def test_a_sum_on_a_grid_has_parts_by_their_variance() -> None:
    """y = a + 2b, a in 0, 1, 2 (variance 2/3) and b in 0, 1 (4/4 = 1): 0.4 and 0.6, and no interaction."""
    data = gather(rows_of(grid({"a": [0, 1, 2], "b": [0, 1]}), lambda p: {"y": p["a"] + 2 * p["b"]}))
    (a1, at), (b1, bt) = exact(data.factors, data.means["y"])
    assert (a1, at) == pytest.approx((0.4, 0.4))
    assert (b1, bt) == pytest.approx((0.6, 0.6))


def test_a_product_on_a_grid_has_an_interaction() -> None:
    """y = a * b, both in 0, 2: values 0, 0, 0, 4 have variance 3; means over the other are 0 and 2, variance 1; so
    first is 1/3, and total 1 - 1/3 = 2/3."""
    data = gather(rows_of(grid({"a": [0, 2], "b": [0, 2]}), lambda p: {"y": p["a"] * p["b"]}))
    for first, total in exact(data.factors, data.means["y"]):
        assert (first, total) == pytest.approx((1 / 3, 2 / 3))


def test_the_ishigami_function_on_a_fine_grid() -> None:
    """Midpoints of 36 equal steps integrate it to a part in a hundred."""
    steps = [-PI + (k + 0.5) * 2 * PI / 36 for k in range(36)]
    data = gather(rows_of(grid({"x": steps, "y": steps, "z": steps}), lambda p: {"v": ishigami(**p)}))
    firsts, totals = ishigami_indices()
    found = exact(data.factors, data.means["v"])
    assert [f for f, _ in found] == pytest.approx(firsts, abs=0.01)
    assert [t for _, t in found] == pytest.approx(totals, abs=0.01)


@given(st.lists(st.integers(-50, 50), min_size=12, max_size=12).filter(lambda v: len(set(v)) > 1))
def test_first_orders_sum_to_at_most_one_and_totals_to_at_least_one(values: list[int]) -> None:
    points = grid({"a": [1, 2, 3], "b": [1, 2], "c": [1, 2]})
    table = dict(zip((tuple(p.values()) for p in points), values, strict=True))
    data = gather(rows_of(points, lambda p: {"y": table[tuple(p.values())]}))
    found = exact(data.factors, data.means["y"])
    assert sum(first for first, _ in found) <= 1 + 1e-9
    assert sum(total for _, total in found) >= 1 - 1e-9
    assert all(-1e-12 <= first <= total + 1e-9 for first, total in found)


@pytest.mark.parametrize("method", ["random", "lhs", "sobol"])
def test_the_ishigami_function_from_a_drawn_sample(method: str) -> None:
    draws = {
        "random": lambda: np.random.default_rng(3).random((1024, 3)),
        "lhs": lambda: qmc.LatinHypercube(3, seed=3).random(1024),
        "sobol": lambda: qmc.Sobol(3, seed=3).random_base2(10),
    }
    cells = (2 * PI * draws[method]() - PI).tolist()
    data = gather(rows_of([dict(zip("xyz", c, strict=True)) for c in cells], lambda p: {"v": ishigami(**p)}))
    assert data.design == "drawn"
    for factor, known in zip(data.factors, ishigami_indices()[0], strict=True):
        found = first_order(factor, data.means["v"], data.has("v"))
        assert found is not None
        assert found[0] == pytest.approx(known, abs=0.07)
        assert abs(found[0] - known) < 1.5 * found[1] + 0.01


def test_text_in_a_drawn_sample() -> None:
    """y is 1 at b and 0 elsewhere, plus uniform noise from 0 to 1 that x makes: variances p(1-p) and 1/12."""
    rng = np.random.default_rng(1)
    points = [{"m": str(rng.choice(["a", "b"])), "x": float(rng.random())} for _ in range(2000)]
    data = gather(rows_of(points, lambda p: {"y": (p["m"] == "b") + p["x"]}))
    m = first_order(data.factors[0], data.means["y"], data.has("y"))
    x = first_order(data.factors[1], data.means["y"], data.has("y"))
    assert m is not None
    assert x is not None
    assert m[0] == pytest.approx(0.75, abs=0.03)
    assert x[0] == pytest.approx(0.25, abs=0.03)


def test_what_a_parameter_does_not_explain_is_near_zero_and_not_below() -> None:
    rng = np.random.default_rng(5)
    points = [{"x": float(a), "z": float(b)} for a, b in rng.random((200, 2))]
    data = gather(rows_of(points, lambda p: {"y": p["x"]}))
    found = first_order(data.factors[1], data.means["y"], data.has("y"))
    assert found is not None
    assert 0 <= found[0] < 0.1


def test_few_drawn_rows_say_nothing(tmp_path: Path) -> None:
    points = [{"a": float(k), "b": (3.0 * k) % 7} for k in range(7)]
    found = sensitivity(rows_of(points, lambda p: {"y": p["a"]}), tmp_path)
    assert found["a"].first is None
    assert found["a"].total is None


def test_a_power_law_has_its_exponents_on_a_grid(tmp_path: Path) -> None:
    values = {"machine.a": ["1 GB/s", "2 GB/s", "8 GB/s"], "b": [1, 3]}
    of = {"1 GB/s": 1, "2 GB/s": 2, "8 GB/s": 8}
    rows = rows_of(grid(values), lambda p: {"y": 5 * of[p["machine.a"]] ** -0.5 * p["b"] ** 2})
    found = sensitivity(rows, tmp_path)
    a, b = found["machine.a"], found["b"]
    assert (a.elasticity, a.least, a.most, a.error) == (
        pytest.approx(-0.5),
        pytest.approx(-0.5),
        pytest.approx(-0.5),
        None,
    )
    assert b.elasticity == pytest.approx(2)


def test_a_limit_shows_as_a_range_of_slopes(tmp_path: Path) -> None:
    """y = 1/x up to 4 and 1/4 from there: steps 1-2-4-8 have slopes -1, -1, 0; end to end ln(1/4) / ln 8 = -2/3."""
    found = sensitivity(rows_of(grid({"x": [1, 2, 4, 8]}), lambda p: {"y": 1 / min(p["x"], 4)}), tmp_path)["x"]
    assert (found.elasticity, found.least, found.most) == pytest.approx((-2 / 3, -1, 0))


def test_a_power_law_has_its_exponents_by_regression(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    points = [
        {"a": float(a), "b": float(b), "m": m} for (a, b), m in zip(1 + rng.random((60, 2)), "uvw" * 20, strict=True)
    ]
    rows = rows_of(points, lambda p: {"y": p["a"] ** 1.5 / p["b"] * {"u": 1, "v": 2, "w": 5}[p["m"]]})
    found = sensitivity(rows, tmp_path)
    assert found["a"].elasticity == pytest.approx(1.5)
    assert found["b"].elasticity == pytest.approx(-1)
    assert found["a"].error == pytest.approx(0, abs=1e-9)
    assert found["m"].elasticity is None


def test_the_standard_error_of_a_slope_by_hand(tmp_path: Path) -> None:
    """ln x = 0, 1, 2, 3 twice, ln y = 0, 1, 1, 2 at both values of b but for holes that make it a regression."""
    x = [math.exp(k) for k in range(4)]
    y = dict(zip(x, (0.0, 1.0, 1.0, 2.0), strict=True))
    points = [{"x": v, "b": "p"} for v in x] + [{"x": v, "b": "q"} for v in x[:3]]
    found = sensitivity(rows_of(points, lambda p: {"y": math.exp(y[p["x"]])}), tmp_path)["x"]
    design = np.array([[1, k, 0] for k in range(4)] + [[1, k, 1] for k in range(3)], dtype=float)
    target = np.array([0, 1, 1, 2, 0, 1, 1], dtype=float)
    inverse = np.linalg.inv(design.T @ design)
    beta = inverse @ design.T @ target
    left = target - design @ beta
    assert found.elasticity == pytest.approx(beta[1])
    assert found.error == pytest.approx(math.sqrt(inverse[1, 1] * (left @ left) / 4))


def test_no_elasticity_of_text_zero_or_a_figure_below_zero(tmp_path: Path) -> None:
    points = grid({"m": ["x", "y"], "z": [0, 1], "n": [1, 2]})
    found = sensitivity(rows_of(points, lambda p: {"y": p["z"] + p["n"] + len(p["m"])}), tmp_path)
    assert [found[n].elasticity is None for n in "mzn"] == [True, True, False]
    below = sensitivity(rows_of(points, lambda p: {"y": -p["n"]}), tmp_path)
    assert below["n"].elasticity is None


def test_a_grid_with_holes_has_parts_but_no_totals(tmp_path: Path) -> None:
    """y = a at three points (1,1), (2,1), (2,2): a explains all; between values of b, means 1.5 and 2, the variance is
    1/18 of 2/9."""
    points = [p for p in grid({"a": [1, 2], "b": [1, 2]}) if p != {"a": 1, "b": 2}]
    found = sensitivity(rows_of(points, lambda p: {"y": p["a"]}), tmp_path)
    assert (found["a"].first, found["a"].total) == (pytest.approx(1), None)
    assert found["b"].first == pytest.approx(0.25)
