"""Each time that is due is decided once, written down, and submits one task, or says why not."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from grns.errors import ContendedError, InvalidInputError, NotFoundError, UnavailableError
from grns.model.json import DEFAULT_LIMITS
from grns.model.outcome import Outcome, Suspension, Verb
from grns.nats import JetStream
from grns.postgres import audit_log
from grns.postgres.database import Connection, Database
from grns.schedules import service as store
from grns.schedules.model import Schedule, schedule_spec
from grns.schedules.scheduler import Scheduler, run_now
from grns.worker.finishes import Finish, Finishes
from tests.support.followers import begin_here, follow
from tests.support.harness import settings_for, submit
from tests.support.store import cancel, claim, fetch, finish, row_of, stranger

_WHO: dict[str, Any] = {"workspace": "default", "actor": "tests"}


def unreachable(database: Database) -> JetStream:
    """Return a broker that is not connected."""
    return JetStream(settings_for(database.url), name="test")


def scheduler(database: Database) -> Scheduler:
    """Return a scheduler that has no broker."""
    transport = unreachable(database)
    return Scheduler(database=database, transport=transport, limits=DEFAULT_LIMITS, emit=lambda _: None)


async def put(database: Database, name: str = "hourly", **fields: Any) -> Schedule:
    """Create a schedule for each hour."""
    hourly = {"name": name, "cron": "0 * * * *", "task_type": "noop", "agent_type": "worker"}
    spec = schedule_spec(**(hourly | fields))
    return await store.put(database, spec, limits=DEFAULT_LIMITS, **_WHO)


async def let_be_due(database: Database, hours: int = 0, name: str = "hourly") -> datetime:
    """Let the schedule's last full hour be due, and so many before it; return that hour."""
    (row,) = await fetch(
        database,
        "update grns.schedules set next_at = date_trunc('hour', now()) - $2 * interval '1 hour'"
        " where name = $1 returning date_trunc('hour', now()) as hour",
        name, hours,
    )  # fmt: skip
    hour: datetime = row["hour"]
    return hour


async def runs(database: Database, name: str = "hourly") -> list[tuple[str, str | None]]:
    """Return what was decided, the latest first."""
    page = await store.list_runs(database, name, workspace="default", limit=100)
    return [(run.outcome, run.reason) for run in page.rows]


async def tasks(database: Database) -> list[Any]:
    """Return all tasks in the order of their submission."""
    return await fetch(database, "select * from grns.tasks order by created_at, id")


async def test_a_time_that_is_due_submits_a_task(shared: Database) -> None:
    await put(shared, payload={"days": 1}, priority=1, max_attempts=7)
    hour = await let_be_due(shared)
    await scheduler(shared).tick()
    (task,) = await tasks(shared)
    wanted = ("noop", "worker", 1, 7, "queued", {"days": 1})
    said = ("task_type", "agent_type", "priority", "max_attempts", "status")
    assert (*(task[name] for name in said), json.loads(task["payload"])) == wanted
    assert task["idempotency_key"] == f"schedule/hourly/{hour.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    found = await store.read(shared, "hourly", workspace="default")
    assert (found.last_due_at, found.last_task_id) == (hour, task["id"])
    assert found.next_at == hour + timedelta(hours=1)
    (run,) = (await store.list_runs(shared, "hourly", workspace="default", limit=10)).rows
    assert (run.due_at, run.outcome, run.task_id) == (hour, "submitted", task["id"])
    (event,) = await fetch(shared, "select payload from grns.events where kind = 'evt.schedule.submitted'")
    told = json.loads(event["payload"])
    assert (told["schedule"], told["task_id"]) == ("hourly", task["id"])
    await scheduler(shared).tick()
    assert len(await tasks(shared)) == 1


async def test_schedulers_beside_each_other_decide_once(shared: Database) -> None:
    for number in range(20):
        await put(shared, f"s{number}")
        await let_be_due(shared, name=f"s{number}")
    await asyncio.gather(*(scheduler(shared).tick() for _ in range(4)))
    await scheduler(shared).tick()
    assert len(await tasks(shared)) == 20
    assert len(await fetch(shared, "select from grns.schedule_runs")) == 20


async def test_what_is_not_committed_has_not_happened(
    shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(shared)
    await let_be_due(shared)

    async def break_off(*_: Any, **__: Any) -> None:
        raise ConnectionResetError("as if the process had died")

    with monkeypatch.context() as broken:
        broken.setattr(audit_log, "note_many", break_off)
        with pytest.raises(UnavailableError):
            await scheduler(shared).tick()
    assert (await tasks(shared), await runs(shared)) == ([], [])
    await scheduler(shared).tick()
    assert (len(await tasks(shared)), await runs(shared)) == (1, [("submitted", None)])


@pytest.mark.parametrize(
    ("overlap", "decided", "statuses"),
    [
        ("skip", [("skipped", "overlap"), ("submitted", None)], ["queued"]),
        ("allow", [("submitted", None)] * 2, ["queued", "queued"]),
        ("queue_one", [("submitted", None)] * 2, ["queued", "waiting"]),
        ("queue", [("submitted", None)] * 2, ["queued", "waiting"]),
        ("cancel_previous", [("submitted", None)] * 2, ["cancelled", "waiting"]),
    ],
)
async def test_while_the_task_before_has_not_ended(
    shared: Database, overlap: str, decided: list[tuple[str, str | None]], statuses: list[str]
) -> None:
    await begin_here(shared)
    await put(shared, overlap=overlap, catch_up="all")
    await let_be_due(shared, hours=1)
    await scheduler(shared).tick()
    assert await runs(shared) == decided
    found = await tasks(shared)
    assert sorted(task["status"] for task in found) == statuses
    if overlap == "queue_one":
        await fetch(shared, "delete from grns.schedule_runs")
        await let_be_due(shared)
        await scheduler(shared).tick()
        assert await runs(shared) == [("skipped", "overlap")], "one waits already"
        first = next(task for task in found if task["status"] == "queued")
        await finish(shared, await claim(shared, first["id"]), Verb.FAIL)
        await follow(shared)
        assert [task["status"] for task in await tasks(shared) if task["id"] != first["id"]] == ["queued"]


async def again(database: Database) -> str:
    """Let the same hour be due again, and return the task that is submitted for it."""
    await fetch(database, "update grns.tasks set idempotency_key = null")
    await fetch(database, "delete from grns.schedule_runs")
    await let_be_due(database)
    await scheduler(database).tick()
    assert await runs(database) == [("submitted", None)]
    await follow(database)
    return str((await tasks(database))[-1]["id"])


@pytest.mark.parametrize("overlap", ["queue", "queue_one", "cancel_previous"])
async def test_no_two_run_though_one_between_them_is_cancelled(shared: Database, overlap: str) -> None:
    await begin_here(shared)
    await put(shared, overlap=overlap)
    running = await claim(shared, await again(shared))
    between = await again(shared)
    behind = [await again(shared)] if overlap == "queue" else []
    await cancel(shared, between)
    await follow(shared)
    behind.append(await again(shared))
    for task_id in behind:
        assert (await row_of(shared, task_id))["status"] == "waiting"
    await finish(shared, running)
    await follow(shared)
    assert (await row_of(shared, behind[0]))["status"] == "queued"


async def test_no_two_run_though_one_between_them_is_paused(shared: Database) -> None:
    await begin_here(shared)
    await put(shared, overlap="cancel_previous")
    await claim(shared, await again(shared))
    await shared.run("pause_tasks", [await again(shared)], "default", "ann", None)
    assert (await row_of(shared, await again(shared)))["status"] == "waiting"


async def test_what_a_handler_waits_for_is_none_of_the_schedule(shared: Database) -> None:
    await begin_here(shared)
    await put(shared, overlap="cancel_previous")
    running = await claim(shared, await again(shared))
    child = await submit(shared)
    await Finishes(shared, batch_limit=1).suspend(
        Finish(running, Outcome(Verb.SUSPEND), uuid4()),
        Suspension("join", needed=(child.id,), required=1),
    )
    following = await again(shared)
    assert (await row_of(shared, running.id))["status"] == "cancelled"
    assert (await row_of(shared, following))["status"] == "queued"


@pytest.mark.parametrize("overlap", ["queue", "cancel_previous"])
async def test_the_next_one_waits_for_the_end_of_the_one_before(shared: Database, overlap: str) -> None:
    await begin_here(shared)
    await put(shared, overlap=overlap)
    running = await claim(shared, await again(shared))
    for _ in range(2):
        await again(shared)
    first = await row_of(shared, running.id)
    statuses = Counter(task["status"] for task in await tasks(shared))
    if overlap == "queue":
        assert statuses == {"running": 1, "waiting": 2}
        assert first["cancel_requested_at"] is None
    else:
        assert statuses == {"running": 1, "cancelled": 1, "waiting": 1}, "the first one still runs"
        assert first["cancel_requested_at"] is not None
        assert first["cancel_reason"] == "the next time of its schedule is due"
        await finish(shared, running)
        await follow(shared)
        assert Counter(task["status"] for task in await tasks(shared)) == {
            "succeeded": 1, "cancelled": 1, "queued": 1,
        }  # fmt: skip


async def test_a_task_that_has_ended_does_not_overlap(shared: Database) -> None:
    await put(shared)
    await let_be_due(shared, hours=1)
    await scheduler(shared).tick()
    (first,) = await tasks(shared)
    await finish(shared, await claim(shared, first["id"]))
    await fetch(shared, "delete from grns.schedule_runs")
    await fetch(shared, "update grns.tasks set idempotency_key = null")
    await let_be_due(shared)
    await scheduler(shared).tick()
    assert await runs(shared) == [("submitted", None)]


async def test_what_was_missed_is_one_row(shared: Database) -> None:
    await put(shared)
    hour = await let_be_due(shared, hours=5)
    await scheduler(shared).tick()
    latest, missed = (await store.list_runs(shared, "hourly", workspace="default", limit=10)).rows
    assert (latest.outcome, latest.due_at) == ("submitted", hour)
    assert (missed.outcome, missed.missed, missed.due_at) == ("missed", 5, hour - timedelta(hours=1))
    kinds = await fetch(shared, "select kind from grns.events where kind like 'evt.schedule.%' order by seq")
    assert [row["kind"].rpartition(".")[2] for row in kinds] == ["created", "missed", "submitted"]


async def test_a_key_that_another_task_has_is_no_fault(shared: Database) -> None:
    await put(shared)
    hour = await let_be_due(shared)
    key = f"schedule/hourly/{hour.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    await fetch(shared, "select grns.submit_task('other', idempotency_key => $1)", key)
    await scheduler(shared).tick()
    assert await runs(shared) == [("skipped", "key_taken")]


@pytest.mark.parametrize("catch_up", ["latest", "all"])
async def test_a_taken_key_holds_up_neither_later_times_nor_other_schedules(
    shared: Database, catch_up: str
) -> None:
    await put(shared, overlap="queue_one", catch_up=catch_up)
    await put(shared, "other")
    await let_be_due(shared, hours=1)
    await scheduler(shared).tick()
    await fetch(shared, "delete from grns.schedule_runs")
    hour = await let_be_due(shared)
    await let_be_due(shared, name="other")
    await fetch(shared, "update grns.tasks set idempotency_key = null")
    key = f"schedule/hourly/{hour.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    await fetch(shared, "select grns.submit_task('stolen', idempotency_key => $1)", key)
    await scheduler(shared).tick()
    last = [("skipped", "overlap")] if catch_up == "all" else [("skipped", "key_taken")]
    assert await runs(shared) == last
    assert await runs(shared, "other") == [("submitted", None)]


async def test_a_key_that_a_stranger_holds_is_left_for_later(shared: Database) -> None:
    await put(shared)
    await put(shared, "other")
    hour = await let_be_due(shared)
    await let_be_due(shared, name="other")
    key = f"schedule/hourly/{hour.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    async with stranger(shared) as connection:
        await connection.execute("select grns.submit_task('held', idempotency_key => $1)", key)
        await scheduler(shared).tick()
        assert (await runs(shared), await runs(shared, "other")) == ([], [("submitted", None)])
        await connection.execute("rollback")
    await scheduler(shared).tick()
    assert await runs(shared) == [("submitted", None)]


@pytest.mark.parametrize("change", ["time_zone = 'Europe/Nowhere'", "payload = '[]'", "cron = '0 0 30 2 *'"])
async def test_a_row_that_cannot_be_is_paused_and_holds_up_no_other(shared: Database, change: str) -> None:
    await put(shared)
    await put(shared, "lost")
    await let_be_due(shared)
    await let_be_due(shared, name="lost")
    await fetch(shared, f"update grns.schedules set {change} where name = 'lost'")
    await scheduler(shared).tick()
    assert len(await tasks(shared)) == 1
    assert (await store.read(shared, "lost", workspace="default")).pause_reason


async def test_a_paused_schedule_waits_and_catches_nothing_up(shared: Database) -> None:
    await put(shared)
    paused = await store.pause(shared, "hourly", reason="holidays", **_WHO)
    assert (paused.paused_by, paused.pause_reason) == ("tests", "holidays")
    await let_be_due(shared, hours=3)
    await scheduler(shared).tick()
    assert await tasks(shared) == []
    resumed = await store.resume(shared, "hourly", **_WHO)
    assert resumed.paused_at is None
    assert resumed.next_at > datetime.now(UTC)
    await scheduler(shared).tick()
    assert (await tasks(shared), await runs(shared)) == ([], [])
    assert (await store.resume(shared, "hourly", **_WHO)).version == resumed.version


async def test_putting_the_same_again_changes_nothing(shared: Database) -> None:
    first = await put(shared, cron=None, every_seconds=60, payload={"a": 1})
    assert await put(shared, cron=None, every_seconds=60, payload={"a": 1}) == first
    other = await put(shared, cron=None, every_seconds=60, payload={"a": 2})
    assert (other.version, other.next_at, other.anchor_at) == (2, first.next_at, first.anchor_at)
    slower = await put(shared, cron=None, every_seconds=120)
    assert slower.anchor_at > first.anchor_at, "a new rhythm begins now"
    events = await fetch(shared, "select kind from grns.events where kind like 'evt.schedule.%'")
    assert [row["kind"].rpartition(".")[2] for row in events] == ["created", "changed", "changed"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"cron": None}, "either cron or every_seconds"),
        ({"every_seconds": 5}, "either cron or every_seconds"),
        ({"cron": "nonsense"}, "five fields"),
        ({"cron": None, "every_seconds": 0.5}, "every_seconds"),
        ({"time_zone": "Mars/Olympus"}, "time_zone"),
        ({"overlap": "maybe"}, "overlap"),
        ({"jitter_seconds": 3600}, "jitter_seconds"),
        ({"jitter_seconds": -1}, "jitter_seconds"),
        (
            {"cron": None, "every_seconds": 60, "jitter_seconds": 60},
            "jitter_seconds is less than every_seconds",
        ),
        ({"pause_after_failures": 0}, "pause_after_failures"),
        ({"agent_type": "instance"}, "agent_type"),
        ({"name": "a b"}, "name"),
        ({"unknown": 1}, "unknown"),
    ],
)
async def test_what_cannot_be_a_schedule_is_refused(
    shared: Database, fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidInputError, match=words) as raised:
        await put(shared, **fields)
    assert raised.value.code == "bad_schedule"


async def test_a_deleted_schedule_leaves_its_tasks(shared: Database) -> None:
    await put(shared)
    await let_be_due(shared)
    await scheduler(shared).tick()
    await store.delete(shared, "hourly", **_WHO)
    (task,) = await tasks(shared)
    assert (await row_of(shared, task["id"]))["status"] == "queued"
    assert await fetch(shared, "select from grns.schedule_runs") == []
    for call in (store.delete, store.pause, store.resume):
        with pytest.raises(NotFoundError, match="hourly"):
            await call(shared, "hourly", **_WHO)
    with pytest.raises(NotFoundError):
        await store.read(shared, "hourly", workspace="default")


async def now(database: Database, *, is_forced: bool = False, name: str = "hourly") -> str:
    """Run a schedule now, and return the outcome."""
    return (
        await run_now(
            database, unreachable(database), name, limits=DEFAULT_LIMITS, is_forced=is_forced, **_WHO
        )
    ).outcome


@pytest.mark.parametrize(
    ("overlap", "outcomes"),
    [
        ("skip", ["submitted", "skipped"]),
        ("queue_one", ["submitted", "submitted", "skipped"]),
        ("allow", ["submitted", "submitted", "submitted"]),
    ],
)
async def test_run_now_obeys_overlap_unless_it_is_forced(
    shared: Database, overlap: str, outcomes: list[str]
) -> None:
    made = await put(shared, overlap=overlap)
    assert [await now(shared) for _ in outcomes] == outcomes
    assert await now(shared, is_forced=True) == "submitted"
    assert (await store.read(shared, "hourly", workspace="default")).next_at == made.next_at
    found = await tasks(shared)
    waiting = [task["waits_for"] for task in found]
    assert waiting == [
        None,
        *["tasks" if overlap == "queue_one" else None] * outcomes[1:].count("submitted"),
        None,
    ]
    events = await fetch(shared, "select actor from grns.events where kind like 'evt.schedule.s%'")
    assert {event["actor"] for event in events} == {"tests"}


async def test_run_now_of_a_paused_schedule_submits_its_task(shared: Database) -> None:
    await put(shared)
    await store.pause(shared, "hourly", **_WHO)
    assert await now(shared) == "submitted"
    with pytest.raises(NotFoundError, match="no schedule nothing"):
        await now(shared, name="nothing")


async def test_schedule_that_is_put_in_sql_begins_at_its_first_time(shared: Database) -> None:
    await fetch(shared, "select grns.put_schedule('hourly', 'noop', cron => '0 * * * *', overlap => 'allow')")
    await fetch(shared, "select grns.put_schedule('often', 'noop', every_seconds => 3600)")
    await scheduler(shared).tick()
    found = await store.read(shared, "hourly", workspace="default")
    assert (found.next_at, found.overlap) == (next(found.rhythm.after(found.anchor_at)), "allow")
    often = await store.read(shared, "often", workspace="default")
    assert often.next_at == often.anchor_at + timedelta(hours=1)
    assert (await tasks(shared), await runs(shared)) == ([], [])
    assert not await fetch(shared, "select grns.put_schedule('often', 'noop', every_seconds => 3600)")
    kinds = await fetch(
        shared, "select kind, payload from grns.events where kind like 'evt.schedule.%' order by seq"
    )
    assert [json.loads(row["payload"])["when"] for row in kinds] == ["0 * * * *", "every 3600 s"]


async def test_schedule_without_times_that_is_put_in_sql_is_paused(shared: Database) -> None:
    await fetch(shared, "select grns.put_schedule('never', 'noop', cron => '0 0 31 2 *')")
    await scheduler(shared).tick()
    found = await store.read(shared, "never", workspace="default")
    assert found.paused_by == "grns"
    with pytest.raises(asyncpg.InvalidParameterValueError, match="cron or every_seconds"):
        await fetch(shared, "select grns.put_schedule('never', 'noop')")


async def test_statement_of_the_driver_that_is_cancelled_is_an_error_of_grns(
    shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a savepoint that was cancelled because the process had been frozen: it ended the process once."""
    await put(shared)
    await let_be_due(shared)

    async def break_off(connection: Connection, *_: Any) -> list[Any]:
        await connection.execute("set local statement_timeout = 1; select pg_sleep(1)")
        return []

    with monkeypatch.context() as broken:
        broken.setattr("grns.schedules.scheduler.submit", break_off)
        with pytest.raises(ContendedError):
            await scheduler(shared).tick()
    await scheduler(shared).tick()
    assert await runs(shared) == [("submitted", None)]
