"""What all sections of a scenario file have in common."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

__all__ = ["Count", "Name", "Section", "is_count"]

Count = Annotated[int, Field(ge=1, le=10**9)]


def _name(value: str) -> str:
    if not value.strip() or "/" in value or not value.isprintable():
        raise ValueError(f"{value!r} cannot be a name; use letters, digits and '-', '_' or '.'")
    return value


def is_count(value: Any) -> bool:
    """Whether it is a whole number that a :data:`Count` may be."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10**9


Name = Annotated[str, AfterValidator(_name)]


class Section(BaseModel):
    """A mapping of known keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
