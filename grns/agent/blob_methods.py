"""How an HTTP worker keeps and reads bytes that payloads and results refer to."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grns.errors import OutcomeUnknownError
from grns.model.blob import BLOB, Blob, digest_of

if TYPE_CHECKING:
    from grns.agent.http import AgentHttp

_SECONDS = 120.0


class BlobMethods:
    """The methods of `AgentClient` for blobs."""

    _http: AgentHttp

    async def put_blob(self, content: bytes | Path, *, media_type: str | None = None) -> Blob:
        """Keep bytes, and return the reference to them. The same bytes are kept once.

        Put the reference into a result, and the blob is kept as long as that is. You can repeat the call.

        Args:
            content: the bytes, or the path of a file; at most 64 MiB.
            media_type: such as `image/png`.

        Raises:
            InvalidInputError: `too_large`, or `bad_blob`: the media type is none.
            RateLimitedError: the blobs of the workspace would have more bytes together than it may.

        Example:
            task.result = {"picture": await client.put_blob(Path("out.png"), media_type="image/png")}
        """
        if isinstance(content, Path):
            content = await asyncio.to_thread(content.read_bytes)
        said = await self._http.post_bytes(
            "/blobs", content, media_type or "application/octet-stream", seconds=_SECONDS
        )
        if not isinstance(said, dict) or BLOB not in said:
            raise OutcomeUnknownError("the API's answer is not as grns answers")
        return Blob.of(said)

    async def get_blob(self, blob: Mapping[str, Any] | str) -> bytes:
        """Return the bytes of a blob.

        Args:
            blob: the reference, as it stands in a payload, or the id.

        Raises:
            NotFoundError: there is no such blob in this workspace.

        Example:
            picture = await client.get_blob(task.payload["picture"])
        """
        return await self._http.get_bytes(f"/blobs/sha256-{digest_of(blob)}", seconds=_SECONDS)
