"""A request desk is killed at each of its moments: what was asked for happens once, and is heard of."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from typing import Any

import nats
import nats.errors
import pytest
from nats.aio.client import Client as Nats

from grns.dev.servers import LocalNats
from grns.postgres.database import Database
from tests.support.bad_input import encoded
from tests.support.commands import (
    ASK_SUBMIT,
    CANCEL,
    SUBMIT,
    Answer,
    ask,
    cancellation,
    is_drained,
    ready,
    submission,
)
from tests.support.harness import START_SECONDS, Fleet, eventually, submit_many
from tests.support.store import fetch, kinds_of

pytestmark = pytest.mark.timeout(180)

LEASE = 2.0
ENVIRONMENT = {"GRNS_LEASE_SECONDS": str(LEASE)}
MANY = 30


@pytest.fixture
async def foreign(broker: LocalNats) -> AsyncIterator[Nats]:
    """A plain connection to the broker."""
    client = await nats.connect(broker.url)
    yield client
    await client.close()


async def start(fleet: Fleet, foreign: Nats, failpoint: str) -> subprocess.Popen[bytes]:
    """Start a desk that dies at a moment, and wait until it is open."""
    desk = fleet.start("daemon", "command-server", GRNS_FAILPOINTS=failpoint, **ENVIRONMENT)
    await eventually(lambda: _is_open(foreign), within_seconds=START_SECONDS)
    return desk


async def _is_open(foreign: Nats) -> bool:
    try:
        await foreign.request(ASK_SUBMIT, b"are you there", timeout=5)
    except (nats.errors.NoRespondersError, nats.errors.TimeoutError):
        return False
    await ready(foreign)
    return True


async def died(desk: subprocess.Popen[bytes]) -> None:
    """Wait until it has been killed."""

    async def is_gone() -> bool:
        return desk.poll() is not None

    await eventually(is_gone)
    assert desk.returncode == -signal.SIGKILL


async def ask_until_answered(foreign: Nats, message: Mapping[str, Any]) -> Answer:
    """Ask again and again, under the same id, as whoever gets no answer does."""

    async def look() -> Answer | None:
        try:
            return await ask(foreign, ASK_SUBMIT, message)
        except nats.errors.NoRespondersError:
            return None

    answer = await eventually(look, within_seconds=START_SECONDS)
    assert answer is not None
    return answer


@pytest.mark.parametrize("moment", ["mark_messages.asked", "mark_messages.answered", "commands.executed"])
async def test_commands_are_carried_out_once_whenever_a_desk_dies(
    fleet: Fleet, database: Database, foreign: Nats, moment: str
) -> None:
    victim = await start(fleet, foreign, f"{moment}=kill#1")
    messages = [submission(payload={"n": number}) for number in range(MANY)]
    for message in messages:
        await foreign.jetstream().publish(SUBMIT, encoded(message))
    await died(victim)
    fleet.start("daemon", "command-server", **ENVIRONMENT)
    await eventually(lambda: is_drained(foreign), within_seconds=START_SECONDS)
    rows = await fetch(database, "select id, idempotency_key, payload ->> 'n' as n from grns.tasks")
    assert {row["idempotency_key"]: row["n"] for row in rows} == {
        message["message_id"]: str(number) for number, message in enumerate(messages)
    }
    assert len(rows) == MANY
    for row in rows:
        assert await kinds_of(database, row["id"]) == ["evt.task.queued", "cmd.task.execute"]
    assert not await fetch(database, "select from grns.dead_letters")


@pytest.mark.parametrize("moment", ["mark_messages.answered", "commands.executed"])
async def test_tasks_are_ended_once_whenever_a_desk_dies(
    fleet: Fleet, database: Database, foreign: Nats, moment: str
) -> None:
    victim = await start(fleet, foreign, f"{moment}=kill#1")
    ids = await submit_many(database, MANY)
    for task_id in ids:
        await foreign.jetstream().publish(CANCEL, encoded(cancellation(task_id)))
    await died(victim)
    fleet.start("daemon", "command-server", **ENVIRONMENT)
    await eventually(lambda: is_drained(foreign), within_seconds=START_SECONDS)
    for task_id in ids:
        kinds = await kinds_of(database, task_id)
        assert kinds == ["evt.task.queued", "cmd.task.execute", "evt.task.cancelled"]


@pytest.mark.parametrize(
    ("moment", "word"), [("mark_messages.answered", "created"), ("commands.not_answered", "repeated")]
)
async def test_whoever_hears_nothing_asks_again_and_hears_of_the_same_task(
    fleet: Fleet, database: Database, foreign: Nats, moment: str, word: str
) -> None:
    victim = await start(fleet, foreign, f"{moment}=kill#1")
    message = submission(payload={"n": 1})
    with pytest.raises(nats.errors.TimeoutError):
        await foreign.request(ASK_SUBMIT, encoded(message), timeout=3)
    await died(victim)
    fleet.start("daemon", "command-server", **ENVIRONMENT)
    answer = await ask_until_answered(foreign, message)
    (row,) = await fetch(database, "select id from grns.tasks")
    assert (answer.word, answer.body["id"]) == (word, row["id"])


async def test_of_two_desks_one_that_dies_is_missed_by_nobody_who_asks_again(
    fleet: Fleet, database: Database, foreign: Nats
) -> None:
    victim = await start(fleet, foreign, "commands.not_answered=kill#5")
    fleet.start("daemon", "command-server", **ENVIRONMENT)
    await eventually(lambda: _are_two(foreign), within_seconds=START_SECONDS)
    messages = [submission(payload={"n": number}) for number in range(MANY)]
    heard: set[str] = set()
    for message in messages:
        try:
            said = await foreign.request(ASK_SUBMIT, encoded(message), timeout=2)
        except nats.errors.TimeoutError:
            answer = await ask_until_answered(foreign, message)
            heard.add(answer.body["id"])
        else:
            heard.add(Answer.of(said).body["id"])
    await died(victim)
    rows = await fetch(database, "select id from grns.tasks")
    assert heard == {row["id"] for row in rows}
    assert len(rows) == MANY


async def _are_two(foreign: Nats) -> bool:
    await ready(foreign, 2)
    return True
