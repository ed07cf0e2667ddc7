"""YAML documents that remember where every key and value stands.

The dialect is small on purpose: YAML 1.2 core scalars (``on`` and ``2024-01-01`` are text), mappings with
text keys, lists, one document a file. Anchors, aliases, tags and merge keys are refused. The events of
ruamel.yaml are folded with an explicit stack, so that deep nesting is an error message and not a crash.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bpusim.errors import BpusimError, Place, Problem, did_you_mean

if TYPE_CHECKING:
    from ruamel.yaml.events import Event, ScalarEvent

__all__ = ["MAX_DEPTH", "Document", "KeyPath", "file_hint", "parse_value", "read_document"]

KeyPath = tuple[str | int, ...]
"""The way from the top of a document to a value: keys and list positions."""

MAX_DEPTH = 64
"""Mappings and lists may be nested this deep; files people write stay below 10."""

_KEPT = 64
"""Files of which it is kept what they say."""
_LARGEST = 2**63
_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


@dataclass(frozen=True, slots=True)
class Document:
    """Plain data of a YAML mapping, with the :class:`Place` of each value (``places``) and key (``keys``)."""

    data: dict[str, Any]
    places: Mapping[KeyPath, Place]
    keys: Mapping[KeyPath, Place]

    def where(self, *path: str | int) -> Place:
        """The place of the value at ``path``, or of the nearest value around it."""
        return _nearest(self.places, path)

    def key(self, *path: str | int) -> Place:
        """The place of the key that leads to ``path``; list entries have none, so theirs is the value's."""
        return self.keys.get(path) or self.where(*path)

    def under(self, key: str) -> Document:
        """The same document as the value of ``key`` in a mapping of one."""
        top = {(): self.where()}
        places = {(key, *path): place for path, place in self.places.items()}
        keys = {(key, *path): place for path, place in self.keys.items()}
        return Document({key: self.data}, top | places, keys)

    def over(self, base: Document) -> Document:
        """``base`` changed by this document: mappings are merged key by key, all else is replaced."""
        # Places of replaced values stay behind; nobody asks for paths that the data does not have.
        data = _merge(base.data, self.data)
        return Document(data, {**base.places, **self.places}, {**base.keys, **self.keys})


def _merge(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in top.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _nearest(places: Mapping[KeyPath, Place], path: KeyPath) -> Place:
    while path not in places:
        path = path[:-1]
    return places[path]


def read_document(
    path: str | Path, *, error: type[BpusimError] = BpusimError, named_at: Place | None = None
) -> Document:
    """The mapping in the YAML file ``path``.

    Raises ``error`` with all problems found. A file that cannot be read is reported at ``named_at``, where
    another file names it, if given.
    """
    path = Path(path)
    document, problems = _parsed(str(path), _read_text(path, error, named_at))
    if problems:
        raise error(problems)
    return replace(document, data=_copied(document.data))


# NOTE: for speed. Points of a study share their scenario. By text: a time stamp may stay when a file changes.
@lru_cache(maxsize=_KEPT)
def _parsed(file: str, text: str) -> tuple[Document, tuple[Problem, ...]]:
    """What a file says, or what is wrong with it."""
    builder = _Builder(file)
    builder.build(text)
    if not builder.problems and not isinstance(builder.root, dict):
        what = "the file is empty" if builder.root is None else "the top level is not a mapping"
        builder.report(what, builder.places.get((), Place(file)), "write keys such as 'about: ...'")
    return Document(builder.root, builder.places, builder.keys), tuple(builder.problems)


def _copied(value: Any) -> Any:
    """Mappings and lists anew, since whoever has read a document may change it."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def parse_value(text: str, *, place: Place, error: type[BpusimError] = BpusimError) -> Any:
    """``text`` read as one YAML value (``3``, ``5 ms``, ``[bpu0, bpu1]``); problems are at ``place``."""
    builder = _Builder(str(place))
    builder.build(text)
    if builder.problems:
        raise error(Problem(p.what, place, p.do) for p in builder.problems)
    return builder.root


def file_hint(path: Path) -> str:
    """What to do about the missing file ``path``: a likely name among its siblings of the same kind."""
    suffix = path.suffix or ".yaml"
    try:
        names = sorted(p.name for p in path.parent.iterdir() if p.suffix == suffix and p.is_file())
    except OSError:
        return f"there is no folder '{path.parent}'"
    hint = did_you_mean(path.name, names)
    return hint if hint.startswith("did") or 0 < len(names) <= 8 else f"check the name in '{path.parent}'"


def _read_text(path: Path, error: type[BpusimError], named_at: Place | None) -> str:
    place = named_at or Place(str(path))
    what = f"cannot read '{path}'"
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise error(f"{what}: no such file", place=place, do=file_hint(path)) from None
    except IsADirectoryError:
        raise error(f"{what}: it is a folder", place=place, do="name a file in it") from None
    except OSError as failure:
        raise error(f"{what}: {failure.strerror}", place=place) from None
    except ValueError:
        raise error(f"cannot read {str(path)!r}: no file has such a name", place=place) from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        line = raw.count(b"\n", 0, failure.start) + 1
        raise error("the file is not UTF-8", place=Place(str(path), line), do="save it as UTF-8") from None


@dataclass(slots=True)
class _Open:
    """A mapping or list whose end has not been seen, and the key that waits for its value."""

    value: dict[str, Any] | list[Any]
    path: KeyPath
    key: str | None = None
    wants_key: bool = True

    @property
    def child(self) -> KeyPath:
        """The path of the next value; one under a refused key has no path of its own."""
        if isinstance(self.value, list):
            return (*self.path, len(self.value))
        return (*self.path, -1 if self.key is None else self.key)


@dataclass(slots=True)
class _Builder:
    """Folds YAML events into plain data; ``problems`` tells what was refused."""

    file: str
    root: Any = None
    places: dict[KeyPath, Place] = field(default_factory=dict)
    keys: dict[KeyPath, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    _stack: list[_Open] = field(default_factory=list)
    _documents: int = 0

    def report(self, what: str, place: Place, do: str = "") -> None:
        self.problems.append(Problem(what, place, do))

    def build(self, text: str) -> None:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import MarkedYAMLError, YAMLError

        try:
            self._fold(YAML(typ="safe", pure=True).parse(text))
        except MarkedYAMLError as failure:
            self._syntax(failure.problem or "not YAML", failure.context, failure.problem_mark)
        except YAMLError as failure:  # the reader's: a control character, which it names
            self.report(str(failure).partition("\n")[0], Place(self.file), "remove it")
        except ValueError as failure:  # an escape such as "\U00110000" has no character
            self.report(f"not YAML: {failure}", Place(self.file), "check the escapes in quoted text")

    def _syntax(self, problem: str, context: str | None, mark: Any) -> None:
        place = Place(self.file, mark.line + 1, mark.column + 1) if mark else Place(self.file)
        if "'\\t'" in problem:
            self.report("a tab where only spaces are allowed", place, "replace it with spaces")
        elif problem.startswith("mapping values are not allowed"):
            self.report("a ':' that YAML does not allow here", place, "check the indent, or quote the text")
        elif "stream end" in problem or "end of stream" in problem:
            self.report(f"the text ends {context or ''}".rstrip(), place, "close the bracket or quote")
        else:
            self.report(f"{problem} {context or ''}".rstrip(), place, "check brackets, quotes and indent")

    def _fold(self, events: Iterable[Event]) -> None:
        from ruamel.yaml import events as kinds

        for event in events:
            if isinstance(event, kinds.MappingEndEvent | kinds.SequenceEndEvent):
                self._close()
            elif isinstance(event, kinds.DocumentStartEvent):
                self._documents += 1
                if self._documents > 1:
                    self.report("a second document", self._place(event), "keep one document a file")
                    return
            elif isinstance(event, kinds.AliasEvent):
                self._refuse(event, f"alias '*{event.anchor}'", "write the value out, or use extends")
                self._add(None, self._place(event))
            elif isinstance(event, kinds.NodeEvent):
                if event.anchor is not None:
                    self._refuse(event, f"anchor '&{event.anchor}'", "write the value where it is needed")
                if tag := getattr(event, "tag", None):
                    self._refuse(event, f"tag '{tag}'", "remove it; quotes make text")
                if isinstance(event, kinds.ScalarEvent):
                    self._add(self._scalar(event), self._place(event))
                else:
                    self._open({} if isinstance(event, kinds.MappingStartEvent) else [], self._place(event))
                if len(self._stack) > MAX_DEPTH:
                    self.report(f"nested more than {MAX_DEPTH} deep", self._place(event), "flatten it")
                    return

    def _place(self, event: Event) -> Place:
        return Place(self.file, event.start_mark.line + 1, event.start_mark.column + 1)

    def _refuse(self, event: Event, what: str, do: str) -> None:
        self.report(f"{what} is not supported", self._place(event), do)

    def _open(self, value: dict[str, Any] | list[Any], place: Place) -> None:
        path = self._stack[-1].child if self._stack else ()
        if -1 in path:  # dropped later: kept apart, so that its keys are no duplicates of other dropped ones
            path = (-1, len(self.places), len(self.keys))
        self._add(value, place)
        self._stack.append(_Open(value, path))

    def _close(self) -> None:
        self._stack.pop()

    def _add(self, value: Any, place: Place) -> None:
        """Gives ``value`` to the innermost open mapping or list."""
        if not self._stack:
            self.root = value
            self.places[()] = place
            return
        parent = self._stack[-1]
        if isinstance(parent.value, list):
            self.places[parent.child] = place
            parent.value.append(value)
        elif parent.wants_key:
            parent.key = self._key(parent, value, place)
            parent.wants_key = False
        else:
            if parent.key is not None:
                self.places[parent.child] = place
                parent.value[parent.key] = value
            parent.key, parent.wants_key = None, True

    def _key(self, parent: _Open, key: Any, place: Place) -> str | None:
        """``key`` if it may stand in ``parent``, else None: its value is then read and dropped."""
        path = (*parent.path, key) if isinstance(key, str) else parent.path
        if not isinstance(key, str):
            shown = "that is a list or mapping" if isinstance(key, dict | list) else json.dumps(key)
            self.report(f"a key {shown} is not text", place, "quote it or choose a name")
        elif key == "<<":
            self.report("merge key '<<' is not supported", place, "write the keys out, or use extends")
        elif path in self.keys:
            first = self.keys[path]
            self.report(f"key '{key}' is already at line {first.line}", place, "keep one of the two")
        else:
            self.keys[path] = place
            return key
        return None

    def _scalar(self, event: ScalarEvent) -> Any:
        text = event.value
        if any("\ud800" <= c <= "\udfff" for c in text):
            self.report("half of a surrogate pair", self._place(event), "write the character itself")
            return ""
        if not event.implicit[0]:  # quoted or block text
            return text
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if _INT.fullmatch(text):
            # The length is looked at first: Python refuses to read integers of thousands of digits.
            number = int(text, 0 if text[:2] in ("0o", "0x") else 10) if len(text) < 100 else _LARGEST
            if abs(number) < _LARGEST:
                return number
        elif _FLOAT.fullmatch(text):
            if math.isfinite(value := float(text)):
                return value
        elif not _NOT_FINITE.fullmatch(text):
            return text
        shown = text if len(text) <= 24 else text[:20] + "..."
        self.report(f"the number {shown} is out of range", self._place(event), "write a smaller one")
        return 0
