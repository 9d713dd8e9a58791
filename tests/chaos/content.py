"""Blobs and secrets in the storm: results that refer to blobs, payloads with a sealed password."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import asyncpg

import grns
from grns.errors import GrnsError

FILES, SECRETS = 13, 11
"""Of so many tasks one returns a file, and one has a password."""
_WORD = "-of-the-storm"
_FILES = """
    select t.id, t.result ->> 'attempt' as attempt, convert_from(b.content, 'utf8') as content,
        exists (select from grns.blob_refs r where r.owner = t.id and r.sha256 = b.sha256) as is_referred_to
    from grns.tasks t
    left join grns.blobs b
        on b.workspace = t.workspace and 'sha256-' || b.sha256 = t.result -> 'file' ->> '$blob'
    where t.result -> 'file' ->> '$blob' is not null
"""
_CLEAR = f"select id from grns.tasks where payload::text like '%{_WORD}%'"
_SEALED = "select count(*) from grns.tasks where payload ? 'password'"


def password_of(number: int) -> str:
    """Return the password of a task."""
    return f"{number}{_WORD}"


async def returned_file(task: grns.Context) -> grns.Blob | None:
    """Keep what this attempt has done as a blob; None where Postgres is away."""
    with suppress(GrnsError):
        return await task.client.blobs.put(f"{task.id} {task.attempt}".encode())
    return None


class Content:
    """What became of files and passwords."""

    def __init__(self) -> None:
        self.files: list[dict[str, Any]] = []
        self.sealed = 0
        self._clear: list[str] = []

    async def read(self, connection: asyncpg.Connection) -> None:
        """Read the tables."""
        self.files = [dict(row) for row in await connection.fetch(_FILES)]
        self._clear = [row["id"] for row in await connection.fetch(_CLEAR)]
        self.sealed = await connection.fetchval(_SEALED)

    def judge(self) -> Iterator[str]:
        """Say which files are lost or another attempt's, and which passwords are readable."""
        for row in self.files:
            if row["content"] != f"{row['id']} {row['attempt']}" or not row["is_referred_to"]:
                yield f"{row['id']}: the file of attempt {row['attempt']} is {row['content']!r}"
        for task_id in self._clear:
            yield f"{task_id}: its password can be read"
