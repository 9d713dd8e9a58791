"""An archive and blobs in a bucket: moto plays S3, and obstore speaks to it over HTTP."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

from grns.archive.reader import ArchiveReader
from grns.errors import NotFoundError, SettingsError, UnavailableError
from grns.model.blob import BlobRules
from grns.postgres.database import Database
from grns.runtime.place import BucketPlace, open_place
from grns.tasks.blobs import Blobs, delete_objects
from tests.archive.test_tasks import ended, no_blobs, restored, retained, rows_of
from tests.support.harness import submit_many
from tests.support.store import fetch


@pytest.fixture
def endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An S3 with a bucket, and the environment that leads to it."""
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT": url, "AWS_ALLOW_HTTP": "true",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    with (tmp_path / "moto.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log
        )
        try:
            _make_bucket(f"{url}/company")
            yield url
        finally:
            server.terminate()
            server.wait(10)


def _make_bucket(url: str) -> None:
    until = time.monotonic() + 30.0
    while True:
        with suppress(httpx2.TransportError):
            assert httpx2.put(url).status_code == 200
            return
        assert time.monotonic() < until, "moto does not answer"
        time.sleep(0.1)


async def test_tasks_are_archived_in_a_bucket_and_restored(endpoint: str, shared: Database) -> None:
    place = open_place("s3://company/grns", "GRNS_ARCHIVE")
    assert isinstance(place, BucketPlace)
    reader = ArchiveReader(place, "default")
    assert (await reader.list()).rows == []
    ids = await submit_many(shared, 3)
    await ended(shared, *ids)
    before = await rows_of(shared, *ids)
    assert await retained(shared, place) == 3
    await no_blobs(shared, place)
    (archive,) = (await reader.list()).rows
    assert archive.rows == 3
    assert (
        await restored(shared, place, await reader.tasks(await reader.ids_in(archive.name)))
        == ["restored"] * 3
    )
    assert await rows_of(shared, *ids) == before
    with pytest.raises(NotFoundError):
        place.read("tasks/none")


async def test_a_bucket_that_is_not_there_deletes_nothing(endpoint: str, shared: Database) -> None:
    ids = await submit_many(shared, 1)
    await ended(shared, *ids)
    before = await rows_of(shared, *ids)
    with pytest.raises(UnavailableError):
        await retained(shared, open_place("s3://none/grns", "GRNS_ARCHIVE"))
    assert await rows_of(shared, *ids) == before


async def test_blobs_are_kept_in_a_bucket_and_deleted(endpoint: str, shared: Database) -> None:
    place = open_place("s3://company/blobs", "GRNS_BLOB_STORE")
    shared.blob_rules = BlobRules(place=place)
    blobs = Blobs(shared, "default")
    content = bytes(range(256)) * 12_000  # more than one part
    blob = await blobs.put(content)
    (name,) = place.names("")
    assert await blobs.get(blob) == content
    part = [part async for part in blobs.read(blob, start=300, length=5)]
    assert b"".join(part) == bytes(range(44, 49))
    await no_blobs(shared, None)
    await fetch(shared, "update grns.blob_objects set delete_after = now() - interval '1 second'")
    assert await delete_objects(shared, 5) == 1
    assert place.names("") == []
    place.delete(name)
    with pytest.raises(NotFoundError):
        place.read_part(name, 0, 1)
    shared.blob_rules = BlobRules(place=open_place("s3://none/blobs", "GRNS_BLOB_STORE"))
    with pytest.raises(UnavailableError):
        await blobs.put(content)


def test_a_url_that_is_none_is_refused() -> None:
    with pytest.raises(SettingsError):
        open_place("s3://", "GRNS_ARCHIVE")
