"""A file that exports go on with: however the last one has ended, each line is in it once, and whole."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from grns.cli import failure
from grns.cli.output import line
from grns.errors import ConflictError, InvalidInputError

_STEP_BYTES = 1024 * 1024
# How each line begins: what a killed export has left at the end is told by it from what somebody else wrote.
_BEGINNING = b'{"seq": '


class EventFile:
    """Takes rows of the log. `behind` is the `seq` of the last one that it held when it was opened, or 0."""

    def __init__(self, file: BinaryIO, path: Path, behind: int) -> None:
        self._file = file
        self._path = path
        self.behind = behind

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows; when it returns, they are on the disk."""
        if not rows:
            return
        try:
            self._file.write("".join(line(row) for row in rows).encode())
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from error


@contextmanager
def opened(path: Path, workspace: str) -> Iterator[EventFile]:
    """Open a file, which is made where it is missing, for one export alone.

    What an export has left half-written at its end is taken out. `InvalidInputError('bad_file')`: it holds
    something else; `ConflictError`: another workspace's events, or another export writes into it now.
    """
    if path.exists() and not path.is_file():
        raise _strange(path, "it is no plain file: what goes there goes to standard output")
    with path.open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            busy = ConflictError(f"another export writes into {path} now")
            raise failure.hinted(busy, "the same again when it has ended") from error
        last, end = _end_of(file)
        torn = _read(file, end)
        if not (torn.startswith(_BEGINNING) or _BEGINNING.startswith(torn)):
            raise _strange(path, "what stands at its end was not written by an export")
        behind = _number(last, path, workspace) if last else 0
        file.truncate(end)
        yield EventFile(file, path, behind)


def _end_of(file: BinaryIO) -> tuple[bytes, int]:
    """Return the last whole line, empty where there is none, and where it ends."""
    place, found = file.seek(0, os.SEEK_END), b""
    size = place
    while place > 0 and found.count(b"\n") < 2:
        step = min(_STEP_BYTES, place)
        place -= step
        file.seek(place)
        found = file.read(step) + found
    whole, newline, torn = found.rpartition(b"\n")
    return whole.rpartition(b"\n")[2] if newline else b"", size - len(torn)


def _read(file: BinaryIO, place: int) -> bytes:
    file.seek(place)
    return file.read(len(_BEGINNING))


def _number(last: bytes, path: Path, workspace: str) -> int:
    """Return the `seq` of a line that an export of this workspace has written."""
    try:
        row = json.loads(last)
        number, owner = int(row["seq"]), str(row["workspace"])
    except (ValueError, TypeError, KeyError) as error:
        raise _strange(path, "its last line is no event that an export has written") from error
    if owner != workspace:
        others = ConflictError(f"{path} holds events of workspace {owner}, and this is {workspace}")
        raise failure.hinted(others, f"grns events export --workspace {owner} --into {path}")
    return number


def _strange(path: Path, why: str) -> InvalidInputError:
    return InvalidInputError("bad_file", f"{path}: {why}")
