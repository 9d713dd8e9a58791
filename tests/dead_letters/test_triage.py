"""Triage: single tasks edited and set aside, messages mended and sent again; each with who it was."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import nats
import pytest

from grns.bootstrap import tools
from grns.bootstrap.app import App
from grns.dead_letters.message import MessagePatch
from grns.dead_letters.store import RejectedMessage, store_rejected
from grns.dead_letters.triage import Triage
from grns.dev.servers import LocalNats
from grns.errors import ConflictError, InvalidInputError, NotFoundError
from grns.model.events import PAYLOADS
from grns.model.json import loads_stored
from grns.model.subjects import shared_execute
from grns.model.submission import edit, edition
from grns.postgres.database import Database
from grns.tasks.read import tasks
from tests.dead_letters.test_message import body
from tests.support.harness import eventually, settings_for, submit
from tests.support.operations import said
from tests.support.store import (
    ACTOR,
    ROADS,
    claim,
    fetch,
    is_waiting_for_lock,
    log_of,
    place,
    row_of,
    stranger,
)


@pytest.fixture
def triage(shared: Database) -> Triage:
    """Triage without a broker: but for sending messages again it works with Postgres alone."""
    app = App(settings_for(shared.url))
    return tools.triage(app, shared, app.transport("test"))


# ---------------------------------------------------------------- edited


async def test_a_queued_task_gets_a_command_of_its_new_priority(shared: Database, triage: Triage) -> None:
    task_id = (await submit(shared, priority=2, payload={"url": "a", "n": 1})).id
    before = await row_of(shared, task_id)
    changed = await triage.edit(
        task_id, edit(priority=0, patch={"url": "b"}), actor=ACTOR, reason="it is urgent"
    )
    assert (changed.priority, changed.payload, changed.version) == (0, {"url": "b", "n": 1}, 1)
    after = await row_of(shared, task_id)
    assert {name for name in after if after[name] != before[name]} == {"priority", "payload", "updated_at"}
    event, command = (await log_of(shared, task_id))[-2:]
    assert (event["kind"], event["version"], event["actor"], event["was"]) == (
        "evt.task.changed",
        1,
        ACTOR,
        None,
    )
    told = json.loads(event["payload"])
    PAYLOADS["evt.task.changed"].model_validate(told)
    assert (told["fields"], told["priority"], told["reason"]) == (["priority", "payload"], 0, "it is urgent")
    assert told["before"] == {"priority": 2, "payload": {"url": "a", "n": 1}}
    assert (command["kind"], command["route"]) == ("cmd.task.execute", "worker.p0")
    assert command["causation_id"] == event["message_id"]
    held = await claim(shared, task_id)
    assert (held.priority, loads_stored(held.payload)) == (0, {"url": "b", "n": 1})


@pytest.mark.parametrize("road", ["waiting", "retry_wait"])
async def test_what_waits_is_due_at_another_time(shared: Database, triage: Triage, road: str) -> None:
    task_id = (await place(shared, road)).id
    await triage.edit(task_id, edit(delay_seconds=5.0), actor=ACTOR)
    after = await row_of(shared, task_id)
    assert (after["next_attempt_at"] - after["updated_at"]).total_seconds() == 5.0
    event = (await log_of(shared, task_id))[-1]
    assert event["kind"] == "evt.task.changed", "there is nothing to run yet"
    assert json.loads(event["payload"])["fields"] == ["next_attempt_at"]
    told_at = datetime.now(UTC) + timedelta(hours=1)
    assert (await triage.edit(task_id, edit(run_at=told_at), actor=ACTOR)).next_attempt_at == told_at
    told = json.loads((await log_of(shared, task_id))[-1]["payload"])
    assert (told["fields"], datetime.fromisoformat(told["next_attempt_at"])) == (["next_attempt_at"], told_at)


@pytest.mark.parametrize("road", ROADS)
async def test_what_does_not_run_and_has_not_succeeded_can_be_edited(
    shared: Database, triage: Triage, road: str
) -> None:
    task_id = (await place(shared, road)).id
    before, log = await row_of(shared, task_id), await log_of(shared, task_id)
    if before["status"] in ("running", "succeeded"):
        with pytest.raises(ConflictError, match=f"task {task_id} cannot be changed"):
            await triage.edit(task_id, edit(priority=3), actor=ACTOR)
        assert (await row_of(shared, task_id), await log_of(shared, task_id)) == (before, log)
        return
    assert (await triage.edit(task_id, edit(priority=3), actor=ACTOR)).priority == 3
    kinds = [row["kind"] for row in (await log_of(shared, task_id))[len(log) :]]
    assert kinds == ["evt.task.changed", *(["cmd.task.execute"] if before["status"] == "queued" else [])]
    if before["status"] not in ("waiting", "retry_wait"):
        for time in ({"delay_seconds": 5.0}, {"run_at": datetime.now(UTC)}):
            with pytest.raises(ConflictError, match="waits for no time"):
                await triage.edit(task_id, edit(**time), actor=ACTOR)


async def test_of_two_who_saw_the_same_one_edits(shared: Database, triage: Triage) -> None:
    """An edit leaves the version as it is: what was seen is told by the edition."""
    task_id = (await submit(shared)).id
    seen = edition((await tasks(shared, [task_id], "default"))[task_id])
    answers = await asyncio.gather(
        *(triage.edit(task_id, edit(priority=n), actor=ACTOR, seen_edition=seen) for n in range(4)),
        return_exceptions=True,
    )
    assert sum(isinstance(answer, ConflictError) for answer in answers) == 3
    assert len(await said(shared, "evt.task.changed")) == 1


async def test_an_edit_that_waited_for_a_claim_changes_nothing(shared: Database, triage: Triage) -> None:
    task_id = (await submit(shared)).id
    async with stranger(shared) as connection:
        await connection.execute("select from grns.tasks for update")
        editing = asyncio.create_task(triage.edit(task_id, edit(priority=0), actor=ACTOR))
        await eventually(lambda: is_waiting_for_lock(shared))
        await connection.execute(
            "update grns.tasks set status = 'running', lease_id = gen_random_uuid(), lease_until = now(),"
            " owner_agent_id = 'x', queued_at = null, version = 2, updated_at = now()"
        )
        await connection.execute("commit")
        with pytest.raises(ConflictError, match="it was changed since"):
            await editing
    assert not await said(shared, "evt.task.changed")


async def test_what_cannot_be_edited_is_refused(shared: Database, triage: Triage) -> None:
    with pytest.raises(NotFoundError):
        await triage.edit("gr-nothing", edit(priority=0), actor=ACTOR)
    with pytest.raises(InvalidInputError) as caught:
        await triage.edit("a b", edit(priority=0), actor=ACTOR)
    assert caught.value.code == "bad_name"
    task_id = (await submit(shared, workspace="other")).id
    with pytest.raises(NotFoundError):
        await triage.edit(task_id, edit(priority=0), actor=ACTOR)


# ---------------------------------------------------------------- set aside


async def test_ended_tasks_are_set_aside(shared: Database, triage: Triage) -> None:
    """It is no transition; the event says of which issue there is one task less."""
    ids = {
        road: (await place(shared, road)).id
        for road in ("dead", "failed", "cancelled", "succeeded", "queued")
    }
    before = {task_id: await row_of(shared, task_id) for task_id in ids.values()}
    answers = await triage.discard([*ids.values(), "gr-nothing", ids["dead"]], actor=ACTOR, reason="hopeless")
    gone = dict.fromkeys((ids["dead"], ids["failed"], ids["cancelled"]), "discarded")
    assert answers == gone | {ids["succeeded"]: "succeeded", ids["queued"]: "queued"}
    for task_id in ids.values():
        after = await row_of(shared, task_id)
        changed = {name for name in after if after[name] != before[task_id][name]}
        assert changed == ({"discarded_at", "discarded_by", "updated_at"} if task_id in gone else set())
    events = {event["task_id"]: event for event in await said(shared, "evt.task.discarded")}
    assert set(events) == set(gone)
    for task_id, event in events.items():
        told = PAYLOADS[event["kind"]].model_validate_json(event["payload"]).model_dump()
        assert (told["actor"], told["reason"]) == (ACTOR, "hopeless")
        assert told["fingerprint"] == (
            before[task_id]["fingerprint"] if task_id != ids["cancelled"] else None
        )
    assert await triage.discard([ids["dead"]], actor=ACTOR) == {ids["dead"]: "discarded before"}


# ---------------------------------------------------------------- messages


async def letter(database: Database, *, content: bytes = b"{no json", workspace: str = "default") -> UUID:
    """Keep a rejected message."""
    headers = {"Nats-Msg-Id": "m", "traceparent": "00-a-b-01", "Grns-Workspace": "other"}
    corpse = RejectedMessage(
        "bad_json", "no JSON", shared_execute(workspace), "GRNS_CMD", uuid4().int % 10**9, 1, headers,
        content,
    )  # fmt: skip
    await store_rejected(database, [corpse])
    rows = await fetch(database, "select id from grns.dead_letters order by created_at desc limit 1")
    found: UUID = rows[0]["id"]
    return found


async def state_of(database: Database, dead_letter_id: UUID) -> str:
    """Return what became of a message."""
    rows = await fetch(database, "select state from grns.dead_letters where id = $1", dead_letter_id)
    return str(rows[0]["state"])


async def test_messages_are_closed_once(shared: Database, triage: Triage) -> None:
    one, another = await letter(shared), await letter(shared)
    assert await triage.discard_messages([one, another, uuid4()], actor=ACTOR, reason="noise") == {
        one,
        another,
    }
    assert await triage.discard_messages([one], actor=ACTOR) == set()
    events = await said(shared, "evt.dead_letter.discarded")
    assert {event["causation_id"] for event in events} == {one, another}
    for event in events:
        told = PAYLOADS[event["kind"]].model_validate_json(event["payload"]).model_dump()
        assert (told["reason"], told["subject"], told["actor"]) == ("bad_json", "cmd.task.execute.v1", ACTOR)
        assert json.loads(event["payload"])["why"] == "noise"
    assert await state_of(shared, one) == "discarded"


async def test_another_workspaces_messages_are_not_there(shared: Database, triage: Triage) -> None:
    theirs = await letter(shared, workspace="other")
    assert await triage.discard_messages([theirs], actor=ACTOR) == set()
    for look in (triage.message(theirs), triage.resend(theirs, actor=ACTOR), triage.message(uuid4())):
        with pytest.raises(NotFoundError):
            await look


@asynccontextmanager
async def on_the_bus(database: Database, broker: LocalNats) -> AsyncIterator[tuple[Triage, list[Any]]]:
    """Triage with a broker, and all commands that anybody sends."""
    heard: list[Any] = []

    async def note(message: Any) -> None:
        heard.append(message)

    listener = await nats.connect(broker.url)
    app = App(settings_for(database.url, broker.url))
    transport = app.transport("test")
    await transport.connect()
    try:
        await transport.provision()
        await listener.subscribe("cmd.>", cb=note)
        await listener.flush()
        yield tools.triage(app, database, transport), heard
    finally:
        await transport.close()
        await listener.close()


async def test_a_message_is_sent_again_once(shared: Database, broker: LocalNats) -> None:
    """Without what the broker acts on: it would be refused, or taken for the one that came before."""
    content = body()
    dead_letter_id = await letter(shared, content=content)
    async with on_the_bus(shared, broker) as (triage, heard):
        answers = await asyncio.gather(
            *(triage.resend(dead_letter_id, actor=ACTOR, reason="mended elsewhere") for _ in range(3)),
            return_exceptions=True,
        )
        assert sorted(type(answer).__name__ for answer in answers) == [
            "ConflictError",
            "ConflictError",
            "NoneType",
        ]

        async def is_heard() -> bool:
            return bool(heard)

        await eventually(is_heard)
        with pytest.raises(ConflictError, match="was redriven before"):
            await triage.resend(dead_letter_id, actor=ACTOR)
    (message,) = heard
    assert (message.subject, message.data) == ("cmd.task.execute.v1", content)
    assert message.headers["traceparent"] != "00-a-b-01"
    assert message.headers["Grns-Workspace"] == "default"
    assert message.headers["Nats-Msg-Id"] != "m"
    (event,) = await said(shared, "evt.dead_letter.resent")
    told = PAYLOADS[event["kind"]].model_validate_json(event["payload"]).model_dump()
    assert (told["actor"], told["is_fixed"], event["actor"]) == (ACTOR, False, ACTOR)
    assert await state_of(shared, dead_letter_id) == "redriven"


async def test_a_message_is_mended_and_sent_again(shared: Database, broker: LocalNats) -> None:
    dead_letter_id, content = await letter(shared), body()
    async with on_the_bus(shared, broker) as (triage, heard):
        with pytest.raises(InvalidInputError) as caught:
            await triage.resend(dead_letter_id, actor=ACTOR, mend=MessagePatch(body=b"{}"))
        assert caught.value.code == "bad_envelope"
        assert await state_of(shared, dead_letter_id) == "new", "it can be mended better"
        wanted = MessagePatch("cmd.task.execute.v1", body=content)
        await triage.resend(dead_letter_id, actor=ACTOR, mend=wanted)

        async def is_heard() -> bool:
            return bool(heard)

        await eventually(is_heard)
    (message,) = heard
    assert (message.subject, message.data) == ("cmd.task.execute.v1", content)
    (event,) = await said(shared, "evt.dead_letter.resent")
    assert json.loads(event["payload"])["is_fixed"] is True


async def test_resend_that_is_refused_publishes_nothing(shared: Database, broker: LocalNats) -> None:
    """M1: neither a changed message nor one as it came becomes an event or another workspace's command."""
    broken = await letter(shared)
    event = body("evt.task.completed")
    async with on_the_bus(shared, broker) as (triage, heard):
        for mend in (
            None,
            MessagePatch("evt.task.completed.v1", {"Grns-Workspace": "other"}, event),
            MessagePatch("cmd.task.execute.v1.default.worker.p0", body=body()),
            MessagePatch("cmd.task.execute.v1.other", body=body()),
        ):
            with pytest.raises(InvalidInputError):
                await triage.resend(broken, actor=ACTOR, mend=mend)
        assert await state_of(shared, broken) == "new"
        await triage.resend(broken, actor=ACTOR, mend=MessagePatch(body=body()))

        async def is_heard() -> bool:
            return bool(heard)

        await eventually(is_heard)
    assert [message.subject for message in heard] == ["cmd.task.execute.v1"]
