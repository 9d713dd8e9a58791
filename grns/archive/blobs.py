"""Archived blobs: a file of the bytes for each, by workspace and sha256."""

from __future__ import annotations

import hashlib
import json

from grns.archive.archive import in_thread
from grns.errors import NotFoundError
from grns.postgres.database import Database
from grns.runtime.place import FilePlace

_ANY_SIZE = 2**62  # it had room before


def _names(workspace: str, digest: str) -> tuple[str, str]:
    return f"blobs/{workspace}/{digest}", f"blobs/{workspace}/{digest}.type"


def write_blob(place: FilePlace, workspace: str, digest: str, content: bytes, media_type: str | None) -> None:
    """Write a blob to the archive; writing it again does no harm. It blocks."""
    name, type_name = _names(workspace, digest)
    place.write(type_name, json.dumps(media_type).encode())
    place.write(name, content)


async def restore_blobs(database: Database, place: FilePlace, workspace: str, digests: list[str]) -> set[str]:
    """Put blobs that are not there any more back, and return those of which the archive has no sound copy."""
    missing = set()
    there = {row["sha256"] for row in await database.run("keep_blobs", workspace, digests)}
    for digest in set(digests) - there:
        name, type_name = _names(workspace, digest)
        try:
            content = await in_thread(place.read, name)
            media_type = json.loads(await in_thread(place.read, type_name))
        except NotFoundError:
            missing.add(digest)
            continue
        if hashlib.sha256(content).hexdigest() != digest:  # damaged
            missing.add(digest)
            continue
        await database.run("put_blob", content, media_type, workspace, len(content), _ANY_SIZE)
    return missing
