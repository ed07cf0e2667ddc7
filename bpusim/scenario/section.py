"""What all sections of a scenario file have in common."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from bpusim.hardware.spec import named

__all__ = ["Affinity", "Count", "Name", "Parts", "Section", "is_count"]

Count = Annotated[int, Field(ge=1, le=10**9)]


def is_count(value: Any) -> bool:
    """Whether it is a whole number that a :data:`Count` may be."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10**9


def _parts(value: Any) -> Any:
    if value != "cores" and not (is_count(value) and value <= _MOST_PARTS):
        raise ValueError(f"not a number of parts; write 1 to {_MOST_PARTS}, or cores for one on each core")
    return value


_MOST_PARTS = 1000
Affinity = Literal["any", "fast", "slow"]
"""CPU cores that host work may take."""
Parts = Annotated[
    int | Literal["cores"],
    PlainValidator(_parts),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1, "maximum": _MOST_PARTS}, {"const": "cores"}]}),
]
"""Pieces of host work at a time: a number, or one for each core that it may take."""
Name = Annotated[str, AfterValidator(named)]


class Section(BaseModel):
    """A mapping of known keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
