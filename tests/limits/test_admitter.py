"""Tasks under limits: queued as these allow, whatever happens to them and to admitters."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from grns.errors import InvalidInputError, NotFoundError, UnavailableError
from grns.limits import service
from grns.maintenance.scheduler import promote
from grns.model.outcome import Verb
from grns.model.task import command_id, uuid_of
from grns.postgres.database import Database
from tests.support.admitters import WHO, admit, admitter, lead, put_limit
from tests.support.followers import begin_here, follow
from tests.support.harness import submit, submit_many
from tests.support.store import (
    cancel,
    claim,
    fall_due,
    fetch,
    finish,
    kinds_of,
    lapse,
    locked,
    log_of,
    redrive,
    refusal,
    release,
    row_of,
    stranger,
)


@pytest.fixture(autouse=True)
async def begun(shared: Database) -> None:
    """Let what is followed here begin here."""
    await begin_here(shared)


async def task(database: Database, tenant: str = "acme", **fields: Any) -> str:
    """Submit a task of a tenant, and return its id."""
    return (await submit(database, payload={"tenant_id": tenant}, **fields)).id


async def where(database: Database, *ids: str) -> list[str]:
    """Return the statuses of tasks, and what those that wait wait for."""
    rows = [await row_of(database, one) for one in ids]
    return [str(row["waits_for"] or row["status"]) for row in rows]


# ---------------------------------------------------------------- as many as may be


async def test_submitted_task_under_a_limit_waits_until_it_is_admitted(shared: Database) -> None:
    await put_limit(shared, key="tenant_id", max_tasks=1)
    first, second, other = await task(shared), await task(shared), await task(shared, "other")
    assert await where(shared, first, second, other) == ["limit"] * 3
    assert await refusal(shared, first) == "not_due"
    leading = await admit(shared)
    assert await where(shared, first, second, other) == ["queued", "limit", "queued"]
    assert await kinds_of(shared, first) == ["evt.task.waiting", "evt.task.queued", "cmd.task.execute"]
    log = await log_of(shared, first)
    assert json.loads(log[0]["payload"])["waits_for"] == "limit"
    assert [json.loads(row["payload"])["reason"] for row in log[1:]] == ["admitted"] * 2
    assert log[2]["message_id"] == command_id(uuid_of(log[1]["message_id"].int))
    await finish(shared, await claim(shared, first))
    await admit(shared, leading)
    assert await where(shared, second) == ["queued"]


async def test_task_without_limits_is_queued_at_once(shared: Database) -> None:
    await put_limit(shared, key="tenant_id", max_tasks=1, task_types=["import_file"])
    plain = await submit(shared)
    limited = await submit(shared, "import_file")
    assert await where(shared, plain.id, limited.id) == ["queued", "limit"]
    assert (await row_of(shared, limited.id))["limits"] == ["tenant:"]
    assert (await row_of(shared, plain.id))["limits"] is None


async def test_tasks_of_one_type_in_a_batch_fall_under_the_limits_of_their_type_alone(
    shared: Database,
) -> None:
    """In a batch the type that all share is said once: a limit of another type took it for its own."""
    await put_limit(shared, "api", max_tasks=1, task_types=["import_file"])
    plain = await submit_many(shared, 3)
    assert await where(shared, *plain) == ["queued"] * 3
    limited = await submit_many(shared, 3, task_type="import_file")
    assert [(await row_of(shared, one))["limits"] for one in (*plain, *limited)] == [None] * 3 + [["api"]] * 3


async def test_task_under_two_limits_needs_room_in_both(shared: Database) -> None:
    await put_limit(shared, key="tenant_id", max_tasks=1)
    await put_limit(shared, "api", max_tasks=2)
    tasks = [await task(shared, tenant) for tenant in ("a", "a", "b", "c")]
    assert (await row_of(shared, tasks[0]))["limits"] == ["api", "tenant:a"]
    leading = await admit(shared)
    assert await where(shared, *tasks) == ["queued", "limit", "queued", "limit"]
    await finish(shared, await claim(shared, tasks[2]))
    await admit(shared, leading)
    assert await where(shared, *tasks[1::2]) == ["limit", "queued"]


@pytest.mark.parametrize("how", ["retry", "snooze", "cancel", "lapse", "release", "pause"])
async def test_place_is_given_back_as_the_task_leaves_it(shared: Database, how: str) -> None:
    await put_limit(shared, max_tasks=1)
    first, second = await task(shared), await task(shared)
    leading = await admit(shared)
    if how == "pause":
        await shared.run("pause_tasks", [first], "default", "tests", None)
    elif how == "cancel":
        await cancel(shared, first)
    else:
        held = await claim(shared, first)
        if how == "lapse":
            await lapse(shared, first)
            await shared.run("reap", 10, None)
        elif how == "release":
            await release(shared, held)
        else:
            await finish(shared, held, Verb(how))
    await admit(shared, leading)
    is_free = how not in ("lapse", "release")  # those run again: they keep their place
    assert await where(shared, second) == ["queued" if is_free else "limit"]
    assert await where(shared, first) == [
        {"retry": "retry_wait", "snooze": "retry_wait", "cancel": "cancelled", "pause": "pause"}.get(
            how, "queued"
        )
    ]


async def test_retry_that_is_due_waits_to_be_admitted_again(shared: Database) -> None:
    await put_limit(shared, max_tasks=1)
    first, second = await task(shared), await task(shared)
    leading = await admit(shared)
    await finish(shared, await claim(shared, first), Verb.RETRY)
    await fall_due(shared, first)
    assert await refusal(shared, first) == "not_due", "only the admitter queues it"
    (row,) = await promote(shared, 10, None)
    assert row["status"] == "waiting"
    await admit(shared, leading)
    assert await where(shared, first, second) == ["queued", "limit"], "the older one is first"


async def test_delayed_redriven_and_resumed_tasks_are_admitted_too(shared: Database) -> None:
    await put_limit(shared, max_tasks=1)
    first, later = await task(shared), await task(shared, delay_seconds=100)
    assert await where(shared, later) == ["time"]
    leading = await admit(shared)
    await fall_due(shared, later)
    await promote(shared, 10, None)
    assert await where(shared, later) == ["limit"]
    await cancel(shared, first)
    await redrive(shared, first)
    await shared.run("pause_tasks", [first], "default", "tests", None)
    await shared.run("resume_tasks", [first], "default", "tests", None)
    assert await where(shared, first) == ["limit"]
    await admit(shared, leading)
    assert await where(shared, first, later) == ["queued", "limit"]


async def test_task_that_needs_another_is_admitted_after_it(shared: Database) -> None:
    await put_limit(shared, max_tasks=1)
    first = await task(shared)
    child = await task(shared, needs=({"task": first},))
    leading = await admit(shared)
    assert await where(shared, first, child) == ["queued", "tasks"]
    await finish(shared, await claim(shared, first))
    await follow(shared)
    assert await where(shared, child) == ["limit"]
    await admit(shared, leading)
    assert await where(shared, child) == ["queued"]


async def test_rate_admits_a_burst_and_then_as_time_passes(shared: Database) -> None:
    await put_limit(shared, rate="20/1s", burst=3)
    await submit_many(shared, 30)
    leading = await admit(shared)
    (row,) = await fetch(shared, "select count(*) from grns.tasks where status = 'queued'")
    assert row["count"] == 3
    queued = await fetch(shared, "select id from grns.tasks where status = 'queued'")
    for one in queued:
        await finish(shared, await claim(shared, one["id"]))
    await admit(shared, leading)
    await asyncio.sleep(0.12)
    await admit(shared, leading)
    (row,) = await fetch(shared, "select count(*) from grns.tasks where status = 'queued'")
    assert 2 <= row["count"] <= 3
    kept = await fetch(shared, "select key, tokens from grns.limit_tokens")
    assert [one["key"] for one in kept] == ["tenant"]
    # The next leader knows what has begun.
    another = await admit(shared, await lead(shared, "another one"))
    (row,) = await fetch(shared, "select count(*) from grns.tasks where status = 'queued'")
    assert row["count"] <= 3
    assert another.low >= leading.low


async def test_what_has_begun_counts_though_its_claim_is_not_read_yet(shared: Database) -> None:
    await put_limit(shared, rate="1/h", burst=3)
    ended, cancelled, retried = [await task(shared) for _ in range(3)]
    leading = await admit(shared)
    (row,) = await fetch(shared, "select max(seq) as seq from grns.events")
    await finish(shared, await claim(shared, ended))
    await cancel(shared, cancelled)
    await finish(shared, await claim(shared, retried), Verb.RETRY)
    await fall_due(shared, retried)
    await promote(shared, 10, None)
    rows = await shared.run(
        "follow_limits", leading.lease.epoch, leading.lease.seconds, [0], [row["seq"] + 1], 1000, []
    )
    assert await where(shared, retried) == ["limit"]
    assert {row["id"]: row["has_begun"] for row in rows[1:]} == {ended: True, cancelled: False, retried: True}


# ---------------------------------------------------------------- when it changes


async def test_token_that_is_due_is_used_although_nothing_else_happens(shared: Database) -> None:
    await put_limit(shared, rate="5/s", burst=1)
    tasks = [await task(shared), await task(shared)]
    leading = await admit(shared)
    assert await where(shared, *tasks) == ["queued", "limit"]
    await finish(shared, await claim(shared, tasks[0]))
    await admit(shared, leading)
    assert not leading.has_work
    await asyncio.sleep(0.25)
    assert leading.has_work, "the lease is not due, and no row is new"
    await leading.step(100)
    assert await where(shared, tasks[1]) == ["queued"]


async def test_clock_that_was_ahead_takes_no_tokens(shared: Database) -> None:
    await put_limit(shared, rate="100/s", burst=1)
    await fetch(
        shared,
        "insert into grns.limit_tokens values ('default', 'tenant', 0, now() + interval '30 days')",
    )
    waiting = await task(shared)
    leading = await admit(shared)
    await asyncio.sleep(0.05)
    await admit(shared, leading)
    assert await where(shared, waiting) == ["queued"]


async def test_clock_that_is_set_back_lets_the_leader_read_all_again(shared: Database) -> None:
    await put_limit(shared, max_tasks=1)
    first, second = await task(shared), await task(shared)
    leading = await admit(shared)
    leading._book.now += 3600
    await finish(shared, await claim(shared, first))
    with pytest.raises(UnavailableError, match="set back"):
        await leading.step(100)
    await admit(shared)
    assert await where(shared, second) == ["queued"]


async def test_tokens_of_full_keys_and_of_limits_without_a_rate_are_deleted(shared: Database) -> None:
    await put_limit(shared, rate="1/h", burst=2)
    await fetch(
        shared,
        "insert into grns.limit_tokens values ('default', 'tenant', 0.5, now()),"
        " ('default', 'tenant:full', 0.5, now() - interval '1 day'), ('default', 'gone:a', 0, now())",
    )
    leading = await admit(shared)
    await leading._clean()
    assert [row["key"] for row in await fetch(shared, "select key from grns.limit_tokens")] == ["tenant"]
    assert set(leading._book.tokens) == {("default", "tenant")}


async def test_change_pause_and_deletion_of_a_limit_act_at_once(shared: Database) -> None:
    await put_limit(shared, max_tasks=1)
    tasks = [await task(shared) for _ in range(4)]
    leading = await admit(shared)
    await put_limit(shared, max_tasks=2)
    await admit(shared, leading)
    assert await where(shared, *tasks) == ["queued", "queued", "limit", "limit"]
    await service.pause(shared, "tenant", reason="maintenance", **WHO)
    await finish(shared, await claim(shared, tasks[0]))
    await admit(shared, leading)
    assert await where(shared, *tasks[2:]) == ["limit", "limit"]
    await service.resume(shared, "tenant", **WHO)
    await admit(shared, leading)
    assert await where(shared, *tasks[2:]) == ["queued", "limit"]
    await service.delete(shared, "tenant", **WHO)
    await admit(shared, leading)
    assert await where(shared, *tasks[2:]) == ["queued", "queued"]


# ---------------------------------------------------------------- who commits first, and who dies


async def test_one_key_has_numbers_of_its_own(shared: Database) -> None:
    await put_limit(shared, "tenant", key="tenant_id", max_tasks=1)
    ids = [await task(shared, tenant) for tenant in ("acme", "acme", "acme", "other", "other")]
    leading = await admit(shared)
    assert await where(shared, *ids) == ["queued", "limit", "limit", "queued", "limit"]
    who = {"workspace": "default", "actor": "tests"}
    await service.put_key(shared, "tenant", "acme", max_tasks=2, weight=3.0, **who)
    await admit(shared, leading)
    assert await where(shared, *ids) == ["queued", "queued", "limit", "queued", "limit"]
    (acme, _) = await service.list_keys(shared, "tenant", workspace="default", limit=10)
    assert (acme.key, acme.max_tasks, acme.weight) == ("acme", 2, 3.0)
    await service.delete_key(shared, "tenant", "acme", **who)
    await cancel(shared, *ids[:2])
    await admit(shared, leading)
    assert await where(shared, *ids[2:]) == ["queued", "queued", "limit"]
    with pytest.raises(NotFoundError):
        await service.delete_key(shared, "tenant", "acme", **who)
    for key, most, weight in (("", 1, 1.0), ("x" * 129, 1, 1.0), ("a", 0, 1.0), ("a", 1, 0.0)):
        with pytest.raises(InvalidInputError):
            await service.put_key(shared, "tenant", key, max_tasks=most, weight=weight, **who)


async def test_submission_that_commits_late_is_admitted(shared: Database) -> None:
    await put_limit(shared, max_tasks=1)
    async with stranger(shared) as connection:
        (row,) = await connection.fetch("select grns.submit_task('noop') as id")
        leading = await admit(shared)
        await connection.execute("commit")
    await admit(shared, leading)
    assert await where(shared, row["id"]) == ["queued"]


async def test_locked_task_holds_up_no_other_one_and_comes_later(shared: Database) -> None:
    await put_limit(shared, max_tasks=1)
    first, second = await task(shared), await task(shared)
    leading = await lead(shared)
    async with locked(shared, first):
        for _ in range(4):
            await leading.step(100)
        assert await where(shared, first, second) == ["limit", "queued"]
    await finish(shared, await claim(shared, second))
    await asyncio.sleep(0.3)
    await admit(shared, leading)
    assert await where(shared, first) == ["queued"]


async def test_many_locked_tasks_hold_up_no_other_one_of_their_key(shared: Database) -> None:
    await put_limit(shared, max_tasks=1000)
    await submit_many(shared, 250)
    ids = [row["id"] for row in await fetch(shared, "select id from grns.tasks order by id")]
    async with locked(shared, *ids[:200]):
        leading = await lead(shared)
        for _ in range(5):
            await leading.step(2000)
        assert await where(shared, *ids[200:]) == ["queued"] * 50
    await asyncio.sleep(0.3)
    await admit(shared, leading)
    assert await where(shared, *ids) == ["queued"] * 250


async def test_next_leader_counts_what_is_queued_and_running(shared: Database) -> None:
    await put_limit(shared, max_tasks=3)
    tasks = [await task(shared) for _ in range(5)]
    leading = await admit(shared)
    await claim(shared, tasks[0])
    another = await admit(shared, await lead(shared, "another one"))
    assert await where(shared, *tasks) == ["running", "queued", "queued", "limit", "limit"]
    # The first one does nothing any more, whatever it believes.
    await cancel(shared, *tasks[:3])
    with pytest.raises(UnavailableError):
        await admit(shared, leading)
    assert await where(shared, *tasks[3:]) == ["limit", "limit"]
    await admit(shared, another)
    assert await where(shared, *tasks[3:]) == ["queued", "queued"]


async def test_leader_that_loses_the_lead_before_its_write_admits_nothing(shared: Database) -> None:
    await put_limit(shared, max_tasks=1)
    first = await task(shared)
    leading = await lead(shared)
    await fetch(shared, "update grns.leases set epoch = epoch + 1 where name = 'admitter'")
    with pytest.raises(UnavailableError):
        await leading.step(100)
    assert await where(shared, first) == ["limit"]


async def test_admitter_leads_only_while_there_is_something_to_admit(shared: Database) -> None:
    idle = admitter(shared)
    assert await idle.tick() == 1.0
    (row,) = await fetch(shared, "select owner from grns.leases where name = 'admitter'")
    assert row["owner"] is None


async def test_more_waiting_tasks_than_are_read_at_once_are_all_admitted_in_order(shared: Database) -> None:
    await put_limit(shared, max_tasks=100)
    leading = await lead(shared)
    ids = await submit_many(shared, 700)
    order: list[str] = []
    while len(order) < 700:
        await admit(shared, leading)
        rows = await fetch(shared, "select id from grns.tasks where status = 'queued' order by id")
        order += [row["id"] for row in rows]
        assert len(rows) <= 100
        await cancel(shared, *[row["id"] for row in rows])
    assert order == sorted(ids)
