"""Everything bad that can be published: each message gets one dead letter, and nobody waits for it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from itertools import groupby
from typing import Any

import nats
import pytest
from nats.aio.client import Client as Nats
from nats.aio.msg import Msg
from nats.js.errors import Error as JetStreamError

from grns.dev.servers import LocalNats
from grns.model import subjects
from grns.model.events import MessageRejected
from grns.postgres.database import Database
from tests.fuzz.inputs import BUNCH, Sample, bunch
from tests.fuzz.verdict import judge
from tests.support.bad_input import (
    ACCEPTED,
    NUMBERS_AS_TIME,
    RESERVED_TYPE,
    Case,
    command,
    encoded,
    envelope,
    messages,
)
from tests.support.harness import Fleet, all_in, eventually, manage, ready, submit

FRONT_DOOR = subjects.shared_execute()
PRIORITY_SUBJECT = subjects.priority_subject("default", "worker", 2)
HEAD_BYTES = 4096
PROMPT_SECONDS = 5.0
FLOOD = 3000
AT_ONCE = 100

# What has the form of an envelope, and does not belong on the subject of a command that runs a task.
STRAYS = [
    Case("unknown_kind", encoded(envelope(kind="cmd.task.run")), "kind_mismatch"),
    Case("an_event", encoded(envelope(kind="evt.task.queued")), "kind_mismatch"),
    *[Case(case.name, encoded(case.value), case.code) for case in (*NUMBERS_AS_TIME, RESERVED_TYPE)],
]
CASES = sorted([*messages(), *STRAYS], key=lambda case: case.code)


@pytest.fixture
async def foreign(broker: LocalNats) -> AsyncIterator[Nats]:
    """A plain connection to the broker."""
    client = await nats.connect(broker.url)
    yield client
    await client.close()


async def is_open(foreign: Nats) -> bool:
    """Say whether a worker listens at its front door and on its lane."""
    try:
        for subject in (FRONT_DOOR, PRIORITY_SUBJECT):
            found = await foreign.jetstream().consumer_info("GRNS_CMD", subjects.durable(subject))
            if not found.num_waiting:
                return False
    except (JetStreamError, nats.errors.Error):
        return False
    return True


async def publish(foreign: Nats, subject: str, body: bytes) -> int:
    """Publish one message without any header; returns its place in the stream."""
    return (await foreign.jetstream().publish(subject, body)).seq


async def letters(database: Database) -> dict[int, Any]:
    """Return all dead letters, by the place of their message in the stream."""
    async with database.connection() as connection:
        rows = await connection.fetch("select * from grns.dead_letters")
    found = {row["stream_seq"]: row for row in rows}
    assert len(found) == len(rows), "one letter for each message"
    return found


def _subjects(case: Case) -> Sequence[str]:
    # On a priority subject two lines are two envelopes: see tests/nats/test_delivery_parts.py
    return (FRONT_DOOR,) if case.name == "two_lines" else (FRONT_DOOR, PRIORITY_SUBJECT)


async def test_each_bad_message_gets_one_dead_letter_and_delays_nobody(
    fleet: Fleet, database: Database, broker: LocalNats, foreign: Nats
) -> None:
    heard: list[Msg] = []

    async def note(message: Msg) -> None:
        heard.append(message)

    await foreign.subscribe("dlq.>", cb=note)
    server = fleet.start("server")
    worker = fleet.start("worker", "start", "tests.support.pools:pool", "--concurrency", "4")
    await ready(database, worker)
    await eventually(lambda: is_open(foreign))

    published: dict[int, tuple[str, Case]] = {}
    good: list[str] = []
    for _, kind in groupby(CASES, key=lambda case: case.code):
        for case in kind:
            for subject in _subjects(case):
                published[await publish(foreign, subject, case.value)] = (subject, case)
        task = await submit(database, payload={"after": case.code}, priority=2)
        good.append(task.id)
        await publish(foreign, FRONT_DOOR, encoded(command(task_id=task.id)))

    rows = await all_in(database, good, within_seconds=PROMPT_SECONDS)
    assert {row["attempt"] for row in rows.values()} == {1}
    waits = [(row["started_at"] - row["created_at"]).total_seconds() for row in rows.values()]
    assert max(waits) < PROMPT_SECONDS

    async def are_buried() -> bool:
        return len(await letters(database)) >= len(published)

    await eventually(are_buried)
    found = await letters(database)
    assert set(found) == set(published)
    wrong = [
        (case.name, subject, found[seq]["reason"])
        for seq, (subject, case) in published.items()
        if found[seq]["reason"] != case.code
    ]
    assert not wrong
    for seq, (subject, case) in published.items():
        _check_letter(found[seq], subject, case)

    async def are_told() -> bool:
        return len(heard) >= len(published)

    await eventually(are_told)
    assert Counter(message.subject for message in heard) == {"dlq.message.rejected.v1": len(published)}
    told = {(body := json.loads(message.data))["payload"]["stream_seq"]: body for message in heard}
    assert set(told) == set(published)
    for seq, body in told.items():
        _check_told(body, published[seq][1])

    async def is_drained() -> bool:
        return not (await manage(broker.url, "STREAM.INFO.GRNS_CMD"))["state"]["messages"]

    await eventually(is_drained)
    assert (worker.poll(), server.poll()) == (None, None)
    assert fleet.facts_of(worker, "task_crashed") == []
    assert len(await letters(database)) == len(published), "nothing was delivered twice"


def _check_letter(row: Any, subject: str, case: Case) -> None:
    assert (row["stream"], row["subject"], row["state"]) == ("GRNS_CMD", subject, "new"), case.name
    assert row["body"] == case.value, case.name
    assert row["body_sha256"] == hashlib.sha256(case.value).hexdigest()
    assert row["workspace"] == "default"
    assert row["delivery_count"] >= 1, "more where a busy worker gave it back first"
    assert 0 < len(row["detail"]) < 400


def _check_told(body: dict[str, Any], case: Case) -> None:
    said = MessageRejected.model_validate(body["payload"])
    assert (said.reason, said.body_size) == (case.code, len(case.value))
    assert base64.b64decode(said.body_base64) == case.value[:HEAD_BYTES]
    assert said.body_sha256 == hashlib.sha256(case.value).hexdigest()


async def flood(foreign: Nats, samples: list[Sample]) -> dict[int, Sample]:
    """Publish all of them; returns them by their places in the stream."""
    places: dict[int, Sample] = {}
    for start in range(0, len(samples), AT_ONCE):
        part = samples[start : start + AT_ONCE]
        found = await asyncio.gather(*(publish(foreign, sample.subject, sample.body) for sample in part))
        places |= dict(zip(found, part, strict=True))
    return places


@pytest.mark.timeout(180)
async def test_a_flood_of_fuzzed_messages_is_answered_and_hangs_nobody(
    fleet: Fleet, database: Database, broker: LocalNats, foreign: Nats
) -> None:
    """Each gets its dead letter: what is no command at once, and one of a task that is not there later."""
    fleet.start("server")
    worker = fleet.start("worker", "start", "tests.support.pools:pool", "--concurrency", "4")
    await ready(database, worker)
    await eventually(lambda: is_open(foreign))
    first = random.randrange(2**32)
    bodies = [sample.body for number in range(FLOOD // BUNCH) for sample in bunch(first + number)]
    samples = [  # on a priority subject lines are envelopes
        Sample("flood", PRIORITY_SUBJECT if n % 2 and b"}\n{" not in body else FRONT_DOOR, body)
        for n, body in enumerate(bodies)
    ]
    places = await flood(foreign, samples)
    expected = {seq: judge(sample) for seq, sample in places.items()}
    rejected = {seq for seq, code in expected.items() if code != ACCEPTED}
    assert len(rejected) < len(expected), "some of them are commands"

    async def are_buried() -> bool:
        return rejected <= set(await letters(database))

    await eventually(are_buried, within_seconds=60.0)
    good = [(await submit(database, priority=priority)).id for priority in (0, 2, 3)]
    await publish(foreign, FRONT_DOOR, encoded(command(task_id=good[0])))
    rows = await all_in(database, good, within_seconds=PROMPT_SECONDS)
    assert {row["attempt"] for row in rows.values()} == {1}

    async def are_all_answered() -> bool:
        return len(await letters(database)) >= len(expected)

    await eventually(are_all_answered, within_seconds=60.0)
    answers = {seq: row["reason"] for seq, row in (await letters(database)).items()}
    unlike = {
        seq: (answers.get(seq), code)
        for seq, code in expected.items()
        if answers.get(seq) != (code if code != ACCEPTED else "unknown_task")
    }
    assert not unlike, f"of the bunches from {first} on"
    assert set(answers) == set(expected)

    async def is_drained() -> bool:
        return not (await manage(broker.url, "STREAM.INFO.GRNS_CMD"))["state"]["messages"]

    await eventually(is_drained)
    assert worker.poll() is None
    assert fleet.facts_of(worker, "task_crashed") == []


async def test_hostile_headers_are_kept_as_text(fleet: Fleet, database: Database, foreign: Nats) -> None:
    worker = fleet.start("worker", "start", "tests.support.pools:pool")
    await ready(database, worker)
    await eventually(lambda: is_open(foreign))
    headers = {
        "X-Text": "é <script> '; drop table tasks;--",
        "Nats-Msg-Id": "x" * 5000,
        "X-Long": "y" * 50_000,
    }
    seq = (await foreign.jetstream().publish(FRONT_DOOR, b"no command", headers=headers)).seq

    async def is_buried() -> Any:
        return (await letters(database)).get(seq)

    row = await eventually(is_buried)
    kept = json.loads(row["headers"])
    assert kept["X-Text"] == headers["X-Text"]
    assert all(len(value) <= 2000 for value in kept.values())


async def test_one_message_id_for_two_tasks_runs_both(
    fleet: Fleet, database: Database, foreign: Nats
) -> None:
    """The id is the sender's word; what is run is decided by the rows."""
    worker = fleet.start("worker", "start", "tests.support.pools:pool")
    await ready(database, worker)
    await eventually(lambda: is_open(foreign))
    ids = [(await submit(database)).id for _ in range(2)]
    liar = command(task_id=ids[0])
    liar |= {"status": "succeeded", "attempt": 99, "owner_agent_id": "me"}
    other = liar | {"payload": liar["payload"] | {"task_id": ids[1]}}
    await asyncio.gather(*(publish(foreign, FRONT_DOOR, encoded(one)) for one in (liar, liar, other)))
    rows = await all_in(database, ids, within_seconds=PROMPT_SECONDS)
    assert {row["attempt"] for row in rows.values()} == {1}
    assert not await letters(database)
