"""Blobs over HTTP: put, read in parts, listed; only within a workspace."""

from __future__ import annotations

import hashlib

import pytest

import grns
from grns.api.route import PREFIX
from grns.errors import InvalidInputError, NotFoundError
from grns.model.blob import BlobRules
from tests.support.api import OURS, THEIRS, Door, good, problem_of, serving
from tests.support.harness import submit

BLOBS = f"{PREFIX}/blobs"
CONTENT = bytes(range(256)) * 10
ID = f"sha256-{hashlib.sha256(CONTENT).hexdigest()}"


async def test_bytes_come_back_as_they_were_put(door: Door) -> None:
    async with (
        door.visitor(await door.key("submit")) as writer,
        door.visitor(await door.key("read")) as reader,
    ):
        made = good(await writer.post(BLOBS, content=CONTENT, headers={"Content-Type": "image/png"}))
        assert made == {"$blob": ID, "size": 2560, "type": "image/png"}
        assert good(await writer.put(f"{BLOBS}/{ID}", content=CONTENT)) == made
        answer = await reader.get(f"{BLOBS}/{ID}")
        assert (answer.status_code, answer.content) == (200, CONTENT)
        assert answer.headers["content-type"] == "image/png"
        assert answer.headers["content-length"] == "2560"
        assert answer.headers["content-disposition"].startswith("attachment")
        assert answer.headers["x-content-type-options"] == "nosniff"
        (listed,) = good(await reader.get(BLOBS))["items"]
        assert (listed["id"], listed["size"], listed["references"]) == (ID, 2560, 0)


@pytest.mark.parametrize(
    ("wanted", "status", "part"),
    [
        ("bytes=0-9", 206, slice(0, 10)),
        ("bytes=2550-", 206, slice(2550, None)),
        ("bytes=-10", 206, slice(2550, None)),
        ("bytes=0-99999", 200, slice(None)),
        ("bytes=1-2,5-6", 200, slice(None)),
        ("lines=1-2", 200, slice(None)),
    ],
)
async def test_ranges(door: Door, wanted: str, status: int, part: slice) -> None:
    async with door.visitor(await door.key("work")) as agent:
        good(await agent.post(BLOBS, content=CONTENT))
        answer = await agent.get(f"{BLOBS}/{ID}", headers={"Range": wanted})
        assert (answer.status_code, answer.content) == (status, CONTENT[part])
        if status == 206:
            assert answer.headers["content-range"].endswith("/2560")
        for beyond in ("bytes=2560-", "bytes=9-8", "bytes=-0"):
            refused = await agent.get(f"{BLOBS}/{ID}", headers={"Range": beyond})
            assert problem_of(refused, 416) == "bad_range"


async def test_what_is_refused(door: Door) -> None:
    door.context.database.blob_rules = BlobRules(most_bytes=3000)
    async with (
        door.visitor(await door.key("submit")) as writer,
        door.visitor(await door.key("read")) as reader,
    ):
        wrong = await writer.put(f"{BLOBS}/sha256-{'0' * 64}", content=CONTENT)
        assert problem_of(wrong, 422) == "wrong_digest"
        assert problem_of(await writer.post(BLOBS, content=CONTENT * 2), 413) == "too_large"
        typed = await writer.post(BLOBS, content=b"x", headers={"Content-Type": "nothing"})
        assert problem_of(typed, 400) == "bad_blob"
        packed = await writer.post(BLOBS, content=b"x", headers={"Content-Encoding": "gzip"})
        assert problem_of(packed, 415) == "bad_content_type"
        assert problem_of(await reader.post(BLOBS, content=CONTENT), 403) == "forbidden"
        assert problem_of(await writer.get(f"{BLOBS}/{ID}"), 403) == "forbidden"
        assert problem_of(await reader.get(f"{BLOBS}/{ID}"), 404) == "not_found"
        for name in ("sha256-..", "..", "sha256-" + "0" * 63, "sha256-" + "G" * 64):
            assert (await reader.get(f"{BLOBS}/{name}")).status_code in (400, 404), name


async def test_blobs_of_others_do_not_exist(door: Door) -> None:
    async with door.visitor(await door.key("submit", workspace=THEIRS)) as rival:
        good(await rival.post(BLOBS, content=CONTENT))
    async with door.visitor(await door.key("read", workspace=OURS)) as reader:
        assert problem_of(await reader.get(f"{BLOBS}/{ID}"), 404) == "not_found"
        assert good(await reader.get(BLOBS))["items"] == []


async def test_an_http_worker_puts_and_gets_them(door: Door) -> None:
    key = await door.key("work")
    async with (
        serving(door.context, door.api) as server,
        grns.AgentClient(server.url, key=key, task_types=["noop"]) as client,
    ):
        blob = await client.put_blob(CONTENT, media_type="image/png")
        assert (blob.id, blob.size, blob.media_type) == (ID, 2560, "image/png")
        assert await client.get_blob(blob) == await client.get_blob(ID) == CONTENT
        await submit(door.database, workspace=OURS)
        long = ["x" * 1000] * 300
        task = await client.next_task()
        assert task is not None
        assert await client.complete_task(task, long) == "succeeded"
        with pytest.raises(NotFoundError):
            await client.get_blob(f"sha256-{'0' * 64}")
        with pytest.raises(InvalidInputError):
            await client.get_blob("sha256-no")
