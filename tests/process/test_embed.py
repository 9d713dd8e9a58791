"""The pool that keeps texts as vectors: kept once, replaced, found again, each workspace its own."""

from __future__ import annotations

import asyncio
import json
import math
import re
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import grns
from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.support.harness import Fleet
from tests.support.store import fetch

LIMIT_SECONDS = 30
NOTES = {
    "refunds": "customers get their money back within thirty days",
    "hours": "the shop is open from nine to six",
    "bread": "rye bread takes an hour in the oven",
}


def vector(text: str) -> list[float]:
    """Return how often words of a text fall in each of 64 places: alike for texts with the same words."""
    places = [0.0] * 64
    for word in re.findall("[a-z]+", text.lower()):
        places[zlib.crc32(word.encode()) % 64] += 3.0
    return places


class Words:
    """An endpoint as those of embedding models are: it refuses what has no key, and fails now and then."""

    def __init__(self) -> None:
        self.failures = 0
        self.asked: list[dict[str, Any]] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            assert length is not None
            body = json.loads(await reader.readexactly(int(length[1])))
            status, said = self._said(head, body)
            text = json.dumps(said).encode()
            writer.write(b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n%s" % (status, len(text), text))
            await writer.drain()

    def _said(self, head: bytes, body: dict[str, Any]) -> tuple[int, Any]:
        if b"Bearer sesame" not in head:
            return 401, {}
        if self.failures:
            self.failures -= 1
            return 503, {}
        self.asked.append(body)
        found = [{"index": place, "embedding": vector(text)} for place, text in enumerate(body["input"])]
        return 200, {"data": found[::-1]}


@asynccontextmanager
async def listening(words: Words) -> AsyncIterator[str]:
    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await words.answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(served, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/embeddings"


async def ended(client: grns.Client, task: str, payload: dict[str, Any], **options: Any) -> Any:
    handle = await client.submit(task, payload, pool="embed", **options)
    return await handle.result(timeout=LIMIT_SECONDS)


@pytest.mark.usefixtures("in_environment")
@pytest.mark.parametrize("has_vector", [False, True])
async def test_texts_are_kept_and_found(
    fleet: Fleet, database: Database, broker: LocalNats, has_vector: bool
) -> None:
    words = Words()
    if has_vector:
        await fetch(database, "create extension vector")
    async with listening(words) as url, grns.connect() as client:
        fleet.start("server")
        fleet.start(
            "worker", "start", "workers.embed:pool",
            GRNS_EMBED_URL=url, GRNS_EMBED_MODEL="words", GRNS_EMBED_API_KEY="sesame",
        )  # fmt: skip
        words.failures = 1
        items = [{"id": name, "text": text, "kind": "note"} for name, text in NOTES.items()]
        assert await ended(client, "embed_texts", {"items": items}) == 3
        (row,) = await fetch(database, "select count(*) as n, min(model) as model from grns_embeddings")
        assert (row["n"], row["model"]) == (3, "words")
        (row,) = await fetch(
            database, "select pg_typeof(embedding)::text as type from grns_embeddings limit 1"
        )
        assert row["type"] == ("vector" if has_vector else "real[]")
        (row,) = await fetch(
            database, "select embedding::real[] as embedding from grns_embeddings where id = 'bread'"
        )
        assert math.isclose(math.hypot(*row["embedding"]), 1.0, rel_tol=1e-5)

        found = await ended(client, "search_texts", {"text": "is the shop open", "limit": 2})
        assert (found[0]["id"], found[0]["text"], len(found)) == ("hours", NOTES["hours"], 2)
        assert 1.0 > found[0]["score"] > found[1]["score"]
        assert await ended(client, "search_texts", {"text": "bread", "kind": "page"}) == []

        again = [{"id": "hours", "text": "closed on Mondays", "kind": "note"}]
        assert await ended(client, "embed_texts", {"items": again}) == 1
        found = await ended(client, "search_texts", {"text": "closed on Mondays"})
        assert (found[0]["id"], len(found)) == ("hours", 3)
        assert math.isclose(found[0]["score"], 1.0, rel_tol=1e-5)

        page = await client.submit("search_texts", {"text": "customers money back", "limit": 1}, pool="embed")
        kept = await ended(client, "embed_results", {"kind": "found"}, needs=[grns.after(page, name="page")])
        assert kept == 1
        (row,) = await fetch(database, "select id, text from grns_embeddings where kind = 'found'")
        assert row["id"] == "page"
        assert "money back" in row["text"]


@pytest.mark.usefixtures("in_environment")
async def test_what_the_endpoint_refuses_fails(fleet: Fleet) -> None:
    async with listening(Words()) as url, grns.connect() as client:
        fleet.start("server")
        fleet.start("worker", "start", "workers.embed:pool", GRNS_EMBED_URL=url, GRNS_EMBED_MODEL="words")
        handle = await client.submit("search_texts", {"text": "x"}, pool="embed")
        with pytest.raises(grns.TaskFailedError, match="401"):
            await handle.result(timeout=LIMIT_SECONDS)
