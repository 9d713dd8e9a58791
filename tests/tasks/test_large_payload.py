"""Payloads beyond the limit: their longest fields are kept as blobs, and the handler gets them whole."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import grns
from grns.client.client import Client
from grns.errors import ConflictError, InvalidInputError, RateLimitedError
from grns.model.blob import MOST_VALUES, BlobRules, parse_document
from grns.model.json import Limits
from grns.model.seal import Keyring, MasterKey
from grns.model.submission import edit
from grns.postgres.database import Database
from grns.runtime.place import DirectoryPlace
from tests.support.attempts import attempts_of
from tests.support.store import fetch

LONG, SHORT = "x" * 200_000, "y" * 5_000
pool = grns.Pool("files")
seen: list[Any] = []


class Document(BaseModel):
    title: str
    text: str
    rest: dict[str, str]


@pool.task
async def read_document(document: Document, ctx: grns.Context) -> int:
    seen.append(document)
    return len(document.text)


@pool.task("read_any")
async def read_any(document: dict[str, Any]) -> int:
    seen.append(document)
    return len(document)


@pool.task
async def write_long(ctx: grns.Context) -> Any:
    async with ctx.transaction() as tx:
        tx.complete({"numbers": list(range(100_000))})


@pytest.fixture(autouse=True)
def forgotten() -> None:
    """Forget what handlers have seen."""
    seen.clear()


DOCUMENT = Document(title="Novel", text=LONG, rest={"a": LONG, "b": SHORT})


async def test_the_longest_fields_become_blobs_and_the_handler_gets_all(
    shared: Database, client: Client
) -> None:
    handle = await client.submit(read_document, DOCUMENT)
    payload = (await client.get(handle.id)).payload
    assert payload is not None
    assert (payload["title"], payload["text"]) == ("Novel", LONG), "one blob is enough"
    assert (payload["rest"]["is_document"], payload["rest"]["type"]) == (True, "application/json")
    assert (await client.blobs.state(payload["rest"])).references == 1
    with attempts_of(pool, shared, client) as attempts:
        assert await attempts.run(handle.id) == "succeeded"
    assert seen == [DOCUMENT]
    assert await handle.result(timeout=1) == 200_000


async def test_the_same_payload_is_the_same_submission(client: Client) -> None:
    first = await client.submit(read_document, DOCUMENT, idempotency_key="novel")
    again = await client.submit(read_document, DOCUMENT, idempotency_key="novel")
    assert (first.id, again.created) == (again.id, False)
    with pytest.raises(ConflictError):
        await client.submit(
            read_document, DOCUMENT.model_copy(update={"rest": {}, "text": "z"}), idempotency_key="novel"
        )


async def test_the_order_of_a_payload_is_nothing(client: Client) -> None:
    one = {"a": {"x": LONG, "y": 1}, "b": {"y": 2, "x": LONG}}
    other = {"b": {"x": LONG, "y": 2}, "a": {"y": 1, "x": LONG}}
    handles = [
        await client.submit("read_any", payload, pool="files", idempotency_key="order")
        for payload in (one, other)
    ]
    assert handles[0].id == handles[1].id


async def test_many_are_checked_before_one_is_kept(shared: Database, client: Client) -> None:
    good = {"task": "read_any", "payload": {"a": LONG, "b": LONG}, "pool": "files"}
    with pytest.raises(InvalidInputError):
        await client.submit_many([good, good | {"priority": 7}])
    assert await fetch(shared, "select from grns.blobs") == []
    handles = await client.submit_many([good, good | {"payload": {"a": 1}}])
    tasks = [await client.get(handle.id) for handle in handles if not isinstance(handle, ConflictError)]
    assert [sorted(task.payload or {}) for task in tasks] == [["a", "b"], ["a"]]
    assert tasks[1].payload == {"a": 1}


async def test_in_a_transaction_it_exists_with_the_commit(shared: Database, client: Client) -> None:
    async with shared.transaction() as connection:
        handle = await client.submit("read_any", {"a": LONG, "b": LONG}, pool="files", connection=connection)
    with attempts_of(pool, shared, client) as attempts:
        assert await attempts.run(handle.id) == "succeeded"
    assert seen == [{"a": LONG, "b": LONG}]


async def test_many_values_become_a_blob_too(shared: Database, client: Client) -> None:
    numbers = list(range(20_000))
    handle = await client.submit("read_any", {"numbers": numbers, "n": 1}, pool="files")
    with attempts_of(pool, shared, client) as attempts:
        assert await attempts.run(handle.id) == "succeeded"
    assert seen == [{"numbers": numbers, "n": 1}]


async def test_what_a_unique_key_names_stays(client: Client) -> None:
    unique = grns.Unique("doc.id")
    document = {"doc": {"id": 7, "text": LONG}, "rest": LONG}
    handle = await client.submit("read_any", document, pool="files", unique=unique)
    again = await client.submit("read_any", document | {"rest": LONG + "2"}, pool="files", unique=unique)
    assert again.id == handle.id
    assert ((await client.get(handle.id)).payload or {})["doc"] == document["doc"]
    with pytest.raises(InvalidInputError) as refused:
        await client.submit("read_any", {"doc": {"id": 7, "text": LONG + LONG}}, pool="files", unique=unique)
    assert refused.value.code == "too_large"


async def test_secrets_stay_and_are_sealed(shared: Database, client: Client) -> None:
    shared.vault.keys = client._database.vault.keys = Keyring([MasterKey.new("key")])
    secretive = grns.Pool("files")

    @secretive.task(secret=["token"])
    async def read_secret(document: dict[str, Any]) -> None:
        seen.append(document)

    handle = await client.submit(read_secret, {"token": LONG, "text": LONG})
    (row,) = await fetch(shared, "select payload::text as said from grns.tasks where id = $1", handle.id)
    assert "xxxx" not in row["said"]
    with attempts_of(secretive, shared, client) as attempts:
        assert await attempts.run(handle.id) == "succeeded"
    assert seen == [{"token": LONG, "text": LONG}]
    with pytest.raises(InvalidInputError) as refused:
        await client.submit(read_secret, {"token": LONG + LONG})
    assert refused.value.code == "too_large"


async def test_what_is_too_long_all_the_same_is_refused(shared: Database, client: Client) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({f"k{n}": "x" * 40 for n in range(8_000)}, "too_large"),
        ({f"k{n}": n for n in range(12_000)}, "too_many_nodes"),
        ({"a": "x" * 3_000_000}, "too_large"),
    ]
    client._database.blob_rules = BlobRules(most_bytes=2_000_000)
    for payload, code in cases:
        with pytest.raises(InvalidInputError) as refused:
            await client.submit("read_any", payload, pool="files")
        assert refused.value.code == code
    client._database.blob_rules = BlobRules(most_bytes_of_workspace=100_000)
    with pytest.raises(RateLimitedError):
        await client.submit("read_any", {"a": LONG, "b": LONG}, pool="files")
    assert await fetch(shared, "select from grns.tasks") == []


async def test_a_task_whose_blob_is_lost_fails_and_one_whose_store_is_away_waits(
    shared: Database, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grns.worker.executor._CLOSED_SECONDS", 0.0)
    client._database.blob_rules = BlobRules(place=DirectoryPlace(tmp_path))
    handle = await client.submit("read_any", {"a": LONG, "b": LONG}, pool="files")
    with attempts_of(pool, shared, client) as attempts:
        assert await attempts.run(handle.id) == "queued"
        shared.blob_rules = BlobRules(place=DirectoryPlace(tmp_path))
        shutil.move(tmp_path, tmp_path.with_name("elsewhere"))
        assert await attempts.run(handle.id) == "queued", "what is not mounted has lost nothing"
        shutil.move(tmp_path.with_name("elsewhere"), tmp_path)
        shutil.rmtree(tmp_path / "default")
        assert await attempts.run(handle.id) == "retry_wait"
    task = await client.get(handle.id)
    assert (task.last_error or {})["class"] == "blob_missing"
    assert task.uncounted_attempts == 2


def test_what_anyone_has_put_is_looked_at_once() -> None:
    began = time.process_time()
    for body in (b"," * 2_000_001 + b'\\"' * 500_000, b"," * 2_000_001 + b'"' * 500_001):
        with pytest.raises(InvalidInputError, match="JSON"):
            parse_document(body, "one")
    assert time.process_time() - began < 10
    assert parse_document(b'["' + b"," * 2_000_001 + b'"]', "one") == ["," * 2_000_001]


async def test_references_that_stand_for_nothing_fail(shared: Database, client: Client) -> None:
    picture = await client.blobs.put(b"\x89PNG")
    bomb = await client.blobs.put_document(f"[{','.join(['[]'] * (MOST_VALUES + 1))}]")
    long = await client.blobs.put_document("[" + "1," * 50_000 + "1]")
    shared.blob_rules = BlobRules(most_bytes=4_000_000)
    cases: list[tuple[Any, str]] = [
        ({"a": {**picture, "is_document": True, "is_part": True}}, "bad_document"),
        ({"a": [{**long, "is_part": True}] * 50}, "too_large"),
        ({"a": {**bomb, "is_part": True}}, "bad_document"),
    ]
    for payload, code in cases:
        handle = await client.submit("read_any", payload, pool="files")
        with attempts_of(pool, shared, client) as attempts:
            assert await attempts.run(handle.id) == "failed"
        assert ((await client.get(handle.id)).last_error or {})["class"] == code
    strange = {"a": {"$blob": "nope", "is_document": True, "is_part": True}, "b": dict(long)}
    handle = await client.submit("read_any", strange, pool="files")
    with attempts_of(pool, shared, client) as attempts:
        assert await attempts.run(handle.id) == "succeeded"
    assert seen == [strange], "it is what it is"


async def test_what_refers_to_blobs_stays(client: Client) -> None:
    files = [await client.blobs.put(b"a page") for _ in range(2)]
    handle = await client.submit(
        "read_any", {"files": files, "more": [LONG, files[0]], "b": LONG}, pool="files"
    )
    payload = (await client.get(handle.id)).payload or {}
    assert (payload["files"], payload["more"][1], "is_part" in payload["b"]) == (files, files[0], True)
    assert (await client.blobs.state(files[0])).references == 1
    with pytest.raises(InvalidInputError) as refused:
        await client.submit("read_any", {"files": files * 3000}, pool="files")
    assert refused.value.code in ("too_large", "too_many_nodes")


async def test_no_patch_changes_what_is_in_a_blob(client: Client) -> None:
    handle = await client.submit("read_any", {"a": {"text": LONG}, "b": LONG, "n": 1}, pool="files", delay=60)
    task = await client.get(handle.id)
    with pytest.raises(InvalidInputError) as refused:
        edit(patch={"a": {"text": "short"}}).payload_of(task, Limits())
    assert refused.value.code == "bad_edit"
    patched = json.loads(edit(patch={"a": "short", "n": 2}).payload_of(task, Limits()) or "")
    assert (patched["a"], patched["n"]) == ("short", 2)


async def test_a_full_workspace_is_no_outage(shared: Database, client: Client) -> None:
    shared.blob_rules = BlobRules(most_bytes_of_workspace=1000)
    handle = await client.submit(write_long)
    with attempts_of(pool, shared, client) as attempts:
        assert await attempts.run(handle.id) == "retry_wait"
    task = await client.get(handle.id)
    assert (task.uncounted_attempts, (task.last_error or {})["class"]) == (0, "RateLimitedError")


async def test_a_transaction_completes_with_a_long_result(shared: Database, client: Client) -> None:
    handle = await client.submit(write_long)
    with attempts_of(pool, shared, client) as attempts:
        assert await attempts.run(handle.id) == "succeeded"
    assert (await client.get(handle.id)).result["is_document"]
    assert (await handle.result(timeout=1))["numbers"][-1] == 99_999
    shared.blob_rules = BlobRules(most_bytes=1000)
    handle = await client.submit(write_long)
    with attempts_of(pool, shared, client) as attempts:
        assert await attempts.run(handle.id) == "retry_wait"
