"""Blobs: bytes that a document refers to by their sha256."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from grns.errors import InvalidInputError
from grns.model.json import Limits, loads_stored

BLOB = "$blob"
JSON_TYPE = "application/json"
# Tells that a reference stands for the document that is in the blob.
_STANDS_FOR = "is_document"
_SIGN = f'"{BLOB}"'
_IS_PART = "is_part"
_KEEPS = "keeps"
_ID = re.compile(r"sha256-[0-9a-f]{64}")
# Also one that does not end: whatever a blob has, each of its bytes is looked at once.
_TEXT = re.compile(rb'"[^"\\]*+(?:\\(?s:.)[^"\\]*+)*+(?:"|\\?\Z)')
MOST_VALUES = 1_000_000
"""How many JSON values a document may have that is kept as a blob."""
MOST_KEPT = 2500
"""How many blobs such a document may refer to: about as many as a short one can."""


class Blob(dict[str, Any]):
    """A reference to a blob, for payloads, results and messages: a JSON object.

    Example:
        {"$blob": "sha256-9f86d0…", "size": 1048576, "type": "image/png"}
    """

    @classmethod
    def of(cls, said: Any) -> Blob:
        """Return the reference that a JSON object is. Raises InvalidInputError: `bad_blob`."""
        if not isinstance(said, Mapping):
            raise InvalidInputError("bad_blob", 'a blob is {"$blob": "sha256-…"}, as `blobs.put` returns it')
        digest_of(said)
        return cls(said)

    @property
    def id(self) -> str:
        """`sha256-`, and 64 hex digits."""
        return str(self[BLOB])

    @property
    def size(self) -> int | None:
        """Size in bytes; None where the reference does not say it."""
        return self.get("size")

    @property
    def media_type(self) -> str | None:
        """Media type, such as `image/png`; None where the reference does not say it."""
        return self.get("type")

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> Any:
        """Let a field of a pydantic model be a blob."""
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(_checked, core_schema.dict_schema())


def _checked(said: dict[str, Any]) -> Blob:
    try:
        return Blob.of(said)
    except InvalidInputError as error:
        raise ValueError(str(error)) from error


@dataclass(frozen=True, slots=True)
class BlobState:
    """A blob that is kept.

    Attributes:
        id: `sha256-`, and 64 hex digits.
        size: its bytes.
        media_type: as who put it first has said; None: unsaid.
        created_at: when it was put first.
        used_at: when it was put last.
        references: how many tasks, messages and schedules refer to it, up to 1,000. Without one it is
            deleted a day after `used_at`.
    """

    id: str
    size: int
    media_type: str | None
    created_at: datetime
    used_at: datetime
    references: int


class BlobPlace(Protocol):
    """Keeps files by name. Its methods block: call them in a thread."""

    def write(self, name: str, content: bytes) -> None:
        """Keep a file, whole or not at all."""

    def read_part(self, name: str, start: int, length: int) -> bytes:
        """Return up to so many bytes of a file, from one on that it has; raises `NotFoundError`."""

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""


@dataclass(frozen=True, slots=True)
class KeptBlob:
    """Where a blob is: in Postgres, or in the place of blobs, under the name `object`."""

    sha256: str
    size: int
    media_type: str | None
    object: str | None


@dataclass(frozen=True, slots=True)
class BlobRules:
    """How large one blob may be, and all of a workspace together, in bytes; and where large ones are kept.

    Without a `place`, all are in Postgres.
    """

    most_bytes: int = 64 * 1024**2
    most_bytes_of_workspace: int = 1024**3
    place: BlobPlace | None = None

    @property
    def document(self) -> Limits:
        """Limits of a JSON document that is kept as a blob."""
        return Limits(document_bytes=self.most_bytes, nodes=MOST_VALUES)


def as_document(blob: Blob, kept: Sequence[Blob] = ()) -> Blob:
    """Return the reference that stands for the JSON document in a blob, and keeps what that refers to."""
    keeps = {_KEEPS: [{BLOB: one.id} for one in kept]} if kept else {}
    return Blob({**blob, _STANDS_FOR: True, **keeps})


def kept_by(text: str) -> list[Blob]:
    """Return the blobs that a JSON document refers to.

    Raises:
        InvalidInputError: `too_many_blobs`: there are more than MOST_KEPT.
    """
    found = blobs_in(loads_stored(text)) if _SIGN in text else []
    if len(found) > MOST_KEPT:
        raise InvalidInputError(
            "too_many_blobs", f"a document that is kept as a blob refers to up to {MOST_KEPT:,} others"
        )
    return found


def stands_for_document(value: Any) -> bool:
    """Say whether a value is a reference that stands for the document in its blob."""
    return (
        isinstance(value, dict)
        and value.get(_STANDS_FOR) is True
        and isinstance(value.get(BLOB), str)
        and _ID.fullmatch(value[BLOB]) is not None
    )


def as_part(blob: Blob) -> Blob:
    """Return the reference to a part of a payload: handlers get what is in it, and never the reference."""
    return Blob({**as_document(blob), _IS_PART: True})


def is_part(value: Any) -> bool:
    """Say whether a value is the reference to a part of a payload."""
    return stands_for_document(value) and value.get(_IS_PART) is True


async def with_documents(value: Any, read: Callable[[Any], Awaitable[bytes]], most_bytes: int) -> Any:
    """Return a payload with its parts in place of the references to them; each blob is read once.

    Raises:
        InvalidInputError: `too_large`: they have more bytes together; `bad_document`: one is not JSON.
    """
    known: dict[str, tuple[int, Any]] = {}
    left = most_bytes
    too_large = InvalidInputError("too_large", f"its documents have more than {most_bytes} bytes together")

    async def resolved(inner: Any) -> Any:
        nonlocal left
        if is_part(inner):
            digest = inner[BLOB]
            if digest not in known:
                body = await read(inner)
                if len(body) > left:
                    raise too_large
                known[digest] = len(body), await asyncio.to_thread(parse_document, body, digest)
            size, document = known[digest]
            left -= size
            if left < 0:
                raise too_large
            return document
        if isinstance(inner, dict):
            return {name: await resolved(member) for name, member in inner.items()}
        return [await resolved(member) for member in inner] if isinstance(inner, list) else inner

    return await resolved(value)


def parse_document(body: bytes, name: str) -> Any:
    """Return the JSON document in a blob, which anyone who submits may have put. It may take a while.

    Raises:
        InvalidInputError: `bad_document`: it is not JSON, or has more values than memory should.
    """
    if _signs(body) > 2 * MOST_VALUES and _signs(_TEXT.sub(b"", body)) > 2 * MOST_VALUES:
        raise InvalidInputError("bad_document", f"blob {name} has more than {MOST_VALUES:,} JSON values")
    try:
        return loads_stored(body.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidInputError("bad_document", f"blob {name} is not a JSON document") from error


def _signs(body: bytes) -> int:
    """Return how many of these are there: outside of texts, two for each value at most."""
    return sum(body.count(sign) for sign in (b",", b"[", b"{"))


def check_patch(target: Any, patch: Any) -> None:
    """Refuse a merge patch that would change a document which is kept as a blob: handlers get that as it is.

    Raises:
        InvalidInputError: `bad_edit` names the member.
    """
    if isinstance(target, dict) and isinstance(patch, dict):
        for name, change in patch.items():
            if isinstance(change, dict) and is_part(target.get(name)):
                raise InvalidInputError(
                    "bad_edit", f"{name} is kept as a blob: pass the whole payload, or no object"
                )
            check_patch(target.get(name), change)


def digest_of(blob: Mapping[str, Any] | str) -> str:
    """Return the 64 hex digits of a reference or an id. Raises InvalidInputError: `bad_blob`."""
    said = blob if isinstance(blob, str) else blob.get(BLOB)
    if not isinstance(said, str) or _ID.fullmatch(said) is None:
        raise InvalidInputError("bad_blob", "the id of a blob is sha256- and 64 hex digits")
    return said.removeprefix("sha256-")


def blobs_in(document: Any) -> list[Blob]:
    """Return the references in a document, in order, each blob once."""
    found: dict[str, Blob] = {}
    pending = [document]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            said = value.get(BLOB)
            if isinstance(said, str) and _ID.fullmatch(said):
                found.setdefault(said, Blob(value))
            pending += reversed(value.values())
        elif isinstance(value, list):
            pending += reversed(value)
    return list(found.values())
