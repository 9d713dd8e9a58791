"""Large blobs outside of Postgres: each is one object, whatever dies, and none is left behind or lost."""

from __future__ import annotations

import asyncio
import threading
from array import array
from contextlib import suppress
from pathlib import Path

import pytest

from grns.access.isolation import as_tenant
from grns.api.route import PREFIX
from grns.client.client import Client
from grns.errors import (
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
from tests.support.api import OURS, THEIRS, Door, good
from tests.support.attempts import attempts_of
from tests.support.harness import eventually
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
    await later(database, "61 minutes", "is_doomed")
    while await delete_objects(database, 5):
        pass


async def later(database: Database, time: str, which: str = "true") -> None:
    """Let so much time have passed for objects that are noted."""
    await fetch(
        database,
        f"update grns.blob_objects set delete_after = delete_after - interval '{time}' where {which}",
    )


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
    await later(shared, "25 hours")
    await walk(shared, grace=60.0)  # dooms it
    await walk(shared)
    assert (place.names(""), await noted(shared)) == ([], 0)
    with pytest.raises(ContendedError):  # it was only slow
        await client.blobs.keep(upload)
    assert (await client.blobs.list()).rows == []


async def test_an_object_is_deleted_though_the_janitor_dies_meanwhile(
    client: Client, shared: Database, place: UnreliablePlace
) -> None:
    await client.blobs.put(LARGE)
    retention = BlobRetention(shared, 0.0, emit=lambda _signal: None)
    await retention.step()
    assert await delete_objects(shared, 5) == 0, "a write that was given up may arrive for an hour"
    await later(shared, "61 minutes")
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
    assert len(place.names("")) == 1, "what has no room is not written"
    with pytest.raises(InvalidInputError):
        await client.blobs.put(LARGE[:70_000], media_type="no type")
    waiting = await client.blobs.upload(LARGE[:70_000])  # counts as long as it may become a blob
    with pytest.raises(RateLimitedError):
        await client.blobs.put(LARGE[:70_001])
    client._database.blob_rules = BlobRules(200_000, 200_000, place)
    with pytest.raises(RateLimitedError):
        await client.blobs.keep(waiting)
    assert (await fetch(shared, "select is_doomed from grns.blob_objects"))[0]["is_doomed"]
    await later(shared, "25 hours")
    await walk(shared, grace=60.0)  # dooms it
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
    (name,) = place.names("")
    for damaged in (LARGE[:-1], LARGE[1:] + b"x"):
        place.write(name, damaged)
        with pytest.raises(NotFoundError):
            await client.blobs.get(blob)
    place.delete(name)
    with pytest.raises(NotFoundError):
        await client.blobs.get(blob)


async def test_any_memory_is_kept_whole(client: Client, place: UnreliablePlace) -> None:
    numbers = array("I", range(50_000))
    blob = await client.blobs.put(memoryview(numbers))
    assert (blob.size, await client.blobs.get(blob)) == (200_000, numbers.tobytes())


async def test_a_store_that_hangs_holds_up_nothing_else(
    client: Client, shared: Database, place: UnreliablePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = await client.blobs.put(LARGE)
    goes_on = threading.Event()
    write = place.write

    def hang(name: str, content: bytes) -> None:
        goes_on.wait(30)
        write(name, content)

    monkeypatch.setattr(place, "write", hang)
    tries = [asyncio.create_task(client.blobs.put(LARGE[number:])) for number in range(1, 8)]
    await asyncio.sleep(0.3)
    for one in tries:
        one.cancel()
    await asyncio.wait(tries)
    assert await client.blobs.get(kept) == LARGE
    last = asyncio.create_task(client.blobs.put(LARGE[9:]))
    await asyncio.sleep(0.3)
    last.cancel()
    await asyncio.wait({last})
    with pytest.raises(UnavailableError, match="still waits"):
        await client.blobs.get(kept)
    goes_on.set()

    async def answers() -> bool:
        with suppress(UnavailableError):
            return await client.blobs.get(kept) == LARGE
        return False

    await eventually(answers)
    await later(shared, "25 hours")
    await walk(shared, grace=60.0)
    await walk(shared, grace=60.0)
    assert (len(place.names("")), await noted(shared)) == (1, 0), "also what was written late is deleted"


async def test_one_object_that_cannot_be_deleted_does_not_keep_others(
    client: Client, shared: Database, place: UnreliablePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        await client.blobs.put(LARGE[number:])
    delete, refused = place.delete, place.names("")[1]

    def refuse(name: str) -> None:
        if name == refused:
            raise UnavailableError("permission denied")
        delete(name)

    monkeypatch.setattr(place, "delete", refuse)
    with pytest.raises(UnavailableError):
        await walk(shared)
    assert place.names("") == [refused]
    client._database.blob_rules = shared.blob_rules = BlobRules()
    await later(shared, "61 minutes")
    with pytest.raises(UnusableError, match="GRNS_BLOB_STORE"):
        await delete_objects(shared, 5)


async def test_a_tenant_cannot_name_objects_of_others(door: Door) -> None:
    key = "0" * 64
    names = (f"{THEIRS}/00/{key}-{'0' * 16}", f"../{OURS}/00/{key}-{'0' * 16}", f"{OURS}/../x")
    for name in names:
        async with as_tenant(door.database, OURS) as session:
            with pytest.raises(InvalidInputError):
                await session.run("keep_object", OURS, key, 5, None, name, 10**9)
        with pytest.raises(UnavailableError, match="not a valid file name"):
            DirectoryPlace(Path("/")).read("a/../b")


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
            await walk(shared, grace=0.05)

    cleaning = asyncio.create_task(clean())
    blobs: list[Blob] = []
    try:
        for number in range(100):
            content = LARGE + str(number // 5).encode()
            for _ in range(100):
                blob = await client.blobs.put(content)
                try:
                    await client.submit("noop", {"file": blob}, pool="worker")
                except InvalidInputError:  # it was deleted meanwhile: here is next to no grace
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
