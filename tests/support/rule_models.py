"""Models of one node, for tests of cost rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnx import helper

Make = Callable[..., Any]
node = helper.make_node


def one(hand: Make, kind: str, x: list[int], **how: Any) -> Any:
    """A model of one node ``kind`` from input x to output y; ``how`` holds weights, ints, opset and attributes."""
    keys = ("weights", "ints", "opset", "domain", "more", "order")
    attrs = {k: v for k, v in how.items() if k not in keys}
    weights, ints = how.get("weights", {}), how.get("ints", {})
    more = how.get("more", {})
    names = how.get("order", ["x", *more, *weights, *ints])
    made = node(kind, names, ["y"], domain=how.get("domain", ""), **attrs)
    return hand([made], {"x": x, **more}, ["y"], weights=weights, ints=ints, opset=how.get("opset", 17))
