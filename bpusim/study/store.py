"""Rows of a study in a file: one a line, only ever appended, whole or not there."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

from bpusim.errors import Place, StudyError
from bpusim.study.run_point import Row

__all__ = ["Store", "latest", "line_of", "read_rows"]

_READ = 1 << 20


def line_of(row: Row) -> str:
    """A row as its line: the same row is the same bytes."""
    return json.dumps(row, ensure_ascii=False, sort_keys=False, separators=(",", ":")) + "\n"


def read_rows(path: Path) -> Iterator[Row]:
    """Rows of a file; a last line that was cut off is left out. Raises :class:`StudyError` for any other damage."""
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith("\n"):
                    return
                yield _row(path, number, line)
    except UnicodeDecodeError:
        raise StudyError("this is no file of results", place=Place(str(path)), do="name another file") from None
    except OSError as e:
        raise StudyError(f"cannot read results: {e.strerror}", place=Place(str(path))) from None


def latest(path: Path) -> dict[str, Row]:
    """Rows of a file by key; of a point that failed and was run again the new one. Raises as :func:`read_rows`."""
    return {row["key"]: row for row in read_rows(path)}


def _row(path: Path, number: int, line: str) -> Row:
    try:
        row = json.loads(line)
        if {"key", "point", "status"} <= row.keys():
            return row  # type: ignore[no-any-return]
    except (ValueError, AttributeError):
        pass
    raise StudyError(
        "this line is no row of results", place=Place(str(path), number), do="remove it, or name another file"
    )


class Store:
    """A file of rows, open for more; nobody else may write to it meanwhile. Use it as a context manager.

    ``retry``: points that failed count as not done."""

    def __init__(self, path: Path, *, retry: bool = False) -> None:
        self.path = path
        self._retry = retry
        self.done: set[str] = set()
        """Keys of the rows that are there."""
        self.torn = 0
        """Bytes of a last line that was cut off, and is gone now."""
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as e:
            raise StudyError(
                f"cannot write results: {e.strerror}", place=Place(str(path)), do="name another file"
            ) from None
        try:
            if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                raise StudyError("this is no file that rows can be kept in", place=Place(str(path)), do="name a file")
            self._begin()
        except BaseException:
            os.close(self._fd)
            raise

    def _begin(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            what, do = "another sweep writes to this file", "wait for it, or name another file"
            raise StudyError(what, place=Place(str(self.path)), do=do) from None
        rows = latest(self.path).values()
        self.done.update(row["key"] for row in rows if not (self._retry and row["status"] == "failed"))
        size = os.fstat(self._fd).st_size
        whole = self._whole(size)
        self.torn = size - whole
        if self.torn:
            os.ftruncate(self._fd, whole)

    def _whole(self, size: int) -> int:
        """Bytes up to the end of the last whole line."""
        end = size
        while end > 0:
            start = max(end - _READ, 0)
            at = os.pread(self._fd, end - start, start).rfind(b"\n")
            if at >= 0:
                return start + at + 1
            end = start
        return 0

    def add(self, rows: Sequence[Row]) -> None:
        """Append them, all or none; on the disk when this returns. Raises :class:`StudyError` if they do not fit."""
        fresh = [row for row in rows if row["key"] not in self.done]
        data = "".join(map(line_of, fresh)).encode()
        before = os.fstat(self._fd).st_size
        try:
            written = os.write(self._fd, data)
            if written < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._fd)
        except OSError as e:
            os.ftruncate(self._fd, before)
            what, do = (
                f"cannot write results: {e.strerror}",
                "those before are safe; the same command goes on from there",
            )
            raise StudyError(what, place=Place(str(self.path)), do=do) from None
        self.done.update(row["key"] for row in fresh)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)
