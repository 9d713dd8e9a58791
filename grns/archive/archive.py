"""Archives: files of JSON lines, each with a manifest that says what is in it."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import re
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, ParamSpec, TypeVar

from grns.archive.place import ArchivePlace
from grns.errors import ConflictError, InvalidInputError, NotFoundError, UnavailableError
from grns.model.envelope import rfc3339

TASKS, EVENTS = "tasks", "events"
Given = ParamSpec("Given")
Result = TypeVar("Result")
_FORMAT = 1
_LINES, _MANIFEST = ".jsonl.gz", ".json"
_KIND = re.compile(r"[a-z_]+")
_NAME = re.compile(r"[a-z_]+/[0-9-]{10}/[^/~]+~[^/~]+~[^/~]+")
_ANSWER_SECONDS = 60.0
_SPEED = 6  # of gzip: as small as 9, nearly, in a third of the time


@dataclass(frozen=True, slots=True)
class Archive:
    """What a manifest says of its file: which rows it has, from which to which, and their sha256."""

    name: str
    kind: str  # tasks, events, or the table whose rows they are
    rows: int
    workspaces: dict[str, int]  # rows of each
    first: str  # id of a task, number in the log, or time
    last: str
    first_at: datetime
    last_at: datetime
    written_at: datetime
    size: int  # of the file, in bytes
    sha256: str
    format: int = _FORMAT

    @property
    def path(self) -> str:
        """The name of its file."""
        return f"{self.name}{_LINES}"


@dataclass(frozen=True, slots=True)
class ArchivedRow:
    """One line of an archive: a JSON document, with what it is found by."""

    workspace: str
    key: str  # id of a task, number in the log, or time
    at: datetime
    text: str


async def write(place: ArchivePlace, name: str, kind: str, rows: Sequence[ArchivedRow]) -> Archive:
    """Write rows to a new archive; when it returns, both files survive a power cut.

    The manifest is written last: what has none is not an archive, and is written again.

    Raises:
        UnavailableError: the place cannot be reached, is full, or does not answer within a minute.
    """
    return await in_thread(_write, place, name, kind, rows)


def new_name(kind: str, first: str, last: str, now: datetime) -> str:
    """Return a name that no other archive has: it sorts by the day, and says from where to where it goes."""
    return f"{kind}/{now:%Y-%m-%d}/{first}~{last}~{secrets.token_hex(4)}"


def _write(place: ArchivePlace, name: str, kind: str, rows: Sequence[ArchivedRow]) -> Archive:
    text = "".join(f"{row.text}\n" for row in rows)
    content = gzip.compress(text.encode(), _SPEED, mtime=0)
    archive = Archive(
        name=name, kind=kind, rows=len(rows), workspaces=dict(Counter(row.workspace for row in rows)),
        first=rows[0].key, last=rows[-1].key,
        first_at=min(row.at for row in rows), last_at=max(row.at for row in rows),
        written_at=datetime.now(UTC), size=len(content), sha256=hashlib.sha256(content).hexdigest(),
    )  # fmt: skip
    place.write(archive.path, content)
    place.write(f"{name}{_MANIFEST}", f"{json.dumps(_document(archive))}\n".encode())
    return archive


def _document(archive: Archive) -> dict[str, Any]:
    return {
        name: rfc3339(value) if isinstance(value, datetime) else value
        for name, value in asdict(archive).items()
    }


async def names(place: ArchivePlace, kind: str = "") -> list[str]:
    """Return the names of all archives, or of those of a kind, the latest day first.

    Raises:
        InvalidInputError: `bad_kind`.
    """
    if kind and not _KIND.fullmatch(kind):
        raise InvalidInputError("bad_kind", f"{ascii(kind)[:100]} is not a kind: tasks, events, mail, …")
    found = await in_thread(place.names, kind)
    said = [name.removesuffix(_MANIFEST) for name in found if name.endswith(_MANIFEST)]
    return sorted((name for name in said if _NAME.fullmatch(name)), key=by_day, reverse=True)


def by_day(name: str) -> tuple[str, str]:
    """Return what names are ordered by: the day, then the rest."""
    kind, day, rest = name.split("/")
    return day, f"{kind}/{rest}"


def span_of(name: str) -> tuple[str, str, str]:
    """Return from where to where an archive goes, by its name, and what tells it from others."""
    first, last, mark = name.rpartition("/")[2].split("~")
    return first, last, mark


async def read_manifest(place: ArchivePlace, name: str) -> Archive:
    """Return what the manifest of an archive says.

    Raises:
        NotFoundError: there is no such archive.
        ConflictError: what is there is no manifest of grns, or one of a later version.
    """
    if not _NAME.fullmatch(name):
        raise NotFoundError(f"{ascii(name)[:200]} is not the name of an archive: it is as `list` shows it")
    content = await in_thread(place.read, f"{name}{_MANIFEST}")
    try:
        said = json.loads(content)
        if said["format"] != _FORMAT:
            raise ConflictError(f"{name} is an archive of another version of grns: format {said['format']}")
        times = {key: datetime.fromisoformat(said[key]) for key in ("first_at", "last_at", "written_at")}
        return Archive(**{**said, **times, "name": name})
    except (ValueError, KeyError, TypeError) as error:
        raise ConflictError(f"{name}{_MANIFEST} is not a manifest of an archive: {error!r}") from error


async def read_lines(place: ArchivePlace, archive: Archive) -> list[str]:
    """Return the lines of an archive, in their order.

    Raises:
        ConflictError: the file is not what its manifest says.
    """
    return await in_thread(_read_lines, place, archive)


def _read_lines(place: ArchivePlace, archive: Archive) -> list[str]:
    content = place.read(archive.path)
    if hashlib.sha256(content).hexdigest() != archive.sha256:
        raise ConflictError(f"{archive.path} is damaged: its sha256 is not that of its manifest")
    # Not splitlines(): JSON may have U+2028 and its like within a string.
    return [line for line in gzip.decompress(content).decode().split("\n") if line]


async def in_thread(function: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs) -> Result:
    """Call what reads or writes an archive; a disk or network that hangs must hold up nothing for ever.

    Raises:
        UnavailableError: it took more than a minute.
    """
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            return await asyncio.to_thread(function, *args, **kwargs)
    except TimeoutError as error:
        raise UnavailableError(f"the archive did not answer within {_ANSWER_SECONDS:g} s") from error
