"""A file that exports append to: however the last one ended, each line is in it once, and complete."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from grns.cli import failure
from grns.cli.output import json_line
from grns.errors import ConflictError, InvalidInputError

_STEP_BYTES = 1024 * 1024
# How each line begins. It distinguishes the rest of a killed export from what another program wrote.
_BEGINNING = b'{"seq": '


class EventFile:
    """Takes rows of the log. `last_seq` is that of the last row when the file was opened, or 0."""

    def __init__(self, file: BinaryIO, path: Path, last_seq: int) -> None:
        self._file = file
        self._path = path
        self.last_seq = last_seq

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows, and flush them to the disk."""
        if not rows:
            return
        try:
            self._file.write("".join(json_line(row) for row in rows).encode())
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from error


@contextmanager
def opened(path: Path, workspace: str) -> Iterator[EventFile]:
    """Open or create a file for one export, and remove an incomplete line at its end.

    Raises:
        InvalidInputError: `bad_file`, the file holds something else.
        ConflictError: it holds events of another workspace, or another export writes into it.
    """
    if path.exists() and not path.is_file():
        raise _bad_file(path, "not a regular file: write to standard output instead")
    with path.open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            busy = ConflictError(f"another export writes into {path} now")
            raise failure.hinted(busy, "the same command again when it has ended") from error
        last, end = _end_of(file)
        torn = _read(file, end)
        if not (torn.startswith(_BEGINNING) or _BEGINNING.startswith(torn)):
            raise _bad_file(path, "its end was not written by an export")
        last_seq = _number(last, path, workspace) if last else 0
        file.truncate(end)
        yield EventFile(file, path, last_seq)


def _end_of(file: BinaryIO) -> tuple[bytes, int]:
    """Return the last complete line, empty if there is none, and where it ends."""
    place, tail = file.seek(0, os.SEEK_END), b""
    size = place
    while place > 0 and tail.count(b"\n") < 2:
        step = min(_STEP_BYTES, place)
        place -= step
        file.seek(place)
        tail = file.read(step) + tail
    whole, newline, torn = tail.rpartition(b"\n")
    return whole.rpartition(b"\n")[2] if newline else b"", size - len(torn)


def _read(file: BinaryIO, place: int) -> bytes:
    file.seek(place)
    return file.read(len(_BEGINNING))


def _number(last: bytes, path: Path, workspace: str) -> int:
    """Return the `seq` of a line that an export of this workspace wrote."""
    try:
        row = json.loads(last)
        number, owner = int(row["seq"]), str(row["workspace"])
    except (ValueError, TypeError, KeyError) as error:
        raise _bad_file(path, "its last line is not an event of an export") from error
    if owner != workspace:
        others = ConflictError(f"{path} holds events of workspace {owner}, and this is {workspace}")
        raise failure.hinted(others, f"grns events export --workspace {owner} --append-to {path}")
    return number


def _bad_file(path: Path, why: str) -> InvalidInputError:
    return InvalidInputError("bad_file", f"{path}: {why}")
