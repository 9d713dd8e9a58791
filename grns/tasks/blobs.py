"""Blobs: keep bytes, read and list them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from grns.errors import InvalidInputError, NotFoundError
from grns.model.blob import (
    BLOB,
    JSON_TYPE,
    Blob,
    BlobState,
    as_document,
    digest_of,
    stands_for_document,
)
from grns.model.json import loads_stored
from grns.postgres.database import Database, Session
from grns.postgres.paging import Page, cursor, page_of, place

PART_BYTES = 1024 * 1024
"""How many bytes are read at once."""


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

        Example:
            report = await client.blobs.put(Path("report.pdf"), media_type="application/pdf")
            await client.submit(send_report, {"report": report})
        """
        limits = self._database.blob_limits
        if isinstance(content, Path):
            content = await asyncio.to_thread(content.read_bytes)
        if len(content) > limits.most_bytes:
            raise InvalidInputError("too_large", f"a blob has up to {limits.most_bytes} bytes")
        found = (await asyncio.to_thread(hashlib.sha256, content)).hexdigest()
        if digest is not None and digest != found:
            raise InvalidInputError("wrong_digest", f"the sha256 of these bytes is {found}")
        if rows := await self._database.run("touch_blob", self._workspace, found):
            said = {BLOB: f"sha256-{found}", "size": rows[0]["size"], "type": rows[0]["media_type"]}
            return Blob({name: value for name, value in said.items() if value is not None})
        (row,) = await self._database.run(
            "put_blob",
            content,
            media_type,
            self._workspace,
            limits.most_bytes,
            limits.most_bytes_of_workspace,
        )
        return Blob.of(loads_stored(row["ref"]))

    async def get(self, blob: Mapping[str, Any] | str) -> bytes:
        """Return the bytes of a blob.

        Args:
            blob: the reference, as it stands in a payload, or the id.

        Raises:
            NotFoundError: there is no such blob in this workspace.

        Example:
            picture = await ctx.client.blobs.get(ctx.payload["picture"])
        """
        return b"".join([part async for part in self.read(blob)])

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
        while part := await self.part(blob, start, PART_BYTES if length is None else min(PART_BYTES, length)):
            yield part
            start += len(part)
            length = None if length is None else length - len(part)

    async def part(self, blob: Mapping[str, Any] | str, start: int, length: int) -> bytes:
        """Return up to so many bytes of a blob, from a byte on; none behind its end. Raises NotFoundError."""
        digest = digest_of(blob)
        rows = await self._database.run("read_blob", self._workspace, digest, start, length)
        if not rows:
            raise self._missing(digest)
        part: bytes = rows[0]["part"]
        return part

    async def put_document(self, body: bytes) -> Blob:
        """Keep a JSON document, and return the reference that stands for it. Errors are those of `put`."""
        return as_document(await self.put(body, media_type=JSON_TYPE))

    async def document(self, value: Any) -> Any:
        """Return a JSON value, or, if it is a reference that stands for a document, that.

        Raises:
            NotFoundError: there is no such blob in this workspace.

        Example:
            result = await client.blobs.document((await client.get(task_id)).result)
        """
        return loads_stored((await self.get(value)).decode()) if stands_for_document(value) else value

    async def size(self, blob: Mapping[str, Any] | str) -> tuple[int, str | None]:
        """Return the size of a blob in bytes, and its media type. Raises NotFoundError."""
        digest = digest_of(blob)
        rows = await self._database.run("stat_blob", self._workspace, digest)
        if not rows:
            raise self._missing(digest)
        return rows[0]["size"], rows[0]["media_type"]

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
