"""No operator is forgotten, and none is silently free: every schema that the installed onnx package knows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from bpusim.compiler.rules import FAMILIES, FRONT_END, REFUSED, RULES
from bpusim.compiler.rules.elementwise import ELEMENTWISE
from bpusim.compiler.rules.table import op_table
from bpusim.errors import CompileError

Make = Callable[..., Any]
F = TensorProto.FLOAT
SCHEMAS = onnx.defs.get_all_schemas()
STANDARD = sorted({s.name for s in SCHEMAS if s.domain == ""})
OTHERS = sorted({(s.domain, s.name) for s in SCHEMAS if s.domain != ""})


def test_the_installed_package_knows_ops() -> None:
    assert len(STANDARD) >= 190
    assert "ai.onnx.ml" in {domain for domain, _ in OTHERS}


@pytest.mark.parametrize("name", STANDARD)
def test_every_standard_op_is_somewhere(name: str) -> None:
    """It has a rule, or the front end takes it apart, or it is refused with a reason."""
    assert (name in RULES) + (name in FRONT_END) + (name in REFUSED) == 1


def test_no_op_is_in_two_families() -> None:
    names = [name for rules, _ in FAMILIES.values() for name in rules]
    assert len(names) == len(set(names)) == len(RULES)
    assert not set(names) & (FRONT_END.keys() | REFUSED.keys())


@pytest.mark.parametrize(("domain", "name"), OTHERS)
def test_an_op_of_another_set_is_refused_or_priced_on_the_cpu(hand: Make, domain: str, name: str) -> None:
    model = hand([helper.make_node(name, ["x"], ["y"], domain=domain)], {"x": [2, 3]}, ["y"])
    model.proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", F, [2, 3]))
    try:
        (op,) = model.trace().phase("frame").ops()
    except CompileError as e:
        assert f"no cost rule for {domain}::{name}" in str(e)  # noqa: PT017  # either outcome is right
        return
    assert op.unit == "cpu"
    assert op.vec["mul"] == (12,)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_refused_op_says_why(hand: Make, name: str) -> None:
    domain = next((s.domain for s in SCHEMAS if s.name == name), "com.microsoft")
    model = hand([helper.make_node(name, ["x"], ["y"], domain=domain)], {"x": [2, 3]}, ["y"])
    model.proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", F, [2, 3]))
    full = f"{domain}::{name}" if domain else name
    with pytest.raises(CompileError, match=f"no cost rule for {full}, {re.escape(REFUSED[name])}"):
        model.trace()


def _inputs(name: str) -> int:
    if name.startswith("QLinear"):
        return 0
    known = onnx.defs.has(name)
    return max(
        int(onnx.defs.get_schema(name).min_input) if known else 1, 2 if name in ("Mean", "Sum", "Max", "Min") else 1
    )


@pytest.mark.parametrize("name", sorted(n for n in ELEMENTWISE if not n.startswith("QLinear")))
def test_an_elementwise_op_works_on_every_result(hand: Make, name: str) -> None:
    """2 x 3 elements, at the table's operations each."""
    count = max(_inputs(name), 2 if name in ("BiasAdd", "BiasGelu", "SwiGLU") else 1)
    names = [f"x{i}" for i in range(count)]
    attrs = {"to": F} if name == "Cast" else {"direction": "LEFT"} if name == "BitShift" else {}
    model = hand([helper.make_node(name, names, ["y"], **attrs)], {n: [2, 3] for n in names}, ["y"], opset=28)
    (op,) = model.trace().phase("frame").ops()
    more = {"mul": 6} if name == "Mean" else {}
    assert {c: v[0] for c, v in op.vec.items()} == {c: 6 * v for c, v in ELEMENTWISE[name].items()} | more
    assert model.dims("y") == [2, 3]


def test_every_rule_is_tested_by_name() -> None:
    """In some test of this folder, beside what walks the table of elementwise ops."""
    text = "".join(p.read_text(encoding="utf-8") for p in Path(__file__).parent.glob("test_*.py"))
    assert [n for n in RULES if n not in ELEMENTWISE and f'"{n}"' not in text] == []


def test_the_documentation_lists_them(repository: Path) -> None:
    text = (repository / "docs" / "TRACES.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"<!-- begin:ops -->\n(.*?)<!-- end:ops -->", text, flags=re.DOTALL)
    assert shown == op_table(), "run: python docs/make.py"
