"""Blobs: kept once, as long as something refers to them, and never lost to who deletes."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import grns
from grns.client.client import Client
from grns.errors import InvalidInputError, NotFoundError, RateLimitedError
from grns.maintenance.retention import BlobRetention, delete_tasks
from grns.model.blob import Blob, BlobRules, blobs_in
from grns.model.outcome import Verb
from grns.postgres.database import Database
from grns.tasks.blobs import PART_BYTES, Blobs
from tests.support.attempts import attempts_of
from tests.support.harness import submit
from tests.support.store import claim, fetch, finish, stranger

CONTENT = b"one hundred pages" * 10


async def deleted(database: Database, *, grace: float = 0.0) -> None:
    """Delete what nothing refers to."""
    walk = BlobRetention(database, grace, emit=lambda _signal: None)
    while await walk.step():
        pass


async def is_kept(client: Client, blob: Blob) -> bool:
    """Say whether a blob outlives a deletion."""
    await deleted(client._database)  # type: ignore[arg-type]
    try:
        await client.blobs.get(blob)
    except NotFoundError:
        return False
    return True


async def test_the_same_bytes_are_kept_once(client: Client, shared: Database, tmp_path: Path) -> None:
    first = await client.blobs.put(CONTENT, media_type="text/plain")
    file = tmp_path / "pages"
    file.write_bytes(CONTENT)
    again = await client.blobs.put(file)
    assert first == again == {
        "$blob": f"sha256-{hashlib.sha256(CONTENT).hexdigest()}", "size": 170, "type": "text/plain",
    }  # fmt: skip
    assert (first.size, first.media_type) == (170, "text/plain")
    assert await client.blobs.get(first) == await client.blobs.get(first.id) == CONTENT
    (state,) = (await client.blobs.list()).rows
    assert (state.id, state.size, state.references) == (first.id, 170, 0)
    assert state.used_at > state.created_at
    assert (await fetch(shared, "select count(*) as n from grns.blobs"))[0]["n"] == 1
    empty = await client.blobs.put(b"")
    assert await client.blobs.get(empty) == b""


async def test_a_large_one_is_read_in_parts(client: Client) -> None:
    content = bytes(range(256)) * (2 * PART_BYTES // 256) + b"end"
    blob = await client.blobs.put(content)
    parts = [part async for part in client.blobs.read(blob)]
    assert [len(part) for part in parts] == [PART_BYTES, PART_BYTES, 3]
    assert b"".join(parts) == content
    some = [part async for part in client.blobs.read(blob, start=5, length=PART_BYTES + 1)]
    assert b"".join(some) == content[5 : PART_BYTES + 6]
    assert [part async for part in client.blobs.read(blob, start=len(content))] == []


async def test_lists_have_pages(client: Client) -> None:
    made = [(await client.blobs.put(f"{number}".encode())).id for number in range(5)]
    first = await client.blobs.list(limit=3)
    second = await client.blobs.list(limit=3, after=first.next_cursor)
    assert [one.id for one in (*first.rows, *second.rows)] == made[::-1]
    assert second.next_cursor is None


async def test_blobs_of_another_workspace_are_not_there(client: Client, shared: Database) -> None:
    blob = await Blobs(shared, "rival").put(CONTENT)
    with pytest.raises(NotFoundError):
        await client.blobs.get(blob)
    with pytest.raises(NotFoundError):
        await client.blobs.state(blob)
    with pytest.raises(InvalidInputError) as refused:
        await client.submit("noop", {"file": blob}, pool="worker")
    assert refused.value.code == "blob_missing"


@pytest.mark.parametrize("said", ["sha256-0f", "9f" * 32, {"$blob": 3}, {"blob": "sha256-" + "0" * 64}, {}])
async def test_what_is_no_reference_is_refused(client: Client, said: Any) -> None:
    with pytest.raises(InvalidInputError) as refused:
        await client.blobs.get(said)
    assert refused.value.code == "bad_blob"


async def test_limits_hold(client: Client) -> None:
    client._database.blob_rules = BlobRules(most_bytes=100, most_bytes_of_workspace=150)
    with pytest.raises(InvalidInputError) as refused:
        await client.blobs.put(b"x" * 101)
    assert refused.value.code == "too_large"
    await client.blobs.put(b"x" * 100)
    with pytest.raises(RateLimitedError, match="may have 150 bytes"):
        await client.blobs.put(b"y" * 51)
    await client.blobs.put(b"x" * 100)
    await client.blobs.put(b"y" * 50)
    with pytest.raises(InvalidInputError):
        await client.blobs.put(b"", media_type="no type")
    with pytest.raises(InvalidInputError) as wrong:
        await client.blobs.put(b"z", digest="0" * 64)
    assert wrong.value.code == "wrong_digest"


async def test_a_task_keeps_what_its_payload_and_result_refer_to(client: Client, shared: Database) -> None:
    sent, returned, loose = [await client.blobs.put(name) for name in (b"sent", b"returned", b"loose")]
    handle = await client.submit("noop", {"files": [{"name": "a", "content": sent}]}, pool="worker")
    got = await claim(shared, handle.id)
    assert blobs_in({"a": [sent, {"b": sent}]}) == [sent]
    await fetch(
        shared, "update grns.tasks set result = $1::text::jsonb where id = $2", _json(returned), handle.id
    )
    assert [await is_kept(client, one) for one in (sent, returned, loose)] == [True, True, False]
    assert (await client.blobs.state(sent)).references == 1
    await finish(shared, got)
    await fetch(shared, "update grns.tasks set finished_at = now() - interval '1 hour'")
    assert (await delete_tasks(shared, "", 100, 60.0, 60.0)).deleted == 1
    assert [await is_kept(client, one) for one in (sent, returned)] == [False, False]


async def test_an_edit_a_signal_and_a_checkpoint_refer_too(client: Client, shared: Database) -> None:
    edited, signalled, noted = [await client.blobs.put(name) for name in (b"e", b"s", b"n")]
    handle = await client.submit("noop", {}, pool="worker")
    await fetch(shared, "update grns.tasks set payload = $1::text::jsonb", _json({"file": edited}))
    await client.signal(handle.id, "go", {"file": signalled})
    await fetch(
        shared,
        "insert into grns.progress (task_id, workspace, checkpoint) values ($1, 'default', $2::text::jsonb)",
        handle.id, _json([noted]),
    )  # fmt: skip
    assert [await is_kept(client, one) for one in (edited, signalled, noted)] == [True] * 3


async def test_mail_and_schedules_refer_until_they_are_gone(client: Client, shared: Database) -> None:
    mailed, planned = [await client.blobs.put(name) for name in (b"mailed", b"planned")]
    await client.agents.put("coder", pool="code")
    await client.mail.send("hello", {"file": mailed}, to="coder")
    await client.schedules.put("daily", "noop", {"file": planned}, pool="worker", every=3600)
    assert [await is_kept(client, one) for one in (mailed, planned)] == [True, True]
    await fetch(shared, "delete from grns.mail")
    await client.schedules.delete("daily")
    assert [await is_kept(client, one) for one in (mailed, planned)] == [False, False]


async def test_a_schedule_refers_to_what_its_payload_says_now(client: Client) -> None:
    old, new = [await client.blobs.put(name) for name in (b"old", b"new")]
    for payload in ({"file": old}, {"file": new}):
        await client.schedules.put("daily", "noop", payload, pool="worker", every=3600)
    assert [await is_kept(client, one) for one in (old, new)] == [False, True]
    await client.schedules.put("daily", "noop", {}, pool="worker", every=3600)
    assert not await is_kept(client, new)


async def test_a_checkpoint_without_its_blob_is_told_in_the_log(client: Client, shared: Database) -> None:
    pool = grns.Pool("files")

    @pool.task
    async def keep(ctx: grns.Context) -> None:
        ctx.progress(50, "half")
        ctx.checkpoint({"file": {"$blob": "sha256-" + "0" * 64}})

    handle = await client.submit(keep)
    with attempts_of(pool, shared, client) as attempts:
        assert await attempts.run(handle.id) == "succeeded"
    (row,) = await fetch(shared, "select percent, checkpoint from grns.progress")
    assert (row["percent"], row["checkpoint"]) == (50, None)


async def test_mail_near_the_limit_arrives(client: Client) -> None:
    """Postgres writes spaces, and counts them."""
    await client.agents.put("coder", pool="code")
    for count in range(300, 560, 20):
        payload = {f"k{number}": 1 for number in range(count)}
        await client.mail.send("hello", payload, to="coder")
        (mail,) = await client.mail.poll("coder")
        assert await client.mail.payload_of(mail) == payload
        await client.mail.ack("coder", mail)


async def test_a_large_payload_of_mail_is_kept_as_a_blob(client: Client) -> None:
    await client.agents.put("coder", pool="code")
    large, small = {"text": "x" * 5000}, {"text": "x"}
    for payload in (large, small):
        await client.mail.send("hello", payload, to="coder")
    first, second = await client.mail.poll("coder")
    assert (Blob.of(first.payload).media_type, second.payload) == ("application/json", small)
    assert [await client.mail.payload_of(one) for one in (first, second)] == [large, small]
    assert await is_kept(client, Blob.of(first.payload))


async def test_what_a_large_payload_refers_to_is_kept_with_it(client: Client) -> None:
    await client.agents.put("coder", pool="code")
    report = await client.blobs.put(b"the report")
    await client.mail.send("hello", {"text": "x" * 5000, "report": report}, to="coder")
    (mail,) = await client.mail.poll("coder")
    assert Blob.of(mail.payload)["keeps"] == [{"$blob": report.id}]
    assert await is_kept(client, report)
    files = [await client.blobs.put(f"page {number}".encode()) for number in range(60)]
    await client.mail.send("many", {"files": files}, to="coder")
    assert all([(await client.blobs.state(one)).references == 1 for one in files])
    many = [{"$blob": f"sha256-{number:064x}"} for number in range(2501)]
    with pytest.raises(InvalidInputError) as refused:
        await client.mail.send("hello", {"files": many}, to="coder")
    assert refused.value.code == "too_many_blobs"


async def test_what_a_long_result_refers_to_is_kept_with_it(client: Client, shared: Database) -> None:
    pool = grns.Pool("files")
    report = await client.blobs.put(b"the report")

    @pool.task
    async def read(order: dict[str, Any], ctx: grns.Context) -> dict[str, Any]:
        result = {"report": report, "text": "x" * 300_000}
        if order["how"] == "returned":
            return result
        async with ctx.transaction() as tx:
            tx.complete(result)
        return {}

    with attempts_of(pool, shared, client) as attempts:
        for count, how in enumerate(("returned", "in a transaction"), start=1):
            handle = await client.submit(read, {"how": how})
            assert await attempts.run(handle.id) == "succeeded"
            assert (await client.blobs.state(report)).references == count


async def test_handlers_read_and_return_blobs(client: Client, shared: Database) -> None:
    pool = grns.Pool("files")

    @pool.task
    async def shout(order: dict[str, Any], ctx: grns.Context) -> dict[str, Any]:
        async def loud() -> Blob:
            return await ctx.client.blobs.put((await ctx.client.blobs.get(order["file"])).upper())

        return {"file": await ctx.step("loud", loud)}

    blob = await client.blobs.put(b"hello")
    handle = await client.submit(shout, {"file": blob})
    with attempts_of(pool, shared, client) as attempts:
        await attempts.run(handle.id)
    result = await handle.result(timeout=5)
    assert await client.blobs.get(result["file"]) == b"HELLO"
    assert (await client.blobs.state(result["file"])).references == 1


async def test_a_long_result_is_kept_as_a_blob(client: Client, shared: Database) -> None:
    pool, long = grns.Pool("files"), {"numbers": list(range(200_000))}

    @pool.task
    async def numbers(ctx: grns.Context) -> dict[str, Any]:
        return long

    @pool.task
    async def first(ctx: grns.Context) -> int:
        (got,) = (await ctx.results()).values()
        (joined,) = await ctx.join([client.handle(handle.id, numbers)])
        assert joined == got
        return int(got["numbers"][7])

    handle = await client.submit(numbers)
    then = await client.submit(first, needs=[handle])
    with attempts_of(pool, shared, client) as attempts:
        assert await attempts.run(handle.id) == "succeeded"
        await fetch(
            shared,
            "update grns.tasks set status = 'queued', waits_for = null, queued_at = now() where id = $1",
            then.id,
        )
        assert await attempts.run(then.id) == "succeeded"
    stored = (await client.get(handle.id)).result
    assert stored["is_document"]
    assert stored["size"] > 1_000_000
    assert await handle.result(timeout=1) == long
    assert await then.result(timeout=1) == 7
    shared.blob_rules = BlobRules(most_bytes=1000)
    handle = await client.submit(numbers)
    with attempts_of(pool, shared, client) as attempts:
        assert await attempts.run(handle.id) == "failed"


async def test_a_result_with_a_blob_that_is_not_there_fails_the_task(
    client: Client, shared: Database
) -> None:
    task_id = (await submit(shared)).id
    got = await claim(shared, task_id)
    missing = {"$blob": "sha256-" + "0" * 64}
    with pytest.raises(asyncpg.PostgresError, match="has 0 of them"):
        await fetch(
            shared, "update grns.tasks set result = $1::text::jsonb where id = $2", _json(missing), task_id
        )
    assert (await finish(shared, got, Verb.SUCCEED)).status == "succeeded"


async def test_what_only_looks_like_a_reference_is_kept_as_it_is(client: Client) -> None:
    for payload in ({"$blob": "sha256-short"}, {"$blob": {"a": "b" * 100}}, {"a": "$blob" * 30}):
        handle = await client.submit("noop", payload, pool="worker")
        assert (await client.get(handle.id)).payload == payload


async def test_a_reference_is_rolled_back_with_its_task(client: Client, shared: Database) -> None:
    blob = await client.blobs.put(CONTENT)
    async with stranger(shared) as connection:
        await client.submit("noop", {"file": blob}, pool="worker", connection=connection)
        assert await is_kept(client, blob), "whoever deletes passes over what is being referred to"
        await connection.execute("rollback")
    assert not await is_kept(client, blob)


async def test_a_new_blob_is_kept_for_a_while(client: Client, shared: Database) -> None:
    blob = await client.blobs.put(CONTENT)
    await deleted(shared, grace=3600)
    assert await client.blobs.get(blob) == CONTENT
    await fetch(shared, "update grns.blobs set used_at = now() - interval '2 hours'")
    await client.blobs.put(CONTENT)  # as somebody does before the submission
    await deleted(shared, grace=3600)
    assert await client.blobs.get(blob) == CONTENT
    await fetch(shared, "update grns.blobs set used_at = now() - interval '2 hours'")
    await deleted(shared, grace=3600)
    with pytest.raises(NotFoundError):
        await client.blobs.get(blob)


@pytest.mark.parametrize("rounds", [100, pytest.param(1000, marks=pytest.mark.nightly)])
async def test_no_reference_is_left_without_its_blob(client: Client, shared: Database, rounds: int) -> None:
    """Deletion races new references: each submission is refused, or its blob is there."""
    refused = 0
    for number in range(rounds):
        blob = await client.blobs.put(f"race {number}".encode())
        walk = BlobRetention(shared, 0.0, emit=lambda _signal: None)
        if number % 2:
            await asyncio.sleep(0)
        answer, _ = await asyncio.gather(
            client.submit("noop", {"file": blob}, pool="worker"), walk.step(), return_exceptions=True
        )
        if isinstance(answer, InvalidInputError):
            assert answer.code == "blob_missing"
            refused += 1
            with pytest.raises(NotFoundError):
                await client.blobs.get(blob)
        else:
            assert not isinstance(answer, BaseException), answer
            await deleted(shared)
            assert await client.blobs.get(blob) == f"race {number}".encode()
    (row,) = await fetch(shared, "select count(*) as n from grns.tasks")
    assert row["n"] == rounds - refused


async def test_sql_puts_blobs_in_a_transaction(client: Client, shared: Database) -> None:
    async with stranger(shared) as connection:
        ref = await connection.fetchval("select grns.put_blob('\\x6869', 'text/plain')::text")
        await connection.fetchval(
            "select grns.submit_task('noop', jsonb_build_object('f', $1::text::jsonb))", ref
        )
        await connection.execute("commit")
    assert await client.blobs.get(f"sha256-{hashlib.sha256(b'hi').hexdigest()}") == b"hi"


def _json(value: Any) -> str:
    from grns.model.json import dumps

    return dumps(value)
