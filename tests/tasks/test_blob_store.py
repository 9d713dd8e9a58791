"""Large blobs outside of Postgres: each is one object, whatever dies, and none is left behind or lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from grns.api.route import PREFIX
from grns.client.client import Client
from grns.errors import (
    ConflictError,
    ContendedError,
    InvalidInputError,
    NotFoundError,
    RateLimitedError,
    UnavailableError,
    UnusableError,
)
from grns.maintenance.retention import BlobRetention
from grns.model.blob import Blob, BlobRules
from grns.postgres.database import Database
from grns.runtime.place import DirectoryPlace
from grns.tasks.blobs import IN_POSTGRES_BYTES, Blobs, delete_objects
from tests.support.api import Door, good
from tests.support.attempts import attempts_of
from tests.support.store import fetch

LARGE = b"one hundred pages" * 10_000


class UnreliablePlace(DirectoryPlace):
    """A directory that fails, as long as a test wants it to, before or after it has written."""

    failure = ""

    def write(self, name: str, content: bytes) -> None:
        """Write, or fail."""
        if self.failure == "before":
            raise UnavailableError("no space left on device")
        super().write(name, content)
        if self.failure == "after":
            raise UnavailableError("no answer")


@pytest.fixture
def place(client: Client, shared: Database, tmp_path: Path) -> UnreliablePlace:
    """A blob store that the client uses, and those who clean up."""
    place = UnreliablePlace(tmp_path)
    for database in (client._database, shared):
        database.blob_rules = BlobRules(place=place)
    return place


async def walk(database: Database, *, grace: float = 0.0) -> None:
    """Delete blobs that nothing refers to, and objects that no blob has."""
    retention = BlobRetention(database, grace, emit=lambda _signal: None)
    while await retention.step():
        pass
    while await delete_objects(database, 5):
        pass


async def noted(database: Database) -> int:
    """Return how many objects are noted that no blob has."""
    return len(await fetch(database, "select from grns.blob_objects"))


async def test_large_ones_are_objects_and_small_ones_are_not(
    client: Client, shared: Database, place: UnreliablePlace
) -> None:
    large = await client.blobs.put(LARGE, media_type="text/plain")
    small = await client.blobs.put(b"x" * IN_POSTGRES_BYTES)
    assert await client.blobs.get(large) == LARGE
    assert await client.blobs.get(small) == b"x" * IN_POSTGRES_BYTES
    part = [part async for part in client.blobs.read(large, start=17, length=34)]
    assert b"".join(part) == b"one hundred pages" * 2
    assert [part async for part in client.blobs.read(large, start=len(LARGE))] == []
    (name,) = place.names("")
    assert name.startswith(f"default/{large.id[7:9]}/{large.id[7:]}-")
    assert place.read(name) == LARGE
    rows = await fetch(shared, "select content is null as is_away, object from grns.blobs order by size")
    assert [tuple(row) for row in rows] == [(False, None), (True, name)]
    state = await client.blobs.state(large)
    assert (state.size, state.media_type, await noted(shared)) == (len(LARGE), "text/plain", 0)


async def test_the_same_bytes_are_one_object(
    client: Client, shared: Database, place: UnreliablePlace
) -> None:
    for blob in await asyncio.gather(*(client.blobs.put(LARGE) for _ in range(6))):
        assert await client.blobs.get(blob) == LARGE
    await client.blobs.put(LARGE)
    await walk(shared, grace=60.0)
    (name,) = place.names("")
    assert (await fetch(shared, "select object from grns.blobs"))[0]["object"] == name
    assert await noted(shared) == 0


async def test_what_nothing_refers_to_is_deleted_with_its_object(
    client: Client, shared: Database, place: UnreliablePlace
) -> None:
    kept, loose = await client.blobs.put(LARGE), await client.blobs.put(LARGE[1:])
    await client.submit("noop", {"file": kept}, pool="worker")
    await walk(shared)
    assert len(place.names("")) == 1
    assert await client.blobs.get(kept) == LARGE
    with pytest.raises(NotFoundError):
        await client.blobs.get(loose)
    assert await noted(shared) == 0


@pytest.mark.parametrize("failure", ["before", "after"])
async def test_an_upload_that_fails_keeps_nothing(
    client: Client, shared: Database, place: UnreliablePlace, failure: str
) -> None:
    place.failure = failure
    with pytest.raises(UnavailableError):
        await client.blobs.put(LARGE)
    assert (await client.blobs.list()).rows == []
    assert await noted(shared) == 1
    place.failure = ""
    blob = await client.blobs.put(LARGE)
    await walk(shared, grace=60.0)
    assert (len(place.names("")), await noted(shared)) == (1, 0)
    assert await client.blobs.get(blob) == LARGE


async def test_an_upload_whose_process_has_died_is_deleted_after_a_day(
    client: Client, shared: Database, place: UnreliablePlace
) -> None:
    upload = await client.blobs.upload(LARGE)
    await walk(shared)
    assert len(place.names("")) == 1
    await fetch(shared, "update grns.blob_objects set noted_at = now() - interval '25 hours'")
    await walk(shared)
    assert (place.names(""), await noted(shared)) == ([], 0)
    with pytest.raises(ContendedError):  # it was only slow
        await client.blobs.keep(upload)
    assert (await client.blobs.list()).rows == []


async def test_an_object_is_deleted_though_the_janitor_dies_meanwhile(
    client: Client, shared: Database, place: UnreliablePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.blobs.put(LARGE)
    retention = BlobRetention(shared, 0.0, emit=lambda _signal: None)
    await retention.step()
    place.delete(place.names("")[0])  # it has deleted the object, and not said so
    assert await noted(shared) == 1
    assert await delete_objects(shared, 5) == 1
    assert await noted(shared) == 0


async def test_limits_hold_and_leave_no_object(
    client: Client, shared: Database, place: UnreliablePlace
) -> None:
    client._database.blob_rules = BlobRules(200_000, 300_000, place)
    with pytest.raises(InvalidInputError):
        await client.blobs.put(b"x" * 200_001)
    await client.blobs.put(LARGE)
    with pytest.raises(RateLimitedError):
        await client.blobs.put(LARGE[1:])
    await fetch(shared, "update grns.blob_objects set noted_at = now() - interval '25 hours'")
    await walk(shared, grace=60.0)
    assert len(place.names("")) == 1


async def test_who_does_not_know_the_store_says_so(
    client: Client, shared: Database, place: UnreliablePlace
) -> None:
    blob = await client.blobs.put(LARGE)
    client._database.blob_rules = BlobRules()
    with pytest.raises(UnusableError, match="GRNS_BLOB_STORE"):
        await client.blobs.get(blob)
    assert await client.blobs.put(LARGE) == blob
    client._database.blob_rules = BlobRules(place=place)
    place.delete(place.names("")[0])
    with pytest.raises(NotFoundError):
        await client.blobs.get(blob)


async def test_results_that_are_too_large_are_objects(
    client: Client, shared: Database, place: UnreliablePlace
) -> None:
    import grns

    pool = grns.Pool("writers")

    @pool.task
    async def write() -> str:
        return "x" * 400_000

    handle = await client.submit(write)
    with attempts_of(pool, shared, client) as attempts:
        assert await attempts.run(handle.id) == "succeeded"
    assert len(place.names("")) == 1
    assert await handle.result(timeout=5) == "x" * 400_000


async def test_deletions_and_uploads_at_the_same_time_lose_nothing(
    client: Client, shared: Database, place: UnreliablePlace
) -> None:
    """The same bytes are put and referred to, again and again, while all that may go is deleted."""
    is_over = False

    async def clean() -> None:
        while not is_over:
            await walk(shared)

    cleaning = asyncio.create_task(clean())
    blobs: list[Blob] = []
    try:
        for number in range(100):
            content = LARGE + str(number // 5).encode()
            for _ in range(20):
                blob = await client.blobs.put(content)
                try:
                    await client.submit("noop", {"file": blob}, pool="worker")
                except (InvalidInputError, ConflictError):  # it was deleted meanwhile: grace is 0 here
                    continue
                blobs.append(blob)
                break
    finally:
        is_over = True
        await cleaning
    assert len(blobs) == 100
    await walk(shared)
    for blob in blobs:
        assert (await client.blobs.get(blob)).startswith(LARGE)
    assert len(place.names("")) == len({blob.id for blob in blobs}) == 20
    assert await noted(shared) == 0


async def test_the_api_keeps_and_returns_objects_of_a_tenant(door: Door, tmp_path: Path) -> None:
    place = DirectoryPlace(tmp_path)
    door.database.blob_rules = door.context.database.blob_rules = BlobRules(place=place)
    async with door.visitor(await door.key("submit", "read")) as visitor:
        kept = good(await visitor.post(f"{PREFIX}/blobs", content=LARGE), range(200, 300))
        assert len(place.names("")) == 1
        path = f"{PREFIX}/blobs/{kept['$blob']}"
        assert (await visitor.get(path)).content == LARGE
        part = await visitor.get(path, headers={"Range": "bytes=17-33"})
        assert (part.status_code, part.content) == (206, b"one hundred pages")
    assert await noted(door.database) == 0
    with pytest.raises(NotFoundError):
        await Blobs(door.database, "default").get(kept)
