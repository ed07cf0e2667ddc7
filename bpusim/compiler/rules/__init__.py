"""Cost rules: one function per family of ops, found by op type. An op without a rule is never free."""

from __future__ import annotations

from collections.abc import Callable

from bpusim.compiler.rules import attention, conv, elementwise, layout, linear
from bpusim.compiler.values import Context, Cost

__all__ = ["DOMAINS", "RULES", "Rule"]

Rule = Callable[[Context], Cost | None]
"""Sets the outputs' dims and returns the cost; None for a view."""

DOMAINS = {"", "com.microsoft"}
"""Operator sets whose ops the rules know."""

RULES: dict[str, Rule] = {**elementwise.RULES, **layout.RULES, **linear.RULES, **attention.RULES, **conv.RULES}
