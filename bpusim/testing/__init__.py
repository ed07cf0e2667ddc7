"""A pytest plugin for people who regression-test deployments and policies.

Fixtures ``simulate``, ``bpusim_golden``, ``bpusim_case``; the decorator :func:`compare_policies`; the option
``--bpusim-update``. pytest loads this module in every project, so it imports the simulator only when a test asks for
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from bpusim.metrics import Result

__all__ = ["Case", "bpusim_case", "bpusim_golden", "compare_policies", "simulate"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--bpusim-update``."""
    parser.getgroup("bpusim").addoption(
        "--bpusim-update", action="store_true", help="Write the golden figures of bpusim_golden anew."
    )


def _simulate(request: pytest.FixtureRequest) -> Callable[..., Result]:
    here = request.path.parent

    def run(scenario: str | Path, *, set: Mapping[str, object] | Sequence[str] | None = None, **changes: Any) -> Result:
        """``simulate(path, set={...})`` as :func:`bpusim.simulate`; other keywords are overrides by path, ``__`` for a
        dot: ``streams__camera__rate="10 Hz"``."""
        from bpusim.system import simulate

        path = Path(scenario)
        if not path.is_absolute() and not path.exists():
            path = here / path
        options = {k: changes.pop(k) for k in ("policy", "records", "journal") if k in changes}
        if set is not None and not isinstance(set, Mapping):
            if changes:
                raise TypeError("give overrides by set={...} or by keyword, not as texts and by keyword")
            return simulate(path, set=set, **options)
        overrides = {**(set or {}), **{k.replace("__", "."): v for k, v in changes.items()}}
        return simulate(path, set=overrides, **options)

    return run


@pytest.fixture
def simulate(request: pytest.FixtureRequest) -> Callable[..., Result]:
    """``simulate(scenario, set={...}, policy=..., journal=True, streams__camera__rate="10 Hz")``: runs a scenario, by
    its path from the working directory or from the test's folder, and gives its result."""
    return _simulate(request)


@pytest.fixture
def bpusim_golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """``bpusim_golden(name, result, rel=0.01)``: the result's figures are those in ``golden/NAME.json`` beside the
    test, within ``rel``; a mapping gives some of them another tolerance (``{"streams.camera.dropped": 0, "*": 0.01}``).
    With ``--bpusim-update`` they are written anew."""
    from bpusim.testing.golden import check

    def golden(name: str, result: Result, rel: float | Mapping[str, float] = 0.01) -> None:
        path = request.path.parent / "golden" / f"{name}.json"
        failure = check(path, result, rel, update=bool(request.config.getoption("--bpusim-update")))
        if failure:
            pytest.fail(failure, pytrace=False)

    return golden


@dataclass(frozen=True)
class Case:
    """A scenario under one policy: what a test of :func:`compare_policies` is given."""

    policy: str
    result: Result


@pytest.fixture
def bpusim_case(request: pytest.FixtureRequest) -> Case:
    """The case of :func:`compare_policies`."""
    name, policy, scenario, changes = request.param
    return Case(name, _simulate(request)(scenario, policy=policy, **changes))


def compare_policies(
    policies: Sequence[object] | Mapping[str, object], scenario: str | Path, **changes: Any
) -> pytest.MarkDecorator:
    """Runs a test once for each policy; the test takes ``bpusim_case``.

    ``policies``: names (as in a scenario), objects with ``pick(ready, core)``, or a mapping from names for the report.
    """
    if isinstance(policies, Mapping):
        named = dict(policies)
    else:
        names = [_name(p) for p in policies]
        twice = [n for n in names if names.count(n) > 1]
        if twice:
            raise ValueError(f"policy '{twice[0]}' is there twice; give a mapping from names to policies")
        named = dict(zip(names, policies, strict=True))
    cases = []
    for name, policy in named.items():
        by_name = {"policy": policy} if isinstance(policy, str) else {}
        given = {**changes, "set": {**changes.get("set", {}), **by_name}}
        cases.append(pytest.param((name, None if by_name else policy, scenario, given), id=name))
    return pytest.mark.parametrize("bpusim_case", cases, indirect=True)


def _name(policy: object) -> str:
    if isinstance(policy, str):
        return policy
    return policy.__name__ if isinstance(policy, type) else type(policy).__name__
