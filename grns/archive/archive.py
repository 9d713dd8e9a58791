"""Archives: files of JSON lines, each with a manifest that says what is in it."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import secrets
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from grns.errors import ConflictError, NotFoundError
from grns.model.envelope import rfc3339
from grns.runtime.place import FilePlace, PlaceCalls

TASKS, EVENTS, MAIL = "tasks", "events", "mail"
KINDS = TASKS, EVENTS, MAIL
_FORMAT = 1
_LINES, _MANIFEST = ".jsonl.gz", ".json"
_NAME = re.compile(rf"({'|'.join(KINDS)})/[0-9-]+/[0-9a-z-]+~[0-9a-z-]+~[0-9a-f-]+")
in_thread = PlaceCalls("archive", most=16, most_late=1)
_GZIP_LEVEL = 6


@dataclass(frozen=True, slots=True)
class Archive:
    """What a manifest says of its file: which rows it has, from which to which, and their sha256."""

    name: str
    kind: str  # one of KINDS
    rows: int
    workspaces: dict[str, int]  # rows of each
    first: str  # key of a row
    last: str
    first_at: datetime
    last_at: datetime
    written_at: datetime
    size: int  # of the file, in bytes
    sha256: str  # of its lines, whatever has compressed them
    format: int = _FORMAT

    @property
    def path(self) -> str:
        """The name of its file."""
        return f"{self.name}{_LINES}"


@dataclass(frozen=True, slots=True)
class ArchivedRow:
    """One line of an archive: a JSON document, with what it is found by."""

    workspace: str
    key: str  # id of a task, number in the log, or number of a message
    at: datetime
    text: str


async def write(place: FilePlace, kind: str, rows: Sequence[ArchivedRow], name: str | None = None) -> Archive:
    """Write rows to a new archive; when it returns, both files survive a power cut.

    The manifest is written last: what has none is not an archive, and is written again. By default the name
    is one of its own: the day, the first and the last key, and digits by chance.

    Raises:
        UnavailableError: the place cannot be reached, is full, or does not answer within a minute.
    """
    own = f"{kind}/{datetime.now(UTC):%Y-%m-%d}/{rows[0].key}~{rows[-1].key}~{secrets.token_hex(4)}"
    return await in_thread(_write, place, name or own, kind, rows)


def _write(place: FilePlace, name: str, kind: str, rows: Sequence[ArchivedRow]) -> Archive:
    # A column of the type json is as it was written: it may have newlines, between its values.
    text = "".join(f"{row.text.replace(chr(10), ' ')}\n" for row in rows).encode()
    content = gzip.compress(text, _GZIP_LEVEL, mtime=0)
    archive = Archive(
        name=name, kind=kind, rows=len(rows), workspaces=dict(Counter(row.workspace for row in rows)),
        first=rows[0].key, last=rows[-1].key,
        first_at=min(row.at for row in rows), last_at=max(row.at for row in rows),
        written_at=datetime.now(UTC), size=len(content), sha256=hashlib.sha256(text).hexdigest(),
    )  # fmt: skip
    place.write(archive.path, content)
    place.write(f"{name}{_MANIFEST}", f"{json.dumps(_document(archive))}\n".encode())
    return archive


def _document(archive: Archive) -> dict[str, Any]:
    return {
        name: rfc3339(value) if isinstance(value, datetime) else value
        for name, value in asdict(archive).items()
    }


async def names(place: FilePlace, folder: str) -> list[str]:
    """Return the names of all archives in a folder, such as `tasks`, the latest first."""
    found = await in_thread(place.names, folder)
    said = [name.removesuffix(_MANIFEST) for name in found if name.endswith(_MANIFEST)]
    return sorted((name for name in said if _NAME.fullmatch(name)), reverse=True)


def span_of(name: str) -> tuple[str, str, str]:
    """Return from where to where an archive goes, by its name, and what tells it from others."""
    first, last, mark = name.rpartition("/")[2].split("~")
    return first, last, mark


async def read_manifest(place: FilePlace, name: str) -> Archive:
    """Return what the manifest of an archive says.

    Raises:
        NotFoundError: no archive has this name.
        ConflictError: the file is not a manifest, or another version of grns wrote it.
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


async def read_lines(place: FilePlace, archive: Archive) -> list[str]:
    """Return the lines of an archive, in their order.

    Raises:
        ConflictError: the file is not what its manifest says.
    """
    return await in_thread(_read_lines, place, archive)


def _read_lines(place: FilePlace, archive: Archive) -> list[str]:
    try:
        text = gzip.decompress(place.read(archive.path))
    except (OSError, EOFError, zlib.error) as error:
        raise ConflictError(f"{archive.path} is damaged: {error}") from error
    if hashlib.sha256(text).hexdigest() != archive.sha256:
        raise ConflictError(f"{archive.path} is damaged: its sha256 is not that of its manifest")
    # Not splitlines(): JSON may have U+2028 and its like within a string.
    return [line for line in text.decode().split("\n") if line]
