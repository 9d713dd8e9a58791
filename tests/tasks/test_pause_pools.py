"""Pausing pools at both places: the row in Postgres decides, and the lanes' durables follow it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from grns.bootstrap import services as daemons
from grns.bootstrap.app import App
from grns.dev.servers import LocalNats
from grns.errors import InvalidInputError
from grns.model import subjects
from grns.nats import JetStream
from grns.postgres.database import Database
from grns.tasks import pause_pools as pause
from grns.tasks.pause_pools import PausedSubjects, PoolPauses
from grns.tasks.pauses import in_force
from tests.support.harness import eventually, manage, settings_for
from tests.support.store import fetch

ACTOR = "cli:me@here"
PRIORITY_SUBJECTS = [
    subjects.priority_subject("default", "worker", priority) for priority in subjects.PRIORITIES
]
OTHERS = [subjects.priority_subject("default", "writer", 2), subjects.shared_execute()]


@pytest.fixture
def database(shared: Database) -> Database:
    """The shared database: no test here changes its schema."""
    return shared


@pytest.fixture
async def transport(database: Database, broker: LocalNats) -> AsyncIterator[JetStream]:
    """A connection to a broker with durables for the lanes of two pools, and for the front door."""
    transport = App(settings_for(database.url, broker.url)).transport("test")
    await transport.connect()
    await transport.provision()
    for subject in (*PRIORITY_SUBJECTS, *OTHERS):
        consumer = await transport.consume(subject, lambda delivery: None, depth=1)
        await consumer.stop()
    yield transport
    await transport.close()


@pytest.fixture
def pauses(database: Database, transport: JetStream) -> PoolPauses:
    """What pauses the pools of the default workspace."""
    return PoolPauses(database=database, transport=transport, workspace="default")


async def left(broker: LocalNats) -> dict[str, float]:
    """Return for how many seconds each durable will yet be paused, of those that are, by subject."""
    durables = (await manage(broker.url, "CONSUMER.LIST.GRNS_CMD"))["consumers"]
    return {
        one["config"]["filter_subject"]: one["pause_remaining"] / 1e9 for one in durables if one.get("paused")
    }


async def test_the_lanes_of_a_paused_pool_are_paused_and_go_on_with_it(
    pauses: PoolPauses, broker: LocalNats
) -> None:
    begun = await pauses.pause("worker", actor=ACTOR, reason="deploy")
    assert (begun.agent_type, begun.task_type, begun.paused_by, begun.until) == ("worker", None, ACTOR, None)
    seconds = await left(broker)
    assert sorted(seconds) == sorted(PRIORITY_SUBJECTS), (
        "neither those of another pool, nor what all pools share"
    )
    assert all(50 < rest <= 60 for rest in seconds.values()), "a minute, and not for ever"
    ended = await pauses.resume("worker", actor=ACTOR)
    assert ended is not None
    assert (ended.reason, await left(broker)) == ("deploy", {})
    assert await pauses.resume("worker", actor=ACTOR) is None


async def test_a_pause_of_a_type_leaves_the_lanes_alone(
    pauses: PoolPauses, database: Database, broker: LocalNats
) -> None:
    await pauses.pause("worker", "noop", actor=ACTOR)
    assert await left(broker) == {}
    await pauses.pause("worker", actor=ACTOR)
    await pauses.resume("worker", "noop", actor=ACTOR)
    assert sorted(await left(broker)) == sorted(PRIORITY_SUBJECTS)
    await pauses.pause("worker", "noop", actor=ACTOR)
    await pauses.resume("worker", actor=ACTOR)
    assert await left(broker) == {}
    assert [one.task_type for one in await in_force(database, "default", ["worker"])] == ["noop"]


async def test_lanes_go_on_no_later_than_the_pause_is_over(pauses: PoolPauses, broker: LocalNats) -> None:
    await pauses.pause("worker", actor=ACTOR, until=3600.0)
    assert max((await left(broker)).values()) > 50
    await pauses.pause("worker", actor=ACTOR, until=20.0)
    assert all(0 < rest <= 20 for rest in (await left(broker)).values())


async def test_without_a_broker_a_pool_is_paused_all_the_same(database: Database) -> None:
    pauses = PoolPauses(
        database=database, transport=App(settings_for(database.url)).transport("test"), workspace="default"
    )
    await pauses.pause("worker", actor=ACTOR)
    assert len(await in_force(database, "default", ["worker"])) == 1
    assert await pauses.resume("worker", actor=ACTOR) is not None
    assert await in_force(database, "default", ["worker"]) == []


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({"agent_type": "a.b"}, "bad_name"),
        ({"agent_type": "instance"}, "bad_name"),
        ({"task_type": ""}, "bad_name"),
        ({"task_type": "a b"}, "bad_name"),
        ({"reason": "x" * 1001}, "bad_reason"),
        ({"reason": "\x00"}, "bad_reason"),
        ({"until": -1.0}, "bad_until"),
        ({"until": datetime(2020, 1, 1, tzinfo=UTC)}, "bad_until"),
    ],
)
async def test_what_cannot_be_paused_is_refused(
    pauses: PoolPauses, database: Database, broker: LocalNats, wanted: dict[str, Any], code: str
) -> None:
    asked: dict[str, Any] = {"agent_type": "worker", "actor": ACTOR} | wanted
    with pytest.raises(InvalidInputError) as refused:
        await pauses.pause(**asked)
    assert refused.value.code == code
    assert await fetch(database, "select from grns.pauses") == []
    assert await left(broker) == {}


async def test_lanes_are_kept_paused_some_pools_at_a_time(
    database: Database,
    pauses: PoolPauses,
    transport: JetStream,
    broker: LocalNats,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So they are where the broker was away, or had lost its durables, when somebody paused the pool."""
    monkeypatch.setattr(pause, "_PAGE", 1)
    for agent_type in ("worker", "writer"):
        await pauses.pause(agent_type, actor=ACTOR)
    for one in (await manage(broker.url, "CONSUMER.LIST.GRNS_CMD"))["consumers"]:
        await manage(
            broker.url, f"CONSUMER.PAUSE.GRNS_CMD.{one['name']}", {"pause_until": "1970-01-01T00:00:00Z"}
        )
    lanes = PausedSubjects(database=database, transport=transport)
    assert await lanes.step()
    assert sorted(await left(broker)) == sorted(PRIORITY_SUBJECTS)
    assert await lanes.step()
    assert sorted(await left(broker)) == sorted([*PRIORITY_SUBJECTS, OTHERS[0]])
    assert not await lanes.step()
    assert await lanes.step(), "it begins anew"


async def test_the_janitor_ends_what_is_over_and_keeps_lanes_paused(
    database: Database, pauses: PoolPauses, transport: JetStream, broker: LocalNats
) -> None:
    await pauses.pause("writer", actor=ACTOR, until=60.0)
    await fetch(database, "update grns.pauses set until = now()")
    await pauses.pause("worker", actor=ACTOR)
    await manage(broker.url, f"CONSUMER.DELETE.GRNS_CMD.{subjects.durable(PRIORITY_SUBJECTS[0])}")
    consumer = await transport.consume(PRIORITY_SUBJECTS[0], lambda delivery: None, depth=1)
    assert PRIORITY_SUBJECTS[0] not in await left(broker), "it was made anew"
    janitor = daemons.janitor(
        App(settings_for(database.url, broker.url, janitor_interval_seconds=0.1)), database, transport
    )
    running = asyncio.create_task(janitor.run())

    async def is_done() -> bool:
        rows = await fetch(database, "select agent_type from grns.pauses")
        return [row["agent_type"] for row in rows] == ["worker"] and set(PRIORITY_SUBJECTS) <= set(
            await left(broker)
        )

    await eventually(is_done)
    janitor.stop()
    await running
    await consumer.stop()
    (end,) = await fetch(database, "select actor, payload from grns.events where kind = 'evt.pool.resumed'")
    assert (end["actor"], "writer" in end["payload"]) == (None, True)
