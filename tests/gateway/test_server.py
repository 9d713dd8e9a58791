"""The request desk, on real servers: asked and commanded, flooded, and left without its servers."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import nats
import pytest
from nats.aio.client import Client as Nats

from grns.dev.servers import LocalNats
from grns.gateway.server import COMMANDS, REQUESTS, RequestWindow
from grns.model import subjects
from grns.nats.provision import expected_durable
from grns.postgres.database import Database
from grns.telemetry.service_signals import ServiceStarted, TickFailed
from grns.telemetry.task_signals import CommandCrashed, CommandHandled, RequestWindowFull
from tests.fuzz.inputs import BUNCH, bunch
from tests.gateway.test_task_command import reason_of
from tests.support.bad_input import ACCEPTED, encoded
from tests.support.commands import (
    ANSWER_SECONDS,
    ASK_CANCEL,
    ASK_SUBMIT,
    CANCEL,
    SIGNAL,
    SUBMIT,
    Answer,
    ask,
    cancellation,
    is_drained,
    ready,
    serving,
    submission,
)
from tests.support.harness import eventually, manage, settings_for, status_of
from tests.support.relays import Note
from tests.support.store import fetch, is_waiting_for_lock, stranger

TURNED_AWAY = (429, "too_many_requests")
APPLICATION = f"grns desk {os.getpid()}"
FLOOD = 600
_LOCK_ALL = "lock table grns.tasks in access exclusive mode"


@pytest.fixture
def database(shared: Database) -> Database:
    """The shared database: no test here changes its schema."""
    return shared


@pytest.fixture
async def foreign(broker: LocalNats) -> AsyncIterator[Nats]:
    """A plain connection to the broker, which comes back with it."""

    async def say_nothing(_error: Exception) -> None: ...

    client = await nats.connect(
        broker.url, max_reconnect_attempts=-1, reconnect_time_wait=0.1, error_cb=say_nothing
    )
    yield client
    await client.close()


@pytest.fixture
async def note(database: Database, broker: LocalNats, foreign: Nats) -> AsyncIterator[Note]:
    """What a desk tells, which runs meanwhile."""
    async with serving(database.url, broker.url) as told:
        await ready(foreign)
        yield told


async def tasks(database: Database) -> list[Any]:
    """Return all tasks, as they were created."""
    return await fetch(database, "select * from grns.tasks order by created_at, id")


async def publish(foreign: Nats, subject: str, message: Any) -> int:
    """Publish a command; returns its place in the stream."""
    return (await foreign.jetstream().publish(subject, encoded(message))).seq


# ---------------------------------------------------------------- what is asked for


async def test_a_task_is_created_and_ended_by_request(note: Note, database: Database, foreign: Nats) -> None:
    created = await ask(foreign, ASK_SUBMIT, submission(payload={"n": 1}))
    assert (created.word, created.body["status"]) == ("created", "queued")
    ended = await ask(foreign, ASK_CANCEL, cancellation(created.body["id"], reason="enough"))
    assert (ended.word, ended.body["status"]) == ("cancelled", "cancelled")
    assert await status_of(database, created.body["id"]) == "cancelled"
    assert (await ask(foreign, ASK_CANCEL, b"{}")).problem == (400, "bad_envelope")


async def test_a_task_is_created_and_ended_by_command(note: Note, database: Database, foreign: Nats) -> None:
    message = submission(payload={"n": 1})
    for _ in range(2):
        await publish(foreign, SUBMIT, message)
    await eventually(lambda: is_drained(foreign))
    (task,) = await tasks(database)
    assert task["idempotency_key"] == message["message_id"]
    await publish(foreign, CANCEL, cancellation(task["id"]))
    await eventually(lambda: _has_status(database, task["id"], "cancelled"))
    await eventually(lambda: is_drained(foreign))


async def _has_status(database: Database, task_id: str, status: str) -> bool:
    return await status_of(database, task_id) == status


async def test_workspaces_have_subjects_of_their_own(note: Note, database: Database, foreign: Nats) -> None:
    asked = await ask(foreign, subjects.request(subjects.SUBMIT, "acme"), submission())
    assert asked.body["workspace"] == "acme"
    assert (await ask(foreign, ASK_CANCEL, cancellation(asked.body["id"]))).problem == (404, "not_found")
    await publish(foreign, subjects.message(subjects.SUBMIT, "umbrella"), submission())
    await publish(foreign, subjects.message(subjects.CANCEL, "acme"), cancellation(asked.body["id"]))
    await eventually(lambda: is_drained(foreign))
    found = {task["workspace"]: task["status"] for task in await tasks(database)}
    assert found == {"acme": "cancelled", "umbrella": "queued"}


async def test_what_cannot_be_accepted_is_a_dead_letter_and_delays_nobody(
    note: Note, database: Database, foreign: Nats
) -> None:
    jetstream = foreign.jetstream()
    bodies = [sample.body for number in range(5) for sample in bunch(number)]
    samples = [body for body in bodies if reason_of(body, SUBMIT) != ACCEPTED]  # chance makes good ones, too
    assert len(samples) > 40
    for body in samples:
        await jetstream.publish(SUBMIT, body)
    await publish(foreign, SUBMIT, submission())
    await eventually(lambda: is_drained(foreign))
    assert len(await tasks(database)) == 1
    letters = await fetch(database, "select from grns.dead_letters where stream = 'GRNS_CMD'")
    assert len(letters) == len(samples)


async def test_a_cancel_that_overtakes_its_task_waits_for_it(
    note: Note, database: Database, foreign: Nats
) -> None:
    async with stranger(database) as other:
        task_id = await other.fetchval("select grns.submit_task('noop')")
        await publish(foreign, CANCEL, cancellation(task_id))
        await eventually(lambda: _was_given_back(foreign))
        await other.execute("commit")
    await eventually(lambda: _has_status(database, task_id, "cancelled"))


async def _was_given_back(foreign: Nats) -> bool:
    info = await foreign.jetstream().consumer_info("GRNS_CMD", subjects.durable(CANCEL))
    return bool(info.num_redelivered)


# ---------------------------------------------------------------- who asks


async def test_answers_go_to_inboxes_only(
    note: Note, database: Database, broker: LocalNats, foreign: Nats
) -> None:
    """Whoever may ask us must not be able to write wherever we may."""
    await publish(foreign, subjects.shared_execute("nobody"), {"left": "in the stream"})
    for reply in ("$JS.API.STREAM.PURGE.GRNS_CMD", "evt.task.completed.v1", "cmd.task.execute.v1"):
        await foreign.publish(ASK_SUBMIT, encoded(submission()), reply=reply)
    await foreign.publish(ASK_SUBMIT, encoded(submission()))

    async def are_kept() -> bool:
        rows = await fetch(database, "select reason from grns.dead_letters")
        return [row["reason"] for row in rows] == ["no_reply"] * 4

    await eventually(are_kept)
    for stream, messages in (("GRNS_CMD", 1), ("GRNS_EVT", 0)):
        assert (await manage(broker.url, f"STREAM.INFO.{stream}"))["state"]["messages"] == messages
    assert not await tasks(database)


async def test_whoever_has_gone_harms_nobody(note: Note, database: Database, foreign: Nats) -> None:
    for _ in range(20):
        await foreign.publish(ASK_SUBMIT, encoded(submission()), reply=foreign.new_inbox())
    asked = await ask(foreign, ASK_SUBMIT, submission())
    assert asked.word == "created"

    async def are_there() -> bool:
        return len(await tasks(database)) == 21

    await eventually(are_there)
    assert not await note.has_told(CommandCrashed)


async def test_desks_share_what_is_asked(database: Database, broker: LocalNats, foreign: Nats) -> None:
    async with serving(database.url, broker.url, count=3) as note:
        await ready(foreign, 3)
        answers = await asyncio.gather(*(ask(foreign, ASK_SUBMIT, submission()) for _ in range(60)))
        assert len({answer.body["id"] for answer in answers}) == 60
        handled = Counter(signal.answer for signal in note.emitted if isinstance(signal, CommandHandled))
        assert handled == {"created": 60}, "each of them once"


# ---------------------------------------------------------------- floods


async def test_beyond_the_window_requests_are_turned_away(
    database: Database, broker: LocalNats, foreign: Nats
) -> None:
    """At once, though those before them wait; and when these are through, there is room again."""
    async with serving(database.url, broker.url, request_window=2) as note, stranger(database) as other:
        await ready(foreign)
        await other.execute(_LOCK_ALL)
        insisting = [asyncio.create_task(_insist(foreign)) for _ in range(2)]

        async def is_full() -> bool:
            return (await ask(foreign, ASK_CANCEL, b"no order")).problem == TURNED_AWAY

        await eventually(is_full)
        assert await note.has_told(RequestWindowFull)
        await other.execute("rollback")
        assert {(await one).word for one in insisting} == {"created"}
        assert (await ask(foreign, ASK_SUBMIT, submission())).word == "created"
    assert len(await tasks(database)) == 3


async def _insist(foreign: Nats) -> Answer:
    """Ask for a task, again where that has waited for too long or came while the desk was full."""
    order = submission()
    while "Nats-Service-Error" in (answer := await ask(foreign, ASK_SUBMIT, order)).headers:
        assert answer.problem[0] in (429, 503)
    return answer


async def test_a_flood_of_rubbish_is_answered_and_hangs_nobody(
    note: Note, database: Database, foreign: Nats
) -> None:
    bodies = [sample.body for number in range(FLOOD // BUNCH) for sample in bunch(number)]
    answers = await asyncio.gather(*(ask(foreign, ASK_SUBMIT, body) for body in bodies))
    refused = [answer for answer in answers if "Nats-Service-Error" in answer.headers]
    assert len(refused) > 0.9 * len(answers), "some happen to be orders"
    assert all(answer.problem[0] in (400, 413, 429) for answer in refused)
    assert (await ask(foreign, ASK_SUBMIT, submission())).word == "created"
    assert not await note.has_told(CommandCrashed)
    assert not await fetch(database, "select from grns.dead_letters")


def test_the_window_is_one_of_requests_and_of_bytes() -> None:
    window = RequestWindow(requests=3, request_bytes=100)
    assert window.try_take(1000), "one alone may be of any size"
    assert not window.try_take(1)
    window.give(1000)
    assert [window.try_take(size) for size in (50, 51, 50, 0, 0)] == [True, False, True, True, False]
    window.give(50)
    assert window.try_take(50)


# ---------------------------------------------------------------- without its servers


async def test_what_cannot_be_done_now_is_said_or_done_later(
    note: Note, database: Database, foreign: Nats
) -> None:
    message, command = submission(), submission()
    async with stranger(database) as other:
        await other.execute(_LOCK_ALL)
        assert (await ask(foreign, ASK_SUBMIT, message)).problem == (503, "unavailable")
        await publish(foreign, SUBMIT, command)
        await eventually(lambda: is_waiting_for_lock(database, APPLICATION))
    await eventually(lambda: is_drained(foreign))
    assert (await ask(foreign, ASK_SUBMIT, message)).word == "created"
    assert {task["idempotency_key"] for task in await tasks(database)} == {
        message["message_id"],
        command["message_id"],
    }


async def test_what_loses_its_connection_on_the_way_may_be_asked_again(
    note: Note, database: Database, foreign: Nats
) -> None:
    message = submission()
    async with stranger(database) as other:
        await other.execute(_LOCK_ALL)
        asked = asyncio.create_task(ask(foreign, ASK_SUBMIT, message))
        await eventually(lambda: is_waiting_for_lock(database, APPLICATION))
        await fetch(
            database,
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and application_name = $1 and wait_event_type = 'Lock'",
            APPLICATION,
        )
        assert (await asked).problem == (503, "outcome_unknown")
    assert (await ask(foreign, ASK_SUBMIT, message)).word == "created"
    assert len(await tasks(database)) == 1


async def test_it_begins_without_a_broker_and_outlives_it(
    database: Database, broker: LocalNats, foreign: Nats
) -> None:
    await asyncio.to_thread(broker.stop)
    async with serving(database.url, broker.url) as note:
        await eventually(lambda: note.has_told(ServiceStarted))
        for _ in range(2):
            await asyncio.to_thread(broker.start)
            await ready(foreign)
            assert (await ask(foreign, ASK_SUBMIT, submission())).word == "created"
            await publish(foreign, SUBMIT, submission())
            await eventually(lambda: is_drained(foreign))
            await asyncio.to_thread(broker.kill)
    await asyncio.to_thread(broker.start)
    assert len(await tasks(database)) == 4


async def test_a_durable_that_is_not_ours_keeps_the_others_from_nothing(
    database: Database, broker: LocalNats, foreign: Nats
) -> None:
    async with serving(database.url, broker.url):
        await ready(foreign)
    name = subjects.durable(SUBMIT)
    await manage(broker.url, f"CONSUMER.DELETE.GRNS_CMD.{name}")
    config = expected_durable(SUBMIT, settings_for(database.url)) | {"filter_subject": "cmd.elsewhere"}
    request = {"stream_name": "GRNS_CMD", "config": config, "action": "create"}
    await manage(broker.url, f"CONSUMER.CREATE.GRNS_CMD.{name}", request)
    async with serving(database.url, broker.url) as note:
        await eventually(lambda: note.has_told(TickFailed))
        asked = await ask(foreign, ASK_SUBMIT, submission())
        await publish(foreign, CANCEL, cancellation(asked.body["id"]))
        await eventually(lambda: _has_status(database, asked.body["id"], "cancelled"))
        await manage(broker.url, f"CONSUMER.DELETE.GRNS_CMD.{name}")
        await publish(foreign, SUBMIT, submission())
        await eventually(lambda: is_drained(foreign))


async def test_what_is_under_way_at_the_end_comes_to_its_own(
    database: Database, broker: LocalNats, foreign: Nats
) -> None:
    """Nobody is left without an answer by a server that is updated."""
    async with stranger(database) as other:
        async with serving(database.url, broker.url) as note:
            await ready(foreign)
            await other.execute(_LOCK_ALL)
            asked = asyncio.create_task(ask(foreign, ASK_SUBMIT, submission()))
            await eventually(lambda: is_waiting_for_lock(database, APPLICATION))
            ending = asyncio.create_task(_end_soon(other))
        await ending
        assert (await asked).word == "created"
        assert not await note.has_told(CommandCrashed)
    with pytest.raises(nats.errors.NoRespondersError):
        await foreign.request(ASK_SUBMIT, b"", timeout=ANSWER_SECONDS)


async def _end_soon(other: asyncpg.Connection) -> None:
    await asyncio.sleep(0)  # the desk has been asked to end by then
    await other.execute("rollback")


def test_each_way_of_asking_is_served() -> None:
    agents = "cmd.agent.*.*.v1"
    kinds = (SUBMIT, CANCEL, SIGNAL, agents)
    assert [one for kind in kinds for one in (kind, f"{kind}.*")] == COMMANDS
    served = (subjects.SUBMIT, subjects.CANCEL, subjects.SIGNAL, subjects.AGENTS)
    asked = [subjects.request(kind) for kind in served]
    assert [subject for one in asked for subject in (one, f"{one}.*")] == REQUESTS
