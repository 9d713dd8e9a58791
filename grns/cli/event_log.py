"""The event log page by page, with a number to continue from, and the file that exports append to."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from grns.cli import failure
from grns.cli.output import json_line
from grns.dead_letters import listing
from grns.diagnose.daemons import read_pulse
from grns.errors import ConflictError, InvalidInputError
from grns.outbox import events as event
from grns.outbox import log
from grns.outbox.events import Bounds, EventQuery, LogEvent
from grns.postgres.database import Database

_PAGE = 500
_DELAY_SECONDS = 10.0
_STEP_BYTES = 1024 * 1024
# How each line begins. It distinguishes the rest of a killed export from what another program wrote.
_BEGINNING = b'{"seq": '


class EventLog:
    """Reads the events of a query, the oldest first, up to the high-water mark.

    `after` is the number up to which everything was read and kept, `first` is where the log begins, and
    `settled` is the high-water mark when it was opened.
    """

    def __init__(self, database: Database, query: EventQuery) -> None:
        self._database = database
        self._query = query
        self._bounds: Bounds | None = None
        self._end: int | None = None
        self._seen = 0
        self.after = 0
        self.first = 1
        self.settled = 0

    async def open(
        self,
        *,
        after: int | None,
        since: float | datetime | None,
        until: float | datetime | None,
        is_from_now: bool,
    ) -> None:
        """Find the number to begin after: a number, a time, or the high-water mark.

        Times are converted to numbers once, so that ranges which follow each other neither overlap nor leave
        anything out: numbers and times have the same order, except within milliseconds.
        """
        bounds = await self._read_bounds()
        self.first, self.settled = bounds.first, bounds.settled
        now = await listing.now(self._database)
        if after is not None:
            self.after = after
        elif is_from_now and since is None:
            self.after = bounds.settled
        if since is not None:
            begins = await log.first_since(self._database, _time(since, now), bounds.settled)
            self.after = max(self.after, begins - 1)
        self._end = bounds.settled
        if until is not None:
            ends = await log.first_since(self._database, _time(until, now), bounds.settled)
            self._end = min(bounds.settled, ends - 1)
        self._seen = self.after

    @property
    def is_at_end(self) -> bool:
        """Whether everything up to the last known high-water mark has been read."""
        return self._end is not None and self.after >= self._end

    def refresh(self) -> None:
        """Let the next page read the high-water mark again."""
        self._bounds, self._end = None, None

    async def page(self) -> Sequence[LogEvent]:
        """Return the next events. Call `keep` when they are done with."""
        bounds = await self._read_bounds()
        if self._end is None:
            self._end = bounds.settled
        rows, self._seen = await event.read_events(
            self._database,
            self._query,
            Bounds(bounds.first, self._end),
            behind=self.after,
            limit=_PAGE,
        )
        return rows

    def keep(self) -> None:
        """Continue after the latest page."""
        self.after = self._seen

    async def delay_reason(self) -> str | None:
        """Return why the end of the log cannot be read yet; None if it can."""
        pulse = await read_pulse(self._database)
        seconds = min(pulse.lag_seconds, pulse.uncounted_seconds)
        if seconds < _DELAY_SECONDS:
            return None
        return (
            f"the end of the log is missing: for {seconds:.0f} s neither a relay nor a stats aggregator has"
            " passed some row of it"
        )

    async def _read_bounds(self) -> Bounds:
        if self._bounds is None:
            self._bounds = await event.bounds(self._database)
        return self._bounds


def _time(given: float | datetime, now: datetime) -> datetime:
    """Return a time; a number means seconds before now."""
    return now - timedelta(seconds=given) if isinstance(given, float) else given


class EventFile:
    """Takes rows of the log. `last_seq` is that of the last row when the file was opened, or 0."""

    def __init__(self, file: BinaryIO, path: Path, last_seq: int) -> None:
        self._file = file
        self._path = path
        self.last_seq = last_seq

    def write(self, rows: Sequence[LogEvent]) -> None:
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
def opened_file(path: Path, workspace: str) -> Iterator[EventFile]:
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
