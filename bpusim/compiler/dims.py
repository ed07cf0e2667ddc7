"""Integer expressions in ``tokens``, ``kv`` and ``batch``: what a size or a cost may be before a trace is bound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bpusim.trace.basis import by_sequence

__all__ = ["KV", "ONE", "TOKENS", "Expr", "as_expr", "product", "windowed"]

_PRODUCTS = {("kv", "tokens"): "tokens*kv", ("tokens", "tokens"): "tokens^2"}
_AT_LEAST_ONE = {"1", "tokens", "tokens^2"}


def _product(a: str, b: str) -> str | None:
    """The term of a product; unbound sizes (``?name``) multiply to one that is just as unbound."""
    if a.startswith("?") or b.startswith("?"):
        return a if a.startswith("?") else b
    if {a, b} == {"tokens", windowed(a) or windowed(b)}:
        return f"tokens*{windowed(a) or windowed(b)}"
    return _PRODUCTS.get((min(a, b), max(a, b)))


def windowed(term: str) -> str:
    """``term`` itself if it is ``min(kv,w)``, else nothing."""
    return term if term.startswith("min(kv,") else ""


class Expr:
    """A sum of basis terms with integer coefficients. Immutable; compares and hashes by value."""

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[str, int]) -> None:
        self.terms: dict[str, int] = {t: c for t, c in terms.items() if c}

    @property
    def is_const(self) -> bool:
        """Whether it is a plain number."""
        return not self.terms or set(self.terms) == {"1"}

    def __int__(self) -> int:
        if not self.is_const:
            raise ValueError(f"{self} is not a plain number")
        return self.terms.get("1", 0)

    def __add__(self, other: Expr | int) -> Expr:
        out = dict(self.terms)
        for t, c in as_expr(other).terms.items():
            out[t] = out.get(t, 0) + c
        return Expr(out)

    def __sub__(self, other: Expr | int) -> Expr:
        return self + as_expr(other) * -1

    def __mul__(self, other: Expr | int) -> Expr:
        out: dict[str, int] = {}
        for a, x in self.terms.items():
            for b, y in as_expr(other).terms.items():
                term = a if b == "1" else b if a == "1" else _product(a, b)
                if term is None:
                    raise ValueError(f"{self} * {other} is outside the closed list of basis terms")
                out[term] = out.get(term, 0) + x * y
        return Expr(out)

    __radd__, __rmul__ = __add__, __mul__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr | int) and as_expr(other).terms == self.terms

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __repr__(self) -> str:
        return (
            " + ".join(t if c == 1 and t != "1" else str(c) if t == "1" else f"{c}*{t}" for t, c in self.terms.items())
            or "0"
        )

    def padded(self, chunk: int) -> Expr:
        """With ``tokens`` replaced by the chunk the graph is compiled for."""
        out = Expr({})
        for term, c in self.terms.items():
            if term == "tokens":
                out += c * chunk
            elif term == "tokens^2":
                out += c * chunk * chunk
            elif term.startswith("tokens*"):
                out += Expr({term.removeprefix("tokens*"): c * chunk})
            else:
                out += Expr({term: c})
        return out

    def least(self) -> int | None:
        """A number that it never falls below, with any cache and one token or more; None where none is known."""
        total = 0
        for term, c in self.terms.items():
            if term.startswith("?") or (c < 0 and term != "1"):
                return None
            total += c if term in _AT_LEAST_ONE else 0
        return total

    def over_empty_cache(self) -> Expr:
        """With nothing in the cache."""
        return Expr({t: c for t, c in self.terms.items() if t.startswith("?") or "kv" not in t})

    def by_sequence(self) -> Expr:
        """For all sequences of a batch, of a cost that holds for each."""
        return Expr({by_sequence(t): c for t, c in self.terms.items()})

    def ceil_div(self, n: int) -> Expr:
        """Blocks of ``n``: of a plain number, or of ``kv`` or ``min(kv,w)`` plus one; old and new parts are blocked
        apart."""
        if self.is_const:
            return as_expr(-(-int(self) // n))
        (grown, *more) = [t for t in self.terms if t != "1"]
        if more or self.terms[grown] != 1 or not (grown == "kv" or windowed(grown)):
            raise ValueError(f"ceil(({self})/{n}) is outside the closed list of basis terms")
        past = grown if n == 1 else f"ceil({grown}/{n})"
        return Expr({past: 1, "1": -(-self.terms.get("1", 0) // n)})

    def coefs(self, basis: Iterable[str]) -> tuple[int, ...]:
        """Coefficients over ``basis``, trailing zeros dropped."""
        out = [self.terms.get(t, 0) for t in basis]
        while out and not out[-1]:
            out.pop()
        return tuple(out)


def as_expr(value: Expr | int) -> Expr:
    """``value`` as an expression."""
    return value if isinstance(value, Expr) else Expr({"1": value})


def product(values: Iterable[Expr | int]) -> Expr:
    """Product of all, 1 of none."""
    out = ONE
    for v in values:
        out = out * v
    return out


ONE = Expr({"1": 1})
TOKENS = Expr({"tokens": 1})
KV = Expr({"kv": 1})
