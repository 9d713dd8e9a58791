"""What somebody has changed is in the log: with who did it, and in the transaction of the change."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from grns.errors import InvalidInputError
from grns.postgres.audit_log import note
from grns.postgres.database import Database
from tests.schemas.test_export import EXAMPLES
from tests.support.store import ACTOR, fetch, log_of, place, row_of

PAUSED: dict[str, Any] = {"agent_type": "crawler", "until": datetime(2030, 1, 1, tzinfo=UTC)}


async def test_it_is_told_who_did_it(shared: Database) -> None:
    message_id = await note(shared, workspace="acme", kind="evt.pool.paused", actor=ACTOR, payload=PAUSED)
    (row,) = await fetch(shared, "select * from grns.events")
    assert (row["message_id"], row["workspace"], row["kind"], row["actor"]) == (
        message_id, "acme", "evt.pool.paused", ACTOR,
    )  # fmt: skip
    assert (row["task_id"], row["version"], row["was"], row["causation_id"]) == (None, 0, None, None)
    assert len(row["trace_id"]) == 32
    assert json.loads(row["payload"]) == {
        "actor": ACTOR, "agent_type": "crawler", "task_type": None, "until": "2030-01-01T00:00:00Z",
        "reason": None,
    }  # fmt: skip


async def test_what_is_noted_of_a_task_is_of_its_version_and_moves_it_not(shared: Database) -> None:
    task_id = (await place(shared, "retry_wait")).id
    before = await row_of(shared, task_id)
    await note(
        shared, workspace="default", kind="evt.task.changed", actor=ACTOR, task_id=task_id,
        payload={"task_id": task_id, "fields": ["priority"], "priority": 0},
    )  # fmt: skip
    last = (await log_of(shared, task_id))[-1]
    assert (last["kind"], last["version"], last["attempt"], last["trace_id"], last["causation_id"]) == (
        "evt.task.changed", before["version"], 1, before["trace_id"], before["last_message_id"],
    )  # fmt: skip
    assert await row_of(shared, task_id) == before


async def test_it_is_there_when_the_change_is(shared: Database) -> None:
    class UndoneError(Exception):
        pass

    async def change(*, is_undone: bool) -> None:
        async with shared.transaction() as connection:
            await note(connection, workspace="default", kind="evt.pool.paused", actor=None, payload=PAUSED)
            if is_undone:
                raise UndoneError

    with pytest.raises(UndoneError):
        await change(is_undone=True)
    assert not await fetch(shared, "select from grns.events")
    await change(is_undone=False)
    assert len(await fetch(shared, "select from grns.events where actor is null")) == 1


@pytest.mark.parametrize("kind", [kind for kind in EXAMPLES if "actor" in EXAMPLES[kind]])
async def test_each_kind_of_change_can_be_noted(shared: Database, kind: str) -> None:
    payload = {name: value for name, value in EXAMPLES[kind].items() if name != "actor"}
    await note(shared, workspace="default", kind=kind, actor=ACTOR, payload=payload)
    (row,) = await fetch(shared, "select payload from grns.events")
    assert EXAMPLES[kind].items() <= json.loads(row["payload"]).items()


@pytest.mark.parametrize(
    ("kind", "actor", "payload", "code"),
    [
        ("evt.pool.stopped", ACTOR, PAUSED, "unknown_kind"),
        ("evt.pool.paused", ACTOR, {}, "bad_payload"),
        ("evt.pool.paused", "two words", PAUSED, "bad_payload"),
        ("evt.pool.paused", ACTOR, PAUSED | {"reason": "\x00"}, "bad_string"),
    ],
)
async def test_what_fits_no_kind_is_not_noted(
    shared: Database, kind: str, actor: str, payload: dict[str, Any], code: str
) -> None:
    with pytest.raises(InvalidInputError) as raised:
        await note(shared, workspace="default", kind=kind, actor=actor, payload=payload)
    assert raised.value.code == code
    assert not await fetch(shared, "select from grns.events")
