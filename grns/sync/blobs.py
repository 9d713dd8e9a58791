"""Blobs, of synchronous applications."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grns.model.blob import Blob, BlobState
from grns.postgres.paging import Page

if TYPE_CHECKING:
    from grns.sync.client import SyncClient


@dataclass(frozen=True, slots=True)
class SyncBlobs:
    """Put, read and list blobs: the methods of `grns.Client.blobs`, without `await`."""

    _client: SyncClient

    def put(self, content: bytes | bytearray | memoryview | Path, *, media_type: str | None = None) -> Blob:
        """Keep bytes, and return the reference to them: see `Blobs.put`."""
        return self._client.ask(lambda client: client.blobs.put(content, media_type=media_type))

    def get(self, blob: Mapping[str, Any] | str) -> bytes:
        """Return the bytes of a blob: see `Blobs.get`."""
        return self._client.ask(lambda client: client.blobs.get(blob))

    def state(self, blob: Mapping[str, Any] | str) -> BlobState:
        """Return what is known of a blob. Raises NotFoundError."""
        return self._client.ask(lambda client: client.blobs.state(blob))

    def list(self, **options: Any) -> Page[BlobState]:
        """Return a page of blobs; options are those of `Blobs.list`."""
        return self._client.ask(lambda client: client.blobs.list(**options))
