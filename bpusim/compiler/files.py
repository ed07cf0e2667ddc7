"""Model files: reading one, and saying what a file is that is no model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import onnx

from bpusim.errors import CompileError, Place

__all__ = ["is_pointer", "read_model", "told_of"]

_POINTER = b"version https://git-lfs"
_MAGIC = {
    b"PK\x03\x04": "a ZIP archive, as PyTorch checkpoints are",
    b"GGUF": "a GGUF file",
    b"\x1f\x8b": "a gzip archive",
    b"\x89HDF": "an HDF5 file",
    b"<": "an HTML or XML page, as a failed download leaves it",
}
_AGAIN = "export or download it again"


def is_pointer(data: bytes) -> bool:
    """Whether a file that starts with ``data`` is a Git LFS pointer."""
    return data.startswith(_POINTER)


def read_model(path: str | Path) -> tuple[onnx.ModelProto, str]:
    """The model proto of a file, without external data, and the file's SHA-256."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as e:
        raise CompileError(f"cannot read the model: {e.strerror}", place=Place(str(path))) from None
    if is_pointer(data):
        raise CompileError("this is a Git LFS pointer, not the model", place=Place(str(path)), do="run: git lfs pull")
    try:
        model = onnx.load_model_from_string(data)
    except Exception as e:
        what = f"not an ONNX file, or a damaged one: {_what_it_is(data)}"
        raise CompileError(what, place=Place(str(path)), do=_AGAIN) from e
    if not model.HasField("graph"):
        what = "the file is empty: it holds no graph" if not data else "not an ONNX file: it holds no graph"
        raise CompileError(what, place=Place(str(path)), do=_AGAIN)
    if any(not isinstance(text, str) for text in _texts(model)):  # protobuf hands over such bytes as they are
        raise CompileError("the file is damaged: a name in it is not UTF-8 text", place=Place(str(path)), do=_AGAIN)
    return model, hashlib.sha256(data).hexdigest()


@contextmanager
def told_of(file: str) -> Iterator[None]:
    """Errors that name no place are about ``file``."""
    try:
        yield
    except CompileError as e:
        if all(p.place for p in e.problems):
            raise
        raise CompileError([replace(p, place=p.place or Place(file)) for p in e.problems]) from e


def _texts(model: onnx.ModelProto) -> Iterator[object]:
    """Every name that a model uses."""
    yield from (model.producer_name, model.producer_version, *(o.domain for o in model.opset_import))
    graphs: list[onnx.GraphProto] = [model.graph]
    bodies: list[Iterable[onnx.NodeProto]] = []
    for f in model.functions:
        yield from (f.name, f.domain, f.overload, *f.input, *f.output, *(o.domain for o in f.opset_import))
        yield from (a.name for a in f.attribute_proto)
        bodies.append(f.node)
    while graphs or bodies:
        if graphs:
            g = graphs.pop()
            for v in (*g.input, *g.output, *g.value_info):
                yield v.name
                yield from (d.dim_param for d in v.type.tensor_type.shape.dim)
            for t in (*g.initializer, *(s.values for s in g.sparse_initializer)):
                yield from (t.name, *(x for e in t.external_data for x in (e.key, e.value)))
            bodies.append(g.node)
        for n in bodies.pop():
            yield from (n.name, n.op_type, n.domain, n.overload, *n.input, *n.output)
            for a in n.attribute:
                yield from (
                    a.name,
                    a.ref_attr_name,
                    *(x for e in a.t.external_data for x in (e.key, e.value)),
                    a.t.name,
                )
                graphs += [a.g] if a.HasField("g") else []


def _what_it_is(data: bytes) -> str:
    """A guess at what ``data`` is instead of a model."""
    for magic, what in _MAGIC.items():
        if data.startswith(magic):
            return f"it looks like {what}"
    if data[8:9] == b"{" or data[4:8] == b"TFL3":
        return f"it looks like a {'safetensors' if data[8:9] == b'{' else 'TensorFlow Lite'} file"
    head = data[:512]
    if not any(b < 9 or 13 < b < 32 for b in head):
        return "it is text"
    for start, wanted in _fields(data):
        if wanted > len(data):
            return f"it is cut off: the part at byte {start} ends at byte {wanted}, the file at {len(data)}"
    return "its bytes do not read as a protobuf message"


def _fields(data: bytes) -> Iterator[tuple[int, int]]:
    """(start, end) of the message's outer fields, as the protobuf wire format says, the last past the end if cut."""
    at = 0

    def varint() -> int | None:
        nonlocal at
        value = shift = 0
        while at < len(data) and shift < 64:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
        return None

    while at < len(data):
        start = at
        key = varint()
        if key is None or key & 7 not in (0, 1, 2, 5) or not key >> 3:
            return
        if key & 7 == 0:
            if varint() is None:
                return
        else:
            size = {1: 8, 5: 4}.get(key & 7)
            size = varint() if size is None else size
            if size is None:
                return
            at += size
        yield start, at
