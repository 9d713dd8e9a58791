"""Follow-ups: of each end of a task there is one, whatever is read again, and none is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

import grns
from grns.client.client import Client
from grns.errors import InvalidInputError, UnavailableError
from grns.limits import service as limits_service
from grns.model.outcome import Outcome, Verb
from grns.model.seal import Keyring, MasterKey
from grns.postgres.database import Database
from grns.tasks.announce import QueuedTask
from grns.tasks.follow_ups import FollowUpState
from grns.tasks.large_payload import whole
from grns.tasks.rotate_secrets import rotate
from grns.worker.claims import Claimant
from grns.worker.declared import publish_task_types
from grns.worker.finishes import Finish, Finishes
from tests.support.admitters import put_limit
from tests.support.followers import begin_here, follow, lead
from tests.support.harness import status_of, submit
from tests.support.store import cancel, claim, fetch, finish, lapse, log_of, redrive

PRESS = Claimant("worker-press", "default", "press", {"fetch_page": 3, "noop": 3}, 15.0)
GOOD = {"outcome": "success", "task_type": "a", "agent_type": "x", "payload": {}, "priority": 2}
pool = grns.Pool("press")
ops = grns.Pool("ops")


@ops.task
async def call_editor(ended: dict[str, Any]) -> None:
    """Tell a person of what has failed."""


@pool.task(
    on_success=[
        "index_page",
        grns.FollowUp("embed_results", {"kind": "page", "result": "by us"}, pool="embed", priority=3),
    ],
    on_failure=grns.FollowUp(call_editor, {"team": "news"}, priority=0, max_attempts=7),
)
async def fetch_page(page: dict[str, Any]) -> str:
    return "page"


@pytest.fixture(autouse=True)
async def declared(shared: Database) -> None:
    """Let the pool's workers have started, and what is followed here begin here."""
    await declare(shared, pool)
    await begin_here(shared)


async def declare(database: Database, declaring: grns.Pool) -> None:
    await publish_task_types(
        database, declaring.handlers.values(), workspace="default", agent_type=declaring.agent_type
    )


async def submitted(database: Database, **fields: Any) -> str:
    said = {
        "task_type": "fetch_page",
        "agent_type": "press",
        "payload": {"url": "https://example.org"},
    } | fields
    return (await submit(database, **said)).id


async def end(
    database: Database,
    task_id: str,
    verb: Verb = Verb.SUCCEED,
    result: Any = None,
    who: Claimant = PRESS,
) -> None:
    """Let an attempt end."""
    held = await claim(database, task_id, who=who)
    if verb is Verb.SUCCEED:
        said = Outcome(verb, result=json.dumps(result))
        await Finishes(database, batch_limit=10).finish(Finish(held, said, uuid4()))
    else:
        await finish(database, held, verb)


async def followed(database: Database, task_id: str) -> dict[str, dict[str, Any]]:
    """Return the follow-ups of a task by their types, each with its payload."""
    rows = await fetch(
        database,
        "select t.*, t.payload::text as said from grns.tasks t where t.payload ->> 'task_id' = $1",
        task_id,
    )
    found = {row["task_type"]: dict(row) | {"payload": json.loads(row["said"])} for row in rows}
    assert len(found) == len(rows), "none is there twice"
    return found


async def test_success_submits_what_the_pool_declares(shared: Database) -> None:
    task_id = await submitted(shared)
    await end(shared, task_id, result={"title": "Example"})
    leading = await follow(shared)
    found = await followed(shared, task_id)
    assert {name: (row["agent_type"], row["priority"], row["status"]) for name, row in found.items()} == {
        "index_page": ("press", 2, "queued"), "embed_results": ("embed", 3, "queued"),
    }  # fmt: skip
    facts = {
        "task_id": task_id,
        "task_type": "fetch_page",
        "status": "succeeded",
        "result": {"title": "Example"},
    }
    assert found["index_page"]["payload"] == facts
    assert found["embed_results"]["payload"] == {"kind": "page", **facts}
    (ended,) = [one for one in await log_of(shared, task_id) if one["kind"] == "evt.task.completed"]
    assert {row["causation_id"] for row in found.values()} == {ended["message_id"]}
    assert {row["trace_id"] for row in found.values()} == {ended["trace_id"]}
    assert {(one.agent_type, one.id) for one in leading._queued} == {
        (row["agent_type"], row["id"]) for row in found.values()
    }
    assert all(isinstance(one, QueuedTask) for one in leading._queued)


@pytest.mark.parametrize(("verb", "status"), [(Verb.FAIL, "failed"), (Verb.RETRY, "dead")])
async def test_failure_tells_what_has_failed(shared: Database, verb: Verb, status: str) -> None:
    task_id = await submitted(shared, max_attempts=1)
    await end(shared, task_id, verb)
    await follow(shared)
    ((name, found),) = (await followed(shared, task_id)).items()
    assert (name, found["agent_type"], found["priority"], found["max_attempts"]) == (
        "call_editor",
        "ops",
        0,
        7,
    )
    error = found["payload"].pop("error")
    assert found["payload"] == {
        "team": "news", "task_id": task_id, "task_type": "fetch_page", "status": status,
        "payload": {"url": "https://example.org"},
    }  # fmt: skip
    assert error["class"] == "ValueError"
    assert error["message"]


async def test_what_a_lost_worker_leaves_dead_has_its_follow_up(shared: Database) -> None:
    task_id = await submitted(shared, max_attempts=1)
    await claim(shared, task_id, who=PRESS)
    await lapse(shared, task_id)
    await shared.run("reap", 10, None)
    await follow(shared)
    found = await followed(shared, task_id)
    assert found["call_editor"]["payload"]["error"]["class"] == "lease_expired"


async def test_cancelled_tasks_other_types_and_retries_have_none(shared: Database) -> None:
    cancelled, retried = await submitted(shared), await submitted(shared)
    other, elsewhere = await submitted(shared, task_type="noop"), await submitted(shared, agent_type="worker")
    await cancel(shared, cancelled)
    await end(shared, retried, Verb.RETRY)
    await end(shared, other)
    await end(shared, elsewhere, who=replace(PRESS, agent_type="worker"))
    await follow(shared)
    for task_id in (cancelled, retried, other, elsewhere):
        assert await followed(shared, task_id) == {}


async def test_rows_that_are_read_again_submit_nothing(shared: Database) -> None:
    task_id = await submitted(shared)
    await end(shared, task_id)
    await follow(shared)
    before = await followed(shared, task_id)
    await fetch(shared, "update grns.follow_cursor set low = 0")
    leading = await follow(shared, await lead(shared, "another one"))
    assert await followed(shared, task_id) == before
    assert leading._queued == []


async def test_each_end_of_a_redriven_task_has_its_own(shared: Database) -> None:
    task_id = await submitted(shared)
    await end(shared, task_id, Verb.FAIL)
    await redrive(shared, task_id)  # before the follower has read of the end
    await end(shared, task_id, Verb.FAIL)
    await redrive(shared, task_id)
    await end(shared, task_id)
    await follow(shared)
    rows = await fetch(
        shared,
        "select t.task_type, t.payload ->> 'status' as status from grns.tasks t"
        " where t.payload ->> 'task_id' = $1",
        task_id,
    )
    assert sorted((row["task_type"], row["status"]) for row in rows) == [
        ("call_editor", "failed"), ("call_editor", "failed"),
        ("embed_results", "succeeded"), ("index_page", "succeeded"),
    ]  # fmt: skip


async def test_failure_that_is_read_late_tells_of_its_own_error(shared: Database) -> None:
    task_id = await submitted(shared)
    await end(shared, task_id, Verb.FAIL)
    await fetch(
        shared,
        "update grns.tasks set last_error = jsonb_build_object('class', 'Later') where id = $1",
        task_id,
    )
    await follow(shared)
    assert (await followed(shared, task_id))["call_editor"]["payload"]["error"]["class"] == "ValueError"


async def test_follow_ups_of_other_workspaces_and_deposed_followers(shared: Database) -> None:
    await publish_task_types(shared, pool.handlers.values(), workspace="other", agent_type="press")
    await fetch(shared, "delete from grns.task_types where workspace = 'default'")
    here, there = await submitted(shared), await submitted(shared, workspace="other")
    await end(shared, here)
    await end(shared, there, who=replace(PRESS, workspace="other"))
    deposed = await lead(shared)
    leading = await lead(shared, "another one")
    with pytest.raises(UnavailableError):
        await deposed.step(2000)
    assert (await followed(shared, here), await followed(shared, there)) == ({}, {})
    await follow(shared, leading)
    assert await followed(shared, here) == {}
    assert {row["workspace"] for row in (await followed(shared, there)).values()} == {"other"}


async def test_ends_wait_with_needs_that_do_not_fit_into_a_statement(
    shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grns.workflows.follower._MOST_NEEDS", 2)
    task_id = await submitted(shared)
    waiting = [await submitted(shared, task_type="noop", needs=[{"task": task_id}]) for _ in range(5)]
    await end(shared, task_id)
    await follow(shared)
    assert set(await followed(shared, task_id)) == {"index_page", "embed_results"}
    assert {await status_of(shared, one) for one in waiting} == {"queued"}


async def test_what_postgres_refuses_holds_up_nothing(shared: Database) -> None:
    """A blob that is gone, and a chain of failures that grows: the follow-up comes bare."""
    good, gone, deep = [await submitted(shared) for _ in range(3)]
    for task_id in (good, gone):
        await end(shared, task_id, result={"file": "here"})
    nested: Any = {"at": "the end"}
    for _ in range(40):
        nested = {"payload": nested}
    await fetch(
        shared, "update grns.tasks set payload = $2::text::jsonb where id = $1", deep, json.dumps(nested)
    )
    await end(shared, deep, Verb.FAIL)
    await fetch(shared, "alter table grns.tasks disable trigger tasks_blobs_ended")
    try:
        blob = json.dumps({"file": {"$blob": "sha256-" + "0" * 64, "size": 5, "type": "text/plain"}})
        await fetch(shared, "update grns.tasks set result = $2::text::jsonb where id = $1", gone, blob)
    finally:
        await fetch(shared, "alter table grns.tasks enable trigger tasks_blobs_ended")
    await follow(shared)
    assert (await followed(shared, good))["index_page"]["payload"]["result"] == {"file": "here"}
    bare = await followed(shared, gone)
    assert {name: row["payload"]["result"] for name, row in bare.items()} == {
        "index_page": None, "embed_results": None,
    }  # fmt: skip
    assert (await followed(shared, deep))["call_editor"]["payload"]["payload"] is None


async def test_failure_whose_payload_is_refused_tells_of_its_error(shared: Database) -> None:
    task_id = await submitted(shared)
    blob = json.dumps({"file": {"$blob": "sha256-" + "0" * 64}})
    held = await claim(shared, task_id, who=PRESS)
    await fetch(shared, "alter table grns.tasks disable trigger user")
    try:
        await fetch(shared, "update grns.tasks set payload = $2::text::jsonb where id = $1", task_id, blob)
    finally:
        await fetch(shared, "alter table grns.tasks enable trigger user")
    await finish(shared, held, Verb.FAIL)
    await follow(shared)
    said = (await followed(shared, task_id))["call_editor"]["payload"]
    assert said["payload"] is None
    assert said["error"]["class"]


@pytest.mark.parametrize("code", ["raise_exception", "check_violation", "insufficient_privilege"])
async def test_trigger_of_a_user_holds_up_nothing(database: Database, code: str) -> None:
    await declare(database, pool)
    await begin_here(database)
    await fetch(
        database,
        "create function refuse() returns trigger language plpgsql as"
        f" $$ begin raise exception 'not on Sundays' using errcode = '{code}'; end $$",
    )
    await fetch(
        database,
        "create trigger refused before insert on grns.tasks for each row"
        " when (new.task_type = 'embed_results') execute function refuse()",
    )
    task_id = await submitted(database)
    await end(database, task_id, result="page")
    await follow(database)
    assert not await followed(database, task_id), "those of one end are one statement"
    await fetch(database, "drop trigger refused on grns.tasks")
    other = await submitted(database)
    await end(database, other, result="page")
    await follow(database)
    assert set(await followed(database, other)) == {"index_page", "embed_results"}


async def test_sealed_results_stay_sealed_and_are_rotated(shared: Database) -> None:
    old, new = MasterKey.new("old"), MasterKey.new("new")
    shared.vault.keys = Keyring([old])
    task_id = await submitted(shared)
    await end(shared, task_id, result=shared.vault.hide({"token": "t0ken"}, [("token",)], "default"))
    await follow(shared)
    shared.vault.keys = Keyring([new, old])
    await rotate(shared)
    shared.vault.keys = Keyring([new])
    found = await followed(shared, task_id)
    assert not [row for row in found.values() if "t0ken" in row["said"]]
    opened = shared.vault.open(found["index_page"]["payload"], "default")
    assert opened["result"] == {"token": "t0ken"}
    assert found["embed_results"]["payload"]["result"] is None, "another pool gets no secrets"


async def test_long_result_is_a_part_of_the_payload(shared: Database, client: Client) -> None:
    text = "x" * 300_000
    kept = await client.blobs.put_document(json.dumps({"text": text}))
    task_id = await submitted(shared)
    await end(shared, task_id, result=kept)
    await follow(shared)
    row = (await followed(shared, task_id))["index_page"]
    assert row["payload"]["result"] == {**kept, "is_part": True}
    whole_one = json.loads(await whole(client.blobs, row["said"], 1_000_000))
    assert whole_one["result"] == {"text": text}


async def test_many_ends_of_one_reading_have_theirs(shared: Database) -> None:
    ids = [await submitted(shared) for _ in range(120)]
    for task_id in ids:
        await end(shared, task_id, result=task_id)
    await follow(shared)
    for task_id in ids:
        found = await followed(shared, task_id)
        assert {name: row["payload"]["result"] for name, row in found.items()} == {
            "index_page": task_id, "embed_results": task_id,
        }  # fmt: skip


async def test_neither_size_nor_a_full_pool_refuses_one(shared: Database) -> None:
    await fetch(
        shared,
        "insert into grns.pool_quotas (workspace, agent_type, max_queued, full_since, updated_by)"
        " values ('default', 'embed', 1, now(), 'test')",
    )
    task_id = await submitted(shared)
    await end(shared, task_id, result="x" * 262_000)
    await follow(shared)
    assert set(await followed(shared, task_id)) == {"index_page", "embed_results"}


async def test_limits_hold_for_them(shared: Database) -> None:
    await put_limit(shared, "index", agent_type="press", max_tasks=1)
    try:
        task_id = await submitted(shared)
        await fetch(
            shared,
            "update grns.tasks set status = 'queued', waits_for = null, queued_at = now() where id = $1",
            task_id,
        )
        await end(shared, task_id)
        await follow(shared)
        found = await followed(shared, task_id)
        assert (found["index_page"]["status"], found["index_page"]["waits_for"]) == ("waiting", "limit")
    finally:
        await limits_service.delete(shared, "index", workspace="default", actor="test")


async def test_what_workers_declare_no_more_is_not_submitted(shared: Database) -> None:
    later = grns.Pool("press")
    later.task("fetch_page")(fetch_page.function)
    await declare(shared, later)
    task_id = await submitted(shared)
    await end(shared, task_id)
    await follow(shared)
    assert await followed(shared, task_id) == {}
    assert await fetch(shared, "select from grns.task_types where agent_type = 'press'") == []


@pytest.mark.parametrize(
    "said",
    [
        {}, [{}], [GOOD, 1], [GOOD | {"task_type": "a b"}], [GOOD | {"priority": 4}],
        [GOOD | {"outcome": "end"}],
        [GOOD | {"payload": {"$blob": ""}}], [GOOD | {"payload": []}],
        [GOOD | {"max_attempts": 0}], [GOOD | {"agent_type": "instance"}],
    ],
)  # fmt: skip
async def test_postgres_takes_no_follow_ups_that_cannot_be_submitted(shared: Database, said: Any) -> None:
    with pytest.raises((InvalidInputError, asyncpg.PostgresError), match="follow_ups"):
        await fetch(
            shared,
            "update grns.task_types set follow_ups = $1::text::jsonb where agent_type = 'press'",
            json.dumps(said),
        )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"on_success": "no name"}, "task_type"),
        ({"on_success": 7}, "on_success takes task types"),
        ({"on_failure": {"task": "x"}}, "on_failure takes task types"),
        ({"on_success": ["next"] * 11}, "10 follow-ups at most"),
    ],
)
def test_wrong_declarations_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        grns.Pool("shop").task(**options)(lambda: None)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"priority": 9}, "priority"),
        ({"pool": "a b"}, "agent_type"),
        ({"payload": {"at": object()}}, "payload"),
        ({"payload": {"text": "x" * 20_000}}, "payload of a follow-up"),
        ({"payload": {"file": {"$blob": "sha256-" + "0" * 64}}}, "cannot be here"),
        ({"payload": {"token": {"$secret": "1.old.a.b"}}}, "cannot be here"),
        ({"payload": []}, "payload"),
        ({"task": 7}, "a task type or a handler"),
        ({"max_attempts": 0}, "max_attempts"),
    ],
)
def test_wrong_follow_ups_are_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        grns.FollowUp(**({"task": "next"} | fields))


def test_handler_of_a_pool_that_is_included_later_is_known_by_its_pool() -> None:
    tasks = grns.Pool()

    @tasks.task
    async def last() -> None: ...

    @tasks.task(on_success=last)
    async def first() -> None: ...

    shop = grns.Pool("shop")
    shop.include(tasks)
    (follow_up,) = first.follow_ups["success"]
    assert follow_up.of(first.agent_type).agent_type == "shop"
    with pytest.raises(InvalidInputError, match="is of the pool ops"):
        grns.FollowUp(call_editor, pool="shop").of("shop")


async def test_nothing_seals_what_a_declaration_says(client: Client, shared: Database) -> None:
    desk = grns.Pool("desk")

    @desk.task(secret=["token"])
    async def log_in(ended: dict[str, Any]) -> None: ...

    with pytest.raises(InvalidInputError, match="token is secret"):
        grns.FollowUp(log_in, {"token": "t0ken"}).of("press")
    await declare(shared, desk)
    client._database.vault.known_paths.clear()
    said = {"follows": "fetch_page", "outcome": "success", "task_type": "log_in", "agent_type": "desk"}
    with pytest.raises(InvalidInputError, match="token is secret"):
        await client.follow_ups.put("press", [said | {"payload": {"token": "t0ken"}}])


DECLARED = {"follows": "fetch_page", "outcome": "success", "task_type": "read_page", "agent_type": "desk"}


async def test_client_declares_follow_ups_of_pools_over_http(shared: Database, client: Client) -> None:
    assert [one.task_type for one in await client.follow_ups.list("press")] == [
        "index_page", "embed_results", "call_editor",
    ]  # fmt: skip
    found = await client.follow_ups.put("press", [DECLARED | {"payload": {"n": 1}, "max_attempts": 2}])
    assert found == [FollowUpState("fetch_page", "success", "read_page", "desk", {"n": 1}, 2, 2)]
    task_id = await submitted(shared)
    await end(shared, task_id)
    await follow(shared)
    ((name, row),) = (await followed(shared, task_id)).items()
    assert (name, row["agent_type"], row["payload"]["n"]) == ("read_page", "desk", 1)
    assert await client.follow_ups.put("press", []) == []
    told = await fetch(
        shared,
        "select payload::text as said from grns.events"
        " where kind = 'evt.pool.follow_ups_changed' order by seq",
    )
    assert [json.loads(one["said"])["follow_ups"] for one in told] == [
        ["fetch_page success desk/read_page"], [],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "wanted",
    [
        [{}], [{name: value for name, value in DECLARED.items() if name != "agent_type"}],
        [DECLARED | {"outcome": "end"}], [DECLARED | {"task_type": "a b"}], [DECLARED | {"more": 1}],
        [DECLARED | {"payload": {"$blob": "x"}}], [DECLARED] * 11,
        [DECLARED | {"payload": {"a": "x" * 20_000}}],
    ],
)  # fmt: skip
async def test_wrong_follow_ups_of_the_client_are_refused(client: Client, wanted: Any) -> None:
    with pytest.raises(InvalidInputError) as refused:
        await client.follow_ups.put("press", wanted)
    assert refused.value.code == "bad_follow_up"
    assert len(await client.follow_ups.list("press")) == 3
