"""Blobs: keep bytes, read and list them."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grns.errors import (
    GrnsError,
    InvalidInputError,
    NotFoundError,
    OutcomeUnknownError,
    UnavailableError,
    UnusableError,
)
from grns.model.blob import (
    BLOB,
    JSON_TYPE,
    Blob,
    BlobRules,
    BlobState,
    KeptBlob,
    as_document,
    digest_of,
    kept_by,
    parse_document,
    stands_for_document,
)
from grns.model.json import loads_stored
from grns.postgres.database import Database, Session
from grns.postgres.paging import Page, cursor, page_of, place
from grns.runtime.place import PlaceCalls

PART_BYTES = 1024 * 1024
"""How many bytes are read at once."""
IN_POSTGRES_BYTES = 64 * 1024
"""Blobs up to this size are in Postgres, also where there is a blob store."""
_in_store = PlaceCalls("blob store", most=32, most_late=8)
_LEAST_BYTES_PER_SECOND = 256 * 1024


@dataclass(frozen=True, slots=True)
class Upload:
    """Bytes to keep: in Postgres, or already in the blob store, as `object`."""

    digest: str
    content: bytes
    media_type: str | None
    object: str | None


class Blobs:
    """Blobs of one workspace: `client.blobs`."""

    def __init__(self, database: Database | Session, workspace: str) -> None:
        self._database = database
        self._workspace = workspace

    async def put(
        self,
        content: bytes | bytearray | memoryview | Path,
        *,
        media_type: str | None = None,
        digest: str | None = None,
    ) -> Blob:
        """Keep bytes, and return the reference to them. The same bytes are kept once.

        Put the reference into a payload, a result, a step or a message, and the blob is kept as long as that
        is. A blob that nothing refers to is deleted after a day.

        Args:
            content: the bytes, or the path of a file; at most 64 MiB (`GRNS_BLOB_MAX_BYTES`).
            media_type: such as `image/png`.
            digest: sha256 that the bytes must have, in hex.

        Raises:
            InvalidInputError: `too_large`; `wrong_digest`; `bad_blob`: the media type is none.
            RateLimitedError: the blobs of the workspace would have more than 1 GiB together
                (`GRNS_BLOBS_MAX_BYTES`).
            UnavailableError: the blob store cannot be reached (`GRNS_BLOB_STORE`).

        Example:
            report = await client.blobs.put(Path("report.pdf"), media_type="application/pdf")
            await client.submit(send_report, {"report": report})
        """
        return await self.keep(await self.upload(content, media_type=media_type, digest=digest))

    async def upload(
        self,
        content: bytes | bytearray | memoryview | Path,
        *,
        media_type: str | None = None,
        digest: str | None = None,
    ) -> Upload:
        """Write large bytes to the blob store, if there is one; `keep` makes a blob of them.

        Errors are those of `put`. The name of an object is noted before it is written: whatever happens then,
        the janitor deletes what no blob has in the end.
        """
        rules = self._database.blob_rules
        body, found = await asyncio.to_thread(_read, content, rules.most_bytes)
        if digest is not None and digest != found:
            raise InvalidInputError("wrong_digest", f"the sha256 of these bytes is {found}")
        upload = Upload(found, body, media_type, None)
        if (
            rules.place is None
            or len(body) <= IN_POSTGRES_BYTES
            or isinstance(self._database, Session)  # whose transaction would take the note with it
            or await self._database.run("stat_blob", self._workspace, found)
        ):
            return upload
        name = f"{self._workspace}/{found[:2]}/{found}-{secrets.token_hex(8)}"
        await self._database.run(
            "note_object", name, self._workspace, len(body), media_type, rules.most_bytes_of_workspace
        )
        try:
            await _in_store.within(60.0 + len(body) / _LEAST_BYTES_PER_SECOND, rules.place.write, name, body)
        except GrnsError:
            await self._give_up(name)
            raise
        return replace(upload, object=name)

    async def keep(self, upload: Upload) -> Blob:
        """Keep what was uploaded, and return the reference to it. Errors are those of `put`."""
        most = self._database.blob_rules.most_bytes_of_workspace
        if upload.object is None:
            if rows := await self._database.run("touch_blob", self._workspace, upload.digest):
                said = {
                    BLOB: f"sha256-{upload.digest}",
                    "size": rows[0]["size"],
                    "type": rows[0]["media_type"],
                }
                return Blob({name: value for name, value in said.items() if value is not None})
            (row,) = await self._database.run(
                "put_blob", upload.content, upload.media_type, self._workspace,
                self._database.blob_rules.most_bytes, most,
            )  # fmt: skip
            return Blob.of(loads_stored(row["ref"]))
        try:
            (row,) = await self._database.run(
                "keep_object", self._workspace, upload.digest, len(upload.content), upload.media_type,
                upload.object, most,
            )  # fmt: skip
        except OutcomeUnknownError:  # it may be kept
            raise
        except GrnsError:
            await self._give_up(upload.object)
            raise
        return Blob.of(loads_stored(row["ref"]))

    async def _give_up(self, name: str) -> None:
        with suppress(GrnsError):  # after a day it is given up by the janitor
            await self._database.run("doom_object", name)

    async def get(self, blob: Mapping[str, Any] | str) -> bytes:
        """Return the bytes of a blob.

        Args:
            blob: the reference, as it stands in a payload, or the id.

        Raises:
            NotFoundError: there is no such blob in this workspace.

        Example:
            picture = await ctx.client.blobs.get(ctx.payload["picture"])
        """
        kept = await self.find(blob)
        content = b"".join([part async for part in self._parts(kept, 0, kept.size)])
        if kept.object is not None and await asyncio.to_thread(_digest, content) != kept.sha256:
            raise NotFoundError(f"the bytes of blob sha256-{kept.sha256} in the blob store are damaged")
        return content

    async def read(
        self, blob: Mapping[str, Any] | str, *, start: int = 0, length: int | None = None
    ) -> AsyncIterator[bytes]:
        """Read a blob in parts of up to 1 MiB, from a byte on: for those that do not fit into memory.

        Raises:
            NotFoundError: there is no such blob in this workspace.

        Example:
            async for part in client.blobs.read(blob):
                file.write(part)
        """
        kept = await self.find(blob)
        end = kept.size if length is None else min(kept.size, start + length)
        async for part in self._parts(kept, start, end):
            yield part

    async def _parts(self, kept: KeptBlob, start: int, end: int) -> AsyncIterator[bytes]:
        while start < end:
            part = await self.part(kept, start, min(PART_BYTES, end - start))
            yield part
            start += len(part)

    async def find(self, blob: Mapping[str, Any] | str) -> KeptBlob:
        """Return where a blob is. Raises NotFoundError."""
        digest = digest_of(blob)
        found = await self._database.fetch(KeptBlob, "stat_blob", self._workspace, digest)
        if not found:
            raise self._missing(digest)
        return found[0]

    async def part(self, kept: KeptBlob, start: int, length: int) -> bytes:
        """Return up to so many bytes of a blob, from one on that it has.

        Raises:
            NotFoundError: its bytes are not there any more.
            UnusableError: they are in a blob store, and GRNS_BLOB_STORE does not name it here.
        """
        if kept.object is not None:
            return await read_object(self._database.blob_rules, kept.object, start, length)
        rows = await self._database.run("read_blob", self._workspace, kept.sha256, start, length)
        if not rows:
            raise self._missing(kept.sha256)
        part: bytes = rows[0]["part"]
        return part

    async def put_document(self, text: str) -> Blob:
        """Keep a JSON document, and return the reference that stands for it. It keeps what that refers to.

        Raises:
            InvalidInputError: `too_many_blobs`; other errors are those of `put`.
        """
        kept = await asyncio.to_thread(kept_by, text)  # it may take a while, and others share this loop
        return as_document(await self.put(text.encode(), media_type=JSON_TYPE), kept)

    async def document(self, value: Any) -> Any:
        """Return a JSON value, or, if it is a reference that stands for a document, that.

        Raises:
            NotFoundError: there is no such blob in this workspace.
            InvalidInputError: `bad_document`: it is not a JSON document.

        Example:
            result = await client.blobs.document((await client.get(task_id)).result)
        """
        if not stands_for_document(value):
            return value
        body = await self.get(value)
        return await asyncio.to_thread(parse_document, body, value[BLOB])

    async def state(self, blob: Mapping[str, Any] | str) -> BlobState:
        """Return what is known of a blob. Raises NotFoundError."""
        digest = digest_of(blob)
        found = await self._database.fetch(BlobState, "list_blobs", self._workspace, digest, None, None, 1)
        if not found:
            raise self._missing(digest)
        return found[0]

    async def list(self, *, limit: int = 50, after: str | None = None) -> Page[BlobState]:
        """Return a page of the blobs of the workspace, the latest first.

        Args:
            limit: 1 to 1,000.
            after: `next_cursor` of the page before.
        """
        if not 1 <= limit <= 1000:
            raise InvalidInputError("bad_limit", "limit is 1 to 1,000")
        at, last = (None, None) if after is None else place(after)
        found = await self._database.fetch(
            BlobState, "list_blobs", self._workspace, None, at, last, limit + 1
        )
        return page_of(found, limit, lambda one: cursor(one.created_at, digest_of(one.id)))

    def _missing(self, digest: str) -> NotFoundError:
        return NotFoundError(f"there is no blob sha256-{digest} in workspace {self._workspace}")


async def read_object(rules: BlobRules, name: str, start: int, length: int) -> bytes:
    """Return a part of an object of the blob store. Errors are those of `Blobs.part`."""
    if rules.place is None:
        raise UnusableError(
            "the bytes of this blob are in a blob store: GRNS_BLOB_STORE has to name it here, too"
        )
    part = await _in_store(rules.place.read_part, name, start, length)
    if len(part) != length:
        raise NotFoundError(f"{name} in the blob store is shorter than its blob")
    return part


async def delete_objects(database: Database, limit: int) -> int:
    """Delete some objects of the blob store that no blob has; returns how many.

    Raises:
        UnavailableError: the store cannot be reached, or refuses.
        UnusableError: there are some, and GRNS_BLOB_STORE does not name the store here.
    """
    place = database.blob_rules.place
    if place is not None:
        await database.run("doom_old_objects")
    names = [row["object"] for row in await database.run("read_doomed_objects", limit)]
    if names and place is None:
        raise UnusableError(
            "there are objects to delete: GRNS_BLOB_STORE has to name the blob store here, too"
        )
    failed: UnavailableError | None = None
    for name in names:
        try:
            if place is not None:
                await _in_store(place.delete, name)
        except UnavailableError as error:
            await database.run("postpone_object", name)
            if failed is not None:
                raise
            failed = error
        else:
            await database.run("forget_object", name)
    if failed is not None:
        raise failed
    return len(names)


def _read(content: bytes | bytearray | memoryview | Path, most_bytes: int) -> tuple[bytes, str]:
    """Return bytes, and their sha256. It blocks."""
    body = content.read_bytes() if isinstance(content, Path) else bytes(content)
    if len(body) > most_bytes:
        raise InvalidInputError("too_large", f"a blob has up to {most_bytes} bytes")
    return body, _digest(body)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


async def read_result(database: Database | Session, text: str | None, workspace: str) -> Any:
    """Return a stored result: the document of its blob, and with its secrets.

    Raises:
        NotFoundError: its blob is not there any more.
        SealedError: its secrets cannot be opened here.
    """
    result = loads_stored(text)
    if stands_for_document(result):  # secrets are never in blobs: what looks like one there is none of ours
        return await Blobs(database, workspace).document(result)
    return database.vault.open(result, workspace)
