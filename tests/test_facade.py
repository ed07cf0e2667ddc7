"""The facade: the names users import from ``bpusim``."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

import bpusim

SCENARIO = Path(__file__).resolve().parents[1] / "scenarios" / "single_1_5b.yaml"
TRACE = SCENARIO.parents[1] / "traces" / "resnet50-992.trace"


def test_names_are_sorted() -> None:
    assert list(bpusim.__all__) == sorted(bpusim.__all__)


def test_names_are_there_once() -> None:
    assert len(set(bpusim.__all__)) == len(bpusim.__all__)


@pytest.mark.parametrize("name", bpusim.__all__)
def test_every_name_can_be_imported(name: str) -> None:
    assert getattr(bpusim, name).__name__ == name


@pytest.mark.parametrize("name", bpusim.__all__)
def test_every_name_has_a_docstring(name: str) -> None:
    assert getattr(bpusim, name).__doc__


def test_names_are_listed() -> None:
    assert set(bpusim.__all__) <= set(dir(bpusim))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'bpusim' has no attribute 'simulat'"):
        bpusim.simulat  # noqa: B018


def test_the_version_is_the_packages() -> None:
    assert bpusim.__version__ == version("bpusim")


def test_types_are_marked_as_complete() -> None:
    assert (Path(bpusim.__file__).parent / "py.typed").is_file()


def test_simulate_takes_overrides_as_texts_and_as_a_mapping() -> None:
    short = {"streams.alice.output": 2, "streams.alice.requests": 1}
    by_mapping = bpusim.simulate(SCENARIO, set=short)
    by_texts = bpusim.simulate(SCENARIO, set=[f"{k}={v}" for k, v in short.items()])
    assert by_mapping.to_dict() == by_texts.to_dict()
    assert by_mapping.to_dict()["streams"]["alice"]["tokens"] == 2


def test_simulate_takes_a_loaded_scenario() -> None:
    overrides = ["streams.alice.output=2", "streams.alice.requests=1"]
    loaded = bpusim.load_scenario(SCENARIO, overrides)
    assert bpusim.simulate(loaded).to_dict() == bpusim.simulate(SCENARIO, set=overrides).to_dict()


def test_overrides_for_a_loaded_scenario_are_refused() -> None:
    with pytest.raises(bpusim.BpusimError, match="overrides need a scenario file"):
        bpusim.simulate(bpusim.load_scenario(SCENARIO), set=["streams.alice.output=2"])


def test_load_trace_gives_a_trace() -> None:
    trace = bpusim.load_trace(TRACE)
    assert isinstance(trace, bpusim.Trace)
    assert trace.header.model == "resnet50-992"


def test_every_error_of_the_package_is_a_bpusim_error(tmp_path: Path) -> None:
    with pytest.raises(bpusim.BpusimError):
        bpusim.load_trace(tmp_path / "no.trace")
