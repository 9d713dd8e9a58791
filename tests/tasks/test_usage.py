"""Usage: counted once, of each attempt, by who owns its task; summed by the janitor."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import grns
from grns.client.client import Client
from grns.errors import InvalidInputError, LeaseLostError
from grns.maintenance.retention import delete_tasks
from grns.model.outcome import Claim
from grns.model.usage import Usage, usage_of
from grns.postgres.database import Database
from grns.worker.prices import priced
from grns.worker.progress import ProgressStore, Report
from tests.support.attempts import attempts_of
from tests.support.harness import submit
from tests.support.store import claim, fetch, lapse, place


async def note(database: Database, taken: Claim, *used: Usage) -> None:
    """Note what an attempt has used."""
    await ProgressStore(database, batch_limit=10).write(taken, Report(usage=used))


async def summed(database: Database) -> int:
    """Sum what is not summed, as the janitor does."""
    return int((await database.run("sum_usage", 1000))[0]["summed"])


async def test_an_item_counts_once_and_each_attempt_counts(client: Client, shared: Database) -> None:
    pool, runs = grns.Pool("writers"), []

    @pool.task
    async def write(ctx: grns.Context) -> None:
        runs.append(ctx.attempt)
        for _ in range(2):
            ctx.usage("draft", model="m", input_tokens=100, output_tokens=10, cost=0.5)
        ctx.usage("check", model="m", input_tokens=7, cache_read_tokens=5)
        if ctx.attempt == 1:
            raise grns.Retry(after=0)

    handle = await client.submit(write)
    with attempts_of(pool, shared, client) as attempts:
        assert await attempts.run(handle.id) == "retry_wait"
        assert await attempts.run(handle.id) == "succeeded"
    items = await client.usage.of(handle.id)
    assert [(one.attempt, one.item, one.cost, one.cost_source) for one in items] == [
        (1, "check", 0.0, "none"), (1, "draft", 0.5, "reported"),
        (2, "check", 0.0, "none"), (2, "draft", 0.5, "reported"),
    ]  # fmt: skip
    for expected in (4, 0):  # before it is summed, and afterwards
        (total,) = await client.usage.sum(by=[])
        assert (total.items, total.input_tokens, total.output_tokens, total.cost) == (4, 214, 20, 1.0)
        assert (total.cache_read_tokens, total.unpriced_items, total.day, total.model) == (10, 2, None, None)
        assert await summed(shared) == expected
    (row,) = await client.usage.sum(by=["day", "pool", "type", "model"])
    assert (row.day, row.agent_type, row.task_type, row.model) == (
        datetime.now(UTC).date(), "writers", "write", "m",
    )  # fmt: skip


async def test_who_has_lost_the_task_adds_nothing(client: Client, shared: Database) -> None:
    task_id = (await submit(shared)).id
    taken = await claim(shared, task_id)
    await note(shared, taken, usage_of("a", input_tokens=1))
    await lapse(shared, task_id)
    await note(shared, taken, usage_of("b", input_tokens=1))  # until it is reaped, it is this attempt's
    await fetch(shared, "update grns.tasks set attempt = 2 where id = $1", task_id)
    with pytest.raises(LeaseLostError):
        await note(shared, taken, usage_of("c", input_tokens=1))
    assert [one.item for one in await client.usage.of(task_id)] == ["a", "b"]


async def test_an_attempt_has_a_thousand_items(client: Client, shared: Database) -> None:
    taken = await place(shared, "running")
    for first in range(0, 1200, 100):
        await note(shared, taken, *(usage_of(f"{first + number:04}") for number in range(100)))
    (row,) = await fetch(shared, "select count(*) as n from grns.usage")
    assert row["n"] == 1000


async def test_sums_stay_when_tasks_are_deleted(client: Client, shared: Database) -> None:
    taken = await place(shared, "running")
    await note(shared, taken, usage_of("draft", model="m", cost="0.00000001"))
    await fetch(
        shared,
        "update grns.tasks set status = 'succeeded', lease_id = null, lease_until = null,"
        " owner_agent_id = null, finished_at = now() - interval '1 hour'",
    )
    assert await summed(shared) == 1
    assert (await delete_tasks(shared, "", 100, 60.0, 60.0)).deleted == 1
    assert await client.usage.of(taken.id) == []
    (row,) = await client.usage.sum(by=["model"])
    assert (row.model, row.cost) == ("m", 1e-8)


async def test_what_is_summed_after_its_task_is_deleted_leaves_no_row(
    client: Client, shared: Database
) -> None:
    taken = await place(shared, "running")
    await note(shared, taken, usage_of("draft", input_tokens=3))
    await fetch(shared, "delete from grns.tasks")
    assert await summed(shared) == 1
    assert [row.input_tokens for row in await client.usage.sum()] == [3]
    assert await fetch(shared, "select from grns.usage") == []


async def test_days_bound_the_sum(client: Client, shared: Database) -> None:
    taken = await place(shared, "running")
    await note(shared, taken, usage_of("a", input_tokens=1), usage_of("b", input_tokens=2))
    await fetch(shared, "update grns.usage set at = at - interval '10 days' where item = 'a'")
    today = datetime.now(UTC).date()
    for _ in range(2):
        assert [row.input_tokens for row in await client.usage.sum()] == [2, 1]
        assert [row.input_tokens for row in await client.usage.sum(since=today)] == [2]
        ended = today - timedelta(days=1)
        assert [row.input_tokens for row in await client.usage.sum(until=ended)] == [1]
        await summed(shared)
    for wrong in ({"by": ["month"]}, {"since": today, "until": today - timedelta(days=1)}):
        with pytest.raises(InvalidInputError):
            await client.usage.sum(**wrong)


@pytest.mark.parametrize(
    "said",
    [
        {"item": ""}, {"item": "a\nb"}, {"item": 3}, {"item": "a" * 129}, {"item": "a", "input_tokens": -1},
        {"item": "a", "input_tokens": 1.5}, {"item": "a", "output_tokens": True}, {"item": "a", "cost": "x"},
        {"item": "a", "cost": -1}, {"item": "a", "cost": float("nan")}, {"item": "a", "compute_seconds": -1},
        {"item": "a", "cost": True}, {"item": "a", "compute_seconds": "1"}, {"item": "a", "model": 3},
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError) as refused:
        usage_of(**said)
    assert refused.value.code == "bad_usage"


def test_prices_come_from_the_list_and_are_never_guessed() -> None:
    known = priced(usage_of("a", model="gpt-4o-mini", input_tokens=1_000_000, output_tokens=0))
    assert known.is_priced
    assert float(known.cost or 0) == pytest.approx(0.15)
    named = priced(usage_of("a", model="openai:gpt-4o-mini", input_tokens=1_000_000))
    assert named.cost == known.cost
    for other in (usage_of("a", model="no-such-model", input_tokens=5), usage_of("a", input_tokens=5)):
        assert priced(other) is other
    reported = usage_of("a", model="gpt-4o-mini", input_tokens=5, cost=3)
    assert priced(reported) is reported
