"""Toolchains as data: those that come with bpusim, a user's own, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpusim.errors import HardwareError
from bpusim.hardware.toolchain import Limits, load_toolchain, toolchain_names
from bpusim.scenario import load_machine


def _file(folder: Path, text: str, name: str = "mine.yaml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def _refused(which: str) -> str:
    with pytest.raises(HardwareError) as caught:
        load_toolchain(which)
    return str(caught.value)


def test_the_shipped_ones_differ_in_swiglu_alone() -> None:
    one, two = load_toolchain("1.0"), load_toolchain("1.2")
    assert toolchain_names() == ("1.0", "1.2")
    assert (one.ops, one.unsplit, one.limits) == (two.ops, two.unsplit, two.limits)
    assert one.fusions.convolution == two.fusions.convolution
    assert (one.fusions.swiglu, two.fusions.swiglu) == (False, True)


def test_an_unknown_one_lists_the_known_ones() -> None:
    assert _refused("1.1") == (
        "error: unknown toolchain '1.1'; known: 1.0, 1.2; or the path of a .yaml file of your own"
    )


def test_a_version_without_quotes_is_a_version() -> None:
    core = load_machine("bpu80", ["machine.cores.toolchain=1.2"]).cores
    assert core.fingerprint()["toolchain"] == "1.2"


def test_a_file_of_ones_own_is_called_as_the_file(tmp_path: Path) -> None:
    """Another folder makes no other toolchain: traces are compared by its name."""
    path = _file(
        tmp_path, 'about: mine\nextends: "1.0"\nwithout: [Pad]\nlimits: {Conv: {kernel: 7}}\nunsplit: [Conv]\n'
    )
    mine, base = load_toolchain(path), load_toolchain("1.0")
    assert set(base.ops) - set(mine.ops) == {"Pad"}
    assert mine.unsplit == [*base.unsplit, "Conv"]
    assert mine.fusions == base.fusions
    assert load_machine("bpu80", [f"machine.cores.toolchain={path}"]).cores.fingerprint()["toolchain"] == "mine"


def test_fusions_that_are_given_replace_those_of_the_extended_one(tmp_path: Path) -> None:
    path = _file(tmp_path, 'about: x\nextends: "1.2"\nfusions: {convolution: [Relu]}\n')
    assert load_toolchain(path).fusions.convolution == ["Relu"]
    assert load_toolchain(path).fusions.swiglu


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("about: x\nopps: [Conv]\n", 2, "opps"),
        ("about: x\nlimits: {Conv: {kernel: 0}}\n", 2, "limits.Conv.kernel"),
        ("about: x\nlimits: {Conv: {opset: [9, 7]}}\n", 2, "write the smaller one first"),
        ("about: x\nwithout: [Conv]\n", 2, "without takes ops from the toolchain that is extended, and none is; add"),
        ('about: x\nextends: "1.7"\n', 2, "unknown toolchain '1.7'; known: 1.0, 1.2"),
        ('about: x\nextends: "1.0"\nwithout: [Padd]\n', 3, "toolchain 1.0 has no op 'Padd'"),
        ("about: x\nname: y\n", 2, "a toolchain is called as its file"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_line(tmp_path: Path, text: str, line: int, message: str) -> None:
    told = _refused(_file(tmp_path, text))
    assert f"mine.yaml:{line}:" in told
    assert message in told


def test_a_file_may_not_be_called_as_a_shipped_one(tmp_path: Path) -> None:
    assert "give the file another name" in _refused(_file(tmp_path, "about: x\n", "1.0.yaml"))
    assert "no such file" in _refused(str(tmp_path / "none.yaml"))


@pytest.mark.parametrize(
    ("limits", "facts", "broken"),
    [
        (Limits(kernel=7), {"kernel": 11}, "kernel 11 exceeds 7"),
        (Limits(kernel=7), {"kernel": 7}, ""),
        (Limits(kernel=7), {}, ""),
        (Limits(stride=2), {"stride": 4}, "stride 4 exceeds 2"),
        (Limits(rank=4), {"rank": 5}, "rank 5 exceeds 4"),
        (Limits(opset=[11, 19]), {"opset": 20}, "opset 20 is not within 11 to 19"),
        (Limits(opset=[11, 19]), {"opset": 11}, ""),
        (Limits(types=["FLOAT16"]), {"type": "FLOAT"}, "FLOAT is not of FLOAT16"),
    ],
)
def test_limits(limits: Limits, facts: dict[str, int | str], broken: str) -> None:
    assert limits.broken(facts) == broken
