"""What a toolchain makes of a model: op types that it takes and their limits, what it fuses, what it does not split.

A toolchain is a YAML file: one that comes with bpusim, by name (``machine.cores.toolchain: "1.0"``), or a user's own,
by path. Every entry of a shipped one cites its source or says that it was chosen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from bpusim.documents import Document, read_document
from bpusim.errors import HardwareError, Place, Problem
from bpusim.hardware.spec import STRICT, Count, toolchain_name

__all__ = ["Fusions", "Limits", "Toolchain", "load_toolchain", "toolchain_names"]

_SHIPPED = Path(__file__).with_name("toolchains")
Range = Annotated[list[Count], Field(min_length=2, max_length=2)]


@dataclass(frozen=True, slots=True, config=STRICT)
class Limits:
    """What ops of a type may have at most to run on the core; what is left out is not limited.

    ``kernel``, ``stride``: of the longest side; ``rank``: dimensions of the first input; ``opset``: the first and the
    last; ``types``: element types of the first input, as ONNX calls them (``FLOAT16``).
    """

    kernel: Count | None = None
    stride: Count | None = None
    rank: Count | None = None
    opset: Range | None = None
    types: Annotated[list[str], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _range(self) -> Limits:
        if self.opset is not None and self.opset[0] > self.opset[1]:
            raise ValueError("opset is the first and the last; write the smaller one first")
        return self

    def broken(self, facts: Mapping[str, int | str]) -> str:
        """How an op of which ``facts`` are known breaks them, such as ``kernel 11 exceeds 7``; empty if it does not."""
        for key in ("kernel", "stride", "rank"):
            most, has = getattr(self, key), facts.get(key)
            if most is not None and isinstance(has, int) and has > most:
                return f"{key} {has} exceeds {most}"
        opset = facts.get("opset")
        if self.opset is not None and isinstance(opset, int) and not self.opset[0] <= opset <= self.opset[1]:
            return f"opset {opset} is not within {self.opset[0]} to {self.opset[1]}"
        if self.types is not None and facts.get("type") not in (None, *self.types):
            return f"{facts['type']} is not of {', '.join(self.types)}"
        return ""


@dataclass(frozen=True, slots=True, config=STRICT)
class Fusions:
    """What runs as one op. ``convolution``: types that a convolution takes in as its results leave the array;
    ``swiglu``: a gate's Silu and product join the matrix product before them; ``attention``: both products with the
    softmax between them; ``norm_residual``: a sum and the normalisation behind it."""

    convolution: list[str] = Field(default_factory=list)
    swiglu: bool = False
    attention: bool = False
    norm_residual: bool = False


@dataclass(frozen=True, slots=True, config=STRICT)
class Toolchain:
    """``ops``: types that run on the core, ``without`` those; ``extends``: a shipped one that the rest is added to.

    ``unsplit``: types left on one core of several. Copies (unit dma) and CPU ops are never split.
    """

    about: str
    extends: str | None = None
    ops: list[str] = Field(default_factory=list)
    without: list[str] = Field(default_factory=list)
    limits: dict[str, Limits] = Field(default_factory=dict)
    fusions: Fusions = Field(default_factory=Fusions)
    unsplit: list[str] = Field(default_factory=list)
    name: str = ""

    def refuses(self, kind: str, facts: Mapping[str, int | str]) -> str:
        """Why an op of type ``kind`` does not run on the core; empty if it does."""
        if kind not in self.ops:
            return f"{kind} is not among the ops of toolchain {self.name}"
        limits = self.limits.get(kind)
        broken = limits.broken(facts) if limits is not None else ""
        return f"{broken} of toolchain {self.name}" if broken else ""

    @property
    def named(self) -> dict[str, list[str]]:
        """Op types that it names, by the key they stand under."""
        keys = {"ops": self.ops, "limits": list(self.limits), "unsplit": self.unsplit}
        return {**keys, "fusions.convolution": self.fusions.convolution}


def toolchain_names() -> tuple[str, ...]:
    """Names of all that come with bpusim, sorted."""
    return tuple(sorted(path.stem for path in _SHIPPED.glob("*.yaml")))


def load_toolchain(which: str, place: Place | None = None) -> Toolchain:
    """The toolchain ``which``: a name, or the path of a ``.yaml`` file.

    Raises :class:`HardwareError`, at ``place`` where the user named it, for an unknown name (it lists the known) or
    with all that is wrong in a file.
    """
    known = toolchain_names()
    if which in known:
        return _shipped(which)
    name = toolchain_name(which)
    if name == which:
        do = f"known: {', '.join(known)}; or the path of a .yaml file of your own"
        raise HardwareError(f"unknown toolchain '{which}'", place=place, do=do)
    if name in known:
        do = "give the file another name"
        raise HardwareError(f"'{which}' is called as the toolchain {name} that comes with bpusim", place=place, do=do)
    return _read(Path(which), place)


@cache
def _shipped(name: str) -> Toolchain:
    return _read(_SHIPPED / f"{name}.yaml", None)


def _read(path: Path, place: Place | None) -> Toolchain:
    document = read_document(path, error=HardwareError, named_at=place)
    try:
        own = TypeAdapter(Toolchain).validate_json(json.dumps(document.data))
    except ValidationError as failure:
        raise HardwareError(_problems(failure, document)) from None
    own = replace(own, name=path.stem)
    if "name" in document.data:
        raise HardwareError("a toolchain is called as its file", place=document.where("name"), do="remove name")
    if own.extends is None:
        if own.without:
            what = "without takes ops from the toolchain that is extended, and none is"
            raise HardwareError(what, place=document.where("without"), do='add extends: "1.0"')
        return own
    if own.extends not in toolchain_names():
        do = "known: " + ", ".join(toolchain_names())
        raise HardwareError(f"unknown toolchain '{own.extends}'", place=document.where("extends"), do=do)
    base = _shipped(own.extends)
    absent = [n for n, t in enumerate(own.without) if t not in base.ops]
    if absent:
        what = f"toolchain {base.name} has no op '{own.without[absent[0]]}'"
        raise HardwareError(what, place=document.where("without", absent[0]), do="remove it")
    given: Mapping[str, Any] = document.data.get("fusions") or {}
    return replace(
        own,
        ops=[t for t in [*base.ops, *own.ops] if t not in own.without],
        limits=base.limits | own.limits,
        fusions=replace(base.fusions, **{key: getattr(own.fusions, key) for key in given}),
        unsplit=[*base.unsplit, *(t for t in own.unsplit if t not in base.unsplit)],
    )


def _problems(failure: ValidationError, document: Document) -> list[Problem]:
    """Each with the line of the file."""
    return [
        Problem(f"{'.'.join(map(str, e['loc']))}: {e['msg'][:1].lower()}{e['msg'][1:]}", document.where(*e["loc"]))
        for e in failure.errors()
    ]
