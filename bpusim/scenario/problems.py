"""Turns pydantic's findings into problems a user can mend: where in which file, what, and what to do."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from bpusim.documents import Document, KeyPath
from bpusim.errors import Place, Problem, UnitError, did_you_mean
from bpusim.scenario.schema import ScenarioSpec
from bpusim.units import dimension_of, format_quantity

__all__ = ["dotted", "problem_at", "schema_problems"]

_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_NAMED = (("machine",), ("machine", "cooling"))
"""Parts that may name a preset."""
_MISSING = ("missing", "missing_argument", "missing_keyword_only_argument")
_KINDS = {
    "int_type": ("a whole number", "write one such as 32"),
    "int_parsing": ("a whole number", "write one such as 32"),
    "int_from_float": ("a whole number", "write one such as 32"),
    "string_type": ("text", "write it in quotes"),
    "dict_type": ("a mapping", "write 'key: value' entries"),
    "model_type": ("a mapping", "write 'key: value' entries"),
    "dataclass_type": ("a mapping", "write 'key: value' entries"),
    "list_type": ("a list", "write it as [a, b]"),
}


def dotted(path: KeyPath) -> str:
    """``path`` as users write it in ``--set``."""
    return ".".join(key if isinstance(key, str) and key.isprintable() else repr(key) for key in path)


def problem_at(place: Place, path: KeyPath, what: str, do: str = "") -> Problem:
    """A problem with the value at ``path``; an override's place names the path already."""
    repeated = not path or (not place.line and place.file.endswith(" " + dotted(path)))
    return Problem(what if repeated else f"{dotted(path)}: {what}", place, do)


def schema_problems(failure: ValidationError, document: Document, *, but: str = "") -> list[Problem]:
    """One problem per finding of ``failure`` in ``document``, at its place; section ``but`` is left out."""
    schema = ScenarioSpec.model_json_schema()
    problems: list[Problem] = []
    missing: list[tuple[KeyPath, Problem]] = []
    mistyped: set[KeyPath] = set()
    for error in failure.errors(include_url=False):
        if error["loc"][:1] == (but,):
            continue
        path = _path(error, document.data)
        if error["type"] in _MISSING:
            about = _node(schema, error["loc"]).get("description", "")
            where = document.key(*path[:-1])
            do = f"add {path[-1]}: {about[:1].lower()}{about[1:]}" if about else f"add {path[-1]}"
            missing.append((path, problem_at(where, path[:-1], f"'{path[-1]}' is missing", do)))
        elif error["type"] in _UNKNOWN or error["loc"][-1:] == ("[key]",):
            do = _unknown_do(error, schema)
            if close := re.fullmatch(r"did you mean '(.*)'\?", do):
                mistyped.add((*path[:-1], close[1]))
            problems.append(_key_problem(error, document, path, do))
        else:
            what, do = _explained(error)
            problems.append(problem_at(document.where(*path), path, what, do))
    # A key that is missing because it is mistyped is one problem, not two.
    return problems + [problem for path, problem in missing if path not in mistyped]


def _key_problem(error: ErrorDetails, document: Document, path: KeyPath, do: str) -> Problem:
    if error["type"] == "value_error":
        what, do = _explained(error)
        return problem_at(document.key(*path), path[:-1], what, do)
    return problem_at(document.key(*path), path[:-1], f"unknown key '{path[-1]}'", do)


def _unknown_do(error: ErrorDetails, schema: dict[str, Any]) -> str:
    loc = error["loc"]
    if loc[-1] == "[key]":
        return did_you_mean(str(loc[-2]), _choices(error))
    known = [*_node(schema, loc[:-1]).get("properties", ())]
    return did_you_mean(str(loc[-1]), [*known, "preset"] if loc[:-1] in _NAMED else known)


def _numbered(key: object) -> bool:
    return str(key).isdigit()


def _explained(error: ErrorDetails) -> tuple[str, str]:
    """What is wrong with a value, and what to do."""
    kind, ctx = error["type"], error.get("ctx", {})
    shown = _shown(error["input"])
    if kind in ("list_type", "tuple_type") and isinstance(error["input"], dict) and all(map(_numbered, error["input"])):
        return "a list is replaced as a whole", "write all of it: path=[a, b]"
    if kind in _KINDS:
        noun, do = _KINDS[kind]
        return f"{shown} is not {noun}", do
    if kind == "value_error":
        cause = ctx["error"]
        if isinstance(cause, UnitError):
            return cause.problems[0].what, cause.problems[0].do
        what, _, do = str(cause).partition("; ")
        return what, do
    if kind == "literal_error":
        choices = _choices(error)
        if len(choices) == 1:
            return f"{shown} is not known", f"write {choices[0]}"
        return f"{shown} is not one of {', '.join(choices)}", _close(error["input"], choices)
    if kind in ("too_short", "string_too_short"):
        return "is empty", "write at least one entry" if kind == "too_short" else "write some text"
    if kind == "too_long":
        return f"has {ctx['actual_length']} entries", f"write {ctx['max_length']}"
    if kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        return f"{shown} is out of range", _bound(kind, ctx, dimension_of(error["input"]))
    return f"{shown}: {error['msg'][:1].lower()}{error['msg'][1:]}", ""


def _bound(kind: str, ctx: dict[str, Any], dimension: str | None) -> str:
    words = {"greater_than": "more than {gt}", "greater_than_equal": "{ge} or more"}
    words |= {"less_than": "less than {lt}", "less_than_equal": "at most {le}"}

    def shown(value: Any) -> Any:
        if dimension is not None and value:
            return format_quantity(value, dimension)
        return f"{value:g}" if isinstance(value, float) else value

    bound = {key: shown(value) for key, value in ctx.items()}
    return "write " + words[kind].format(**bound)


def _close(word: object, choices: list[str]) -> str:
    hint = did_you_mean(str(word), choices)
    return hint if hint.startswith("did") else ""


def _choices(error: ErrorDetails) -> list[str]:
    return re.findall(r"'([^']*)'", str(error.get("ctx", {}).get("expected", "")))


def _shown(value: Any) -> str:
    """``value`` as it looks in a file, shortened."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = f"'{value}'" if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:56] + "...'"


def _path(error: ErrorDetails, data: Any) -> KeyPath:
    """The location without what is not in the file: tags of unions and pydantic's ``[key]``."""
    path: list[str | int] = []
    for segment in error["loc"]:
        inside = dict(enumerate(data)) if isinstance(data, list) else data
        if isinstance(inside, dict) and segment in inside:
            data = inside[segment]
            path.append(segment)
    if error["type"] in _MISSING:
        path.append(error["loc"][-1])
    return tuple(path)


def _node(schema: dict[str, Any], loc: tuple[str | int, ...]) -> dict[str, Any]:
    """The part of the schema that describes ``loc``; tags of unions are names of definitions."""
    node = schema
    for segment in loc:
        if segment in node.get("properties", ()):
            node = node["properties"][segment]
        elif isinstance(node.get("additionalProperties"), dict):
            node = node["additionalProperties"]
        elif node.get("patternProperties"):
            node = next(iter(node["patternProperties"].values()))
        elif isinstance(segment, int) and isinstance(node.get("items"), dict):
            node = node["items"]
        elif segment in schema["$defs"]:
            node = schema["$defs"][segment]
        else:
            return {}
        described = {k: v for k, v in node.items() if k == "description"}
        given = [n for n in node.get("anyOf", ()) if n.get("type") != "null"]
        if len(given) == 1:  # it may be left out
            node = given[0] | described
        if "$ref" in node:
            node = schema["$defs"][node["$ref"].rpartition("/")[2]] | described
    return node
