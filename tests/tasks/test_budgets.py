"""Budgets: what is used is noted, and warns, refuses or asks once it is too much."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
import pytest

from grns.client.client import Client
from grns.errors import ConflictError, InvalidInputError, NotFoundError, OverBudgetError
from grns.maintenance.retention import delete_tasks
from grns.maintenance.scheduler import look_at_budgets as look_once
from grns.postgres.database import Database
from grns.tasks import pauses
from grns.tasks.submit import Submissions
from tests.support.budgets import look_at_budgets, note_usage
from tests.support.store import ACTOR, claim, fetch
from tests.tasks.test_submit import made, submit


async def told(database: Database, kind: str) -> list[dict[str, Any]]:
    """Return the payloads of the events of a kind, in order."""
    rows = await fetch(database, "select payload from grns.events where kind = $1 order by seq", kind)
    return [json.loads(row["payload"]) for row in rows]


async def paused(database: Database) -> dict[str, str | None]:
    """Return the paused pools, each with the budget that has paused it."""
    rows = await fetch(database, "select agent_type, budget from grns.pauses where task_type = ''")
    return {row["agent_type"]: row["budget"] for row in rows}


async def test_what_was_used_is_noted_and_told_once(client: Client, shared: Database) -> None:
    await client.budgets.put("all", max_cost=1)
    await client.budgets.put("writing", pool="writers", period="day", max_cost=5, max_tokens=100)
    await note_usage(shared, pool="writers", cost=0.75, input_tokens=30, output_tokens=10)
    await note_usage(shared, pool="others", cost=0.5, input_tokens=1000)
    for _ in range(2):
        assert await look_at_budgets(shared) == []
        of_all, writing = await client.budgets.list()
        assert (of_all.used_cost, of_all.used_tokens, of_all.used_share) == (1.25, 1040, 1.25)
        assert (writing.used_cost, writing.used_tokens, writing.used_share) == (0.75, 40, 0.4)
        assert (of_all.exceeded_since is None, writing.exceeded_since is None) == (False, True)
        await shared.run("sum_usage", 1000)
    (event,) = await told(shared, "evt.budget.exceeded")
    assert (event["name"], event["agent_type"], event["action"]) == ("all", None, "warn")
    assert (event["used_cost"], event["max_cost"], event["max_tokens"]) == (1.25, 1.0, None)
    assert (await submit(shared)).created


async def test_a_budget_that_is_used_up_refuses_submissions_until_more_is_allowed(
    client: Client, shared: Database
) -> None:
    await client.budgets.put("writing", pool="worker", max_tokens=100, action="refuse")
    await note_usage(shared, input_tokens=60, output_tokens=40)
    assert (await submit(shared)).created
    await look_at_budgets(shared)
    with pytest.raises(OverBudgetError, match="the budget writing of this month is used up"):
        await submit(shared)
    with pytest.raises(asyncpg.ConfigurationLimitExceededError):
        await fetch(shared, "select grns.submit_task('noop')")
    assert (await submit(shared, agent_type="other")).created
    assert (await submit(shared, workspace="other")).created
    batch = [made(agent_type=one) for one in ("worker", "other", "worker", "other")]
    submissions = Submissions(shared, batch_limit=10)
    answers = await asyncio.gather(*(submissions.submit(one) for one in batch), return_exceptions=True)
    assert [isinstance(one, OverBudgetError) for one in answers] == [True, False, True, False]
    found = await client.budgets.allow("writing", tokens=1)
    assert (found.extra_tokens, found.used_tokens) == (1, 100)
    await look_at_budgets(shared)
    assert (await submit(shared)).created


async def test_of_the_whole_workspace_all_pools_are_refused(client: Client, shared: Database) -> None:
    await client.budgets.put("all", max_cost=1, action="refuse")
    await note_usage(shared, pool="writers", cost=1)
    await look_at_budgets(shared)
    for pool in ("writers", "others"):
        with pytest.raises(OverBudgetError):
            await submit(shared, agent_type=pool)
    assert (await submit(shared, workspace="other")).created


async def test_a_budget_that_asks_pauses_the_pools_that_have_used_of_it(
    client: Client, shared: Database
) -> None:
    await client.budgets.put("all", max_cost=1, action="ask")
    await note_usage(shared, pool="writers", cost=1)
    waiting = (await submit(shared, agent_type="writers")).id
    ((begun, has_begun),) = await look_at_budgets(shared)
    assert (begun.agent_type, begun.budget, has_begun) == ("writers", "all", True)
    assert await paused(shared) == {"writers": "all"}
    with pytest.raises(AssertionError):
        await claim(shared, waiting)
    await note_usage(shared, pool="late", cost=0.01)  # it had used nothing before
    await look_at_budgets(shared)
    assert await paused(shared) == {"writers": "all", "late": "all"}
    with pytest.raises(ConflictError, match="the budget all has paused writers"):
        await client.resume("writers")
    await client.budgets.allow("all", cost=0.02)
    assert {one.agent_type for one, has_begun in await look_at_budgets(shared) if not has_begun} == {
        "writers", "late",
    }  # fmt: skip
    assert await paused(shared) == {}
    await claim(shared, waiting)
    assert [one["agent_type"] for one in await told(shared, "evt.pool.paused")] == ["writers", "late"]
    assert len(await told(shared, "evt.pool.resumed")) == 2


async def test_who_pauses_a_pool_of_a_budget_keeps_it_paused(client: Client, shared: Database) -> None:
    await client.budgets.put("writing", pool="worker", max_cost=1, action="ask")
    await note_usage(shared, cost=1)
    await look_at_budgets(shared)
    await pauses.begin(
        shared, workspace="default", agent_type="worker", task_type=None, actor=ACTOR, reason="deploy",
        until=None,
    )  # fmt: skip
    await client.budgets.allow("writing", cost=1)
    assert await look_at_budgets(shared) == []
    assert await paused(shared) == {"worker": None}
    await client.resume("worker")
    assert await paused(shared) == {}


async def test_of_two_budgets_the_second_goes_on_pausing(client: Client, shared: Database) -> None:
    for name in ("a", "b"):
        await client.budgets.put(name, pool="worker", max_cost=1, action="ask")
    await note_usage(shared, cost=1)
    await look_at_budgets(shared)
    await client.budgets.delete("a")
    assert await look_at_budgets(shared) == []
    assert await paused(shared) == {"worker": "b"}
    await client.budgets.put("b", pool="worker", max_cost=1, action="warn")
    ((ended, has_begun),) = await look_at_budgets(shared)
    assert (ended.agent_type, has_begun) == ("worker", False)


async def test_the_last_budget_that_is_deleted_ends_its_pauses(client: Client, shared: Database) -> None:
    await client.budgets.put("writing", pool="worker", max_cost=1, action="ask")
    await note_usage(shared, cost=1)
    await look_at_budgets(shared)
    await client.budgets.delete("writing")
    ((row),) = await shared.run("fill_quotas")
    assert row["has_budgets"]
    await look_once(shared)
    assert await paused(shared) == {}
    ((row),) = await shared.run("fill_quotas")
    assert not row["has_budgets"]


@pytest.mark.parametrize("action", ["refuse", "ask"])
async def test_a_new_period_begins_with_nothing_used(client: Client, shared: Database, action: Any) -> None:
    await client.budgets.put("writing", pool="worker", period="day", max_cost=1, action=action)
    await note_usage(shared, cost=2)
    await client.budgets.allow("writing", cost=0.5)
    await look_at_budgets(shared)
    # As if it had all been yesterday.
    await fetch(shared, "update grns.usage set at = at - interval '1 day'")
    await fetch(shared, "update grns.budgets set begins_on = begins_on - 1")
    assert (await submit(shared)).created
    (found,) = await client.budgets.list()
    assert (found.used_cost, found.extra_cost, found.exceeded_since) == (0.0, 0.0, None)
    await look_at_budgets(shared)
    (found,) = await client.budgets.list()
    assert (found.used_cost, found.extra_cost, found.exceeded_since) == (0.0, 0.0, None)
    assert await paused(shared) == {}
    more = await client.budgets.allow("writing", cost=3)
    assert more.extra_cost == 3.0


async def test_what_is_deleted_was_used(client: Client, shared: Database) -> None:
    await client.budgets.put("writing", max_cost=1)
    await note_usage(shared, cost=2)
    await shared.run("sum_usage", 1000)
    await fetch(
        shared,
        "update grns.tasks set status = 'succeeded', lease_id = null, lease_until = null,"
        " owner_agent_id = null, finished_at = now() - interval '1 hour'",
    )
    assert (await delete_tasks(shared, "", 100, 60.0, 60.0)).deleted == 1
    await look_at_budgets(shared)
    assert (await client.budgets.get("writing")).used_cost == 2.0


async def test_each_budget_is_looked_at_by_one_scheduler_in_two_seconds(
    client: Client, shared: Database
) -> None:
    await client.budgets.put("writing", max_cost=1)
    await look_once(shared)
    await note_usage(shared, cost=2)
    await look_once(shared)
    assert (await client.budgets.get("writing")).used_cost == 0.0
    await look_at_budgets(shared)
    assert (await client.budgets.get("writing")).used_cost == 2.0


async def test_many_look_at_once(client: Client, shared: Database) -> None:
    for number in range(5):
        await client.budgets.put(f"b{number}", max_cost=1, action="ask")
    for number in range(5):
        await note_usage(shared, pool=f"pool{number}", cost=1)
    answers = await asyncio.gather(*(look_once(shared) for _ in range(6)))
    assert len(await told(shared, "evt.budget.exceeded")) == 5
    assert sorted(one.agent_type for answer in answers for one, _ in answer) == [f"pool{n}" for n in range(5)]


@pytest.mark.parametrize(
    "said",
    [
        {}, {"max_cost": 0}, {"max_cost": -1}, {"max_cost": float("nan")}, {"max_cost": "1"},
        {"max_cost": True}, {"max_tokens": 0}, {"max_tokens": 1.5}, {"max_cost": 1, "period": "year"},
        {"max_cost": 1, "action": "stop"}, {"max_cost": 1, "pool": "a b"}, {"max_cost": 20_000_000},
    ],
)  # fmt: skip
async def test_what_is_wrong_is_refused(client: Client, shared: Database, said: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError) as refused:
        await client.budgets.put("writing", **said)
    assert refused.value.code == "bad_budget"


async def test_a_workspace_has_a_hundred_budgets(client: Client, shared: Database) -> None:
    for number in range(100):
        await client.budgets.put(f"b{number}", max_cost=1)
    with pytest.raises(InvalidInputError, match="at most 100 budgets"):
        await client.budgets.put("more", max_cost=1)
    assert (await client.budgets.put("b7", max_cost=2)).max_cost == 2.0
    for wrong in ({}, {"cost": 0}, {"tokens": -1}):
        with pytest.raises(InvalidInputError):
            await client.budgets.allow("b7", **wrong)
    for call in (client.budgets.get("no"), client.budgets.delete("no"), client.budgets.allow("no", cost=1)):
        with pytest.raises(NotFoundError, match="no budget no"):
            await call
