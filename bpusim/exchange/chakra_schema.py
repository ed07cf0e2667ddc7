"""The part of the MLCommons Chakra execution trace that bpusim speaks, and its file: messages, each behind its length.

Names and field numbers are those of ``schema/protobuf/et_def.proto`` of github.com/mlcommons/chakra (schema 0.0.4, to
which later ones have only added). The project has no package on the Python index, so the messages are made here, in a
pool of their own that does not meet theirs. Fields that are not listed are left alone.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from bpusim.errors import Place, TraceError

__all__ = ["NODE_TYPES", "VERSION", "Messages", "attribute", "messages", "read_messages", "value_of", "write_messages"]

VERSION = "0.0.4"
NODE_TYPES = (
    "INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE", "COMM_SEND_NODE", "COMM_RECV_NODE",
    "COMM_COLL_NODE", "STORAGE_NODE", "BATCH_NODE", "CHECKPOINT_NODE",
)  # fmt: skip
"""By number."""
_PACKAGE = "ChakraProtoMsg"
_SCALARS = (
    "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32",
    "sfixed64", "bool", "string", "bytes",
)  # fmt: skip
"""Types of an attribute's value in the order of their field numbers: 3, 5, 7, ..."""
_NODE = (("id", 1, "uint64"), ("name", 2, "string"), ("ctrl_deps", 4, "uint64"), ("data_deps", 5, "uint64"),
         ("start_time_micros", 6, "uint64"), ("duration_micros", 7, "uint64"))  # fmt: skip


class Messages(NamedTuple):
    """The classes of messages."""

    metadata: Any
    node: Any
    attribute: Any


@cache
def messages() -> Messages:
    """Made at first use. Raises :class:`TraceError` where protobuf is not installed."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise TraceError("Chakra needs protobuf, which is not there", do="pip install 'bpusim[compile]'") from None
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="bpusim/et_def.proto", package=_PACKAGE, syntax="proto3")

    def field(message: Any, name: str, number: int, kind: str, *, many: bool = False, of: str = "") -> Any:
        label = kinds.LABEL_REPEATED if many else kinds.LABEL_OPTIONAL
        made = message.field.add(name=name, number=number, label=label, type=getattr(kinds, f"TYPE_{kind.upper()}"))
        if of:
            made.type_name = f".{_PACKAGE}.{of}"
        return made

    attribute = file.message_type.add(name="AttributeProto")
    field(attribute, "name", 1, "string")
    attribute.oneof_decl.add(name="value")
    for k, kind in enumerate(_SCALARS):
        field(attribute, f"{kind}_val", 3 + 2 * k, kind).oneof_index = 0
    metadata = file.message_type.add(name="GlobalMetadata")
    field(metadata, "version", 1, "string")
    field(metadata, "attr", 2, "message", many=True, of="AttributeProto")
    enum = file.enum_type.add(name="NodeType")
    for number, name in enumerate(NODE_TYPES):
        enum.value.add(name=name, number=number)
    node = file.message_type.add(name="Node")
    for name, number, kind in _NODE:
        field(node, name, number, kind, many=name.endswith("deps"))
    field(node, "type", 3, "enum", of="NodeType")
    field(node, "attr", 10, "message", many=True, of="AttributeProto")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = (pool.FindMessageTypeByName(f"{_PACKAGE}.{n}") for n in ("GlobalMetadata", "Node", "AttributeProto"))
    return Messages(*map(message_factory.GetMessageClass, found))


def attribute(name: str, value: int | str | bool, kind: str = "uint64") -> Any:
    """An attribute; ``kind`` says which integer type."""
    if isinstance(value, bool):
        kind = "bool"
    elif isinstance(value, str):
        kind = "string"
    return messages().attribute(name=name, **{f"{kind}_val": value})


def value_of(attr: Any) -> Any:
    """The value, whatever its type; None of a list, or if it has none."""
    which = attr.WhichOneof("value")
    return getattr(attr, which) if which else None


def write_messages(path: Path, content: Iterable[Any]) -> None:
    """Each message behind its length as a varint. Raises :class:`TraceError` if the file cannot be written."""
    out = bytearray()
    for message in content:
        data = message.SerializeToString(deterministic=True)
        size = len(data)
        while size > 0x7F:
            out.append(size & 0x7F | 0x80)
            size >>= 7
        out.append(size)
        out += data
    try:
        path.write_bytes(out)
    except OSError as e:
        raise TraceError(f"cannot write the execution trace: {e.strerror}", place=Place(str(path))) from None


def read_messages(path: Path) -> tuple[Any, list[Any]]:
    """(metadata, nodes) of a file, gzipped or not. Raises :class:`TraceError` with the message that is damaged."""
    kinds, place = messages(), Place(str(path))
    from google.protobuf.message import DecodeError

    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as e:
        why = getattr(e, "strerror", None) or "it is damaged"
        raise TraceError(f"cannot read the execution trace: {why}", place=place) from None
    metadata, nodes = None, []
    for k, part in enumerate(_parts(data, place)):
        message = kinds.node() if k else kinds.metadata()
        try:
            message.ParseFromString(part)
        except DecodeError:
            what = f"message {k + 1} is no {'node' if k else 'metadata'} of a Chakra execution trace"
            raise TraceError(what, place=place, do="name a file of protobuf messages, each behind its length") from None
        if k:
            nodes.append(message)
        else:
            metadata = message
    if not nodes:
        raise TraceError("the execution trace has no node", place=place, do="export one of a phase with ops")
    return metadata, nodes


def _parts(data: bytes, place: Place) -> Iterator[bytes]:
    at = number = 0
    while at < len(data):
        number += 1
        size = shift = 0
        begin = at
        while True:
            if at == len(data) or shift > 28:
                raise TraceError(f"message {number} at byte {begin} has no length", place=place, do="copy it again")
            byte = data[at]
            at += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if at + size > len(data):
            what = f"message {number} at byte {begin} has {size} bytes, and the file {len(data) - at} more"
            raise TraceError(what, place=place, do="copy it again, or name a Chakra execution trace")
        yield data[at : at + size]
        at += size
