"""Budgets: what is used is noted, and warns, refuses or asks once it is too much."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

import grns
from grns.api.route import PREFIX
from grns.client.client import Client
from grns.errors import ConflictError, InvalidInputError, NotFoundError, OverBudgetError
from grns.gateway.command_store import CommandStore, SubmitCommand
from grns.maintenance.budget_watch import look_at_budgets as look_once
from grns.maintenance.retention import delete_tasks
from grns.postgres.database import Database
from grns.tasks import pauses
from grns.tasks.budgets import Budgets
from grns.tasks.submit import Submissions
from tests.support.api import OURS, THEIRS, Door, good, problem_of
from tests.support.attempts import attempts_of
from tests.support.budgets import look_at_budgets, note_usage
from tests.support.store import ACTOR, WORKER, claim, fetch, refusal
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
    who = replace(WORKER, agent_type="writers")
    assert await refusal(shared, waiting, who=who) == "paused"
    await note_usage(shared, pool="late", cost=0.01)  # it had used nothing before
    await look_at_budgets(shared)
    assert await paused(shared) == {"writers": "all", "late": "all"}
    with pytest.raises(ConflictError, match="the budget all is used up and has paused writers"):
        await client.resume("writers")
    await client.budgets.allow("all", cost=0.02)
    assert {one.agent_type for one, has_begun in await look_at_budgets(shared) if not has_begun} == {
        "writers", "late",
    }  # fmt: skip
    assert await paused(shared) == {}
    await claim(shared, waiting, who=who)
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
    await look_once(shared)
    assert await paused(shared) == {}
    (row,) = await shared.run("has_budgets")
    assert not row["has_budgets"]


@pytest.mark.parametrize("action", ["refuse", "ask"])
async def test_a_new_period_begins_with_nothing_used(client: Client, shared: Database, action: Any) -> None:
    await client.budgets.put("writing", pool="worker", period="day", max_cost=1, action=action)
    await note_usage(shared, cost=2)
    await client.budgets.allow("writing", cost=0.5)
    await look_at_budgets(shared)
    (found,) = await client.budgets.list()
    assert (found.used_cost, found.extra_cost, found.exceeded_since is None) == (2.0, 0.5, False)
    assert (await paused(shared) == {"worker": "writing"}) is (action == "ask")
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


async def test_budgets_are_looked_at_every_two_seconds(client: Client, shared: Database) -> None:
    await client.budgets.put("writing", max_cost=1)
    await look_once(shared)
    await note_usage(shared, cost=2)
    await fetch(shared, "update grns.budgets set looked_at = now() + interval '1 minute'")
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
    pools = [f"pool{number}" for number in range(5)]
    assert sorted(one.agent_type for answer in answers for one, _ in answer) == pools
    for number in range(5):
        await client.budgets.allow(f"b{number}", cost=10)
    answers = await asyncio.gather(*(look_once(shared) for _ in range(6)))
    assert sorted(one.agent_type for answer in answers for one, _ in answer) == pools
    assert len(await told(shared, "evt.pool.paused")) == len(await told(shared, "evt.pool.resumed")) == 5


async def test_a_pause_that_is_over_does_not_free_the_pool(client: Client, shared: Database) -> None:
    await client.budgets.put("writing", pool="worker", max_cost=1, action="ask")
    await note_usage(shared, cost=1)
    await look_at_budgets(shared)
    await client.pause("worker", until=60.0)
    await fetch(shared, "update grns.pauses set until = now() - interval '1 second'")
    ((begun, has_begun),) = await look_at_budgets(shared)
    assert (begun.budget, has_begun) == ("writing", True)
    assert await paused(shared) == {"worker": "writing"}


async def test_who_has_used_nothing_that_is_bounded_goes_on(client: Client, shared: Database) -> None:
    await client.budgets.put("money", max_cost=1, action="ask")
    await note_usage(shared, pool="local", input_tokens=1000, compute_seconds=60)
    await note_usage(shared, pool="paid", cost=1)
    await look_at_budgets(shared)
    assert await paused(shared) == {"paid": "money"}


async def test_a_change_of_the_pool_or_the_action_begins_anew(client: Client, shared: Database) -> None:
    await client.budgets.put("writing", pool="writers", max_cost=1, action="refuse")
    await note_usage(shared, pool="writers", cost=1)
    await look_at_budgets(shared)
    await client.budgets.allow("writing", cost=0.5)
    moved = await client.budgets.put("writing", pool="readers", max_cost=1, action="refuse")
    assert (moved.used_cost, moved.extra_cost, moved.exceeded_since) == (0.0, 0.0, None)
    assert (await submit(shared, agent_type="readers")).created
    await client.budgets.put("writing", pool="writers", max_cost=1, action="warn")
    await look_at_budgets(shared)
    await client.budgets.put("writing", pool="writers", max_cost=1, action="ask")
    await look_at_budgets(shared)
    assert [one["action"] for one in await told(shared, "evt.budget.exceeded")] == ["refuse", "warn", "ask"]


async def test_what_exists_may_be_submitted_again(client: Client, shared: Database) -> None:
    await client.budgets.put("all", max_cost=1, action="refuse")
    first = await submit(shared, idempotency_key="once")
    await note_usage(shared, cost=1)
    await look_at_budgets(shared)
    again = await submit(shared, idempotency_key="once")
    assert (again.id, again.created) == (first.id, False)
    with pytest.raises(OverBudgetError):
        await submit(shared, idempotency_key="twice")


async def test_a_handler_that_is_refused_is_put_off(client: Client, shared: Database) -> None:
    pool = grns.Pool("planners")

    @pool.task
    async def plan(ctx: grns.Context) -> None:
        await ctx.client.submit("write", {}, pool="writers")

    handle = await client.submit(plan)
    await client.budgets.put("writing", pool="writers", max_cost=1, action="refuse")
    await note_usage(shared, pool="writers", cost=1)
    await look_at_budgets(shared)
    with attempts_of(pool, shared, client) as attempts:
        assert await attempts.run(handle.id) == "retry_wait"
    (row,) = await fetch(
        shared, "select attempt, uncounted_attempts from grns.tasks where id = $1", handle.id
    )
    assert (row["attempt"], row["uncounted_attempts"]) == (1, 1)
    (event,) = await told(shared, "evt.task.snoozed")
    assert event["task_id"] == handle.id


async def test_a_tenant_is_refused_and_allows_more(door: Door) -> None:
    key = await door.key("admin")
    async with door.visitor(key) as visitor:
        made = {"agent_type": "worker", "max_cost": 1, "action": "refuse"}
        good(await visitor.put(f"{PREFIX}/budgets/writing", json=made))
        await Budgets(door.database, THEIRS, ACTOR).put("theirs", max_cost=1, action="refuse")
        for workspace in (OURS, THEIRS):
            await note_usage(door.database, workspace=workspace, cost=1)
        await look_at_budgets(door.database)
        refused = await visitor.post(f"{PREFIX}/tasks", json={"task_type": "noop"})
        assert problem_of(refused, 429) == "over_budget"
        assert "retry-after" not in refused.headers
        wrong = await visitor.post(f"{PREFIX}/budgets/writing/allow", json={"tokens": 5})
        assert problem_of(wrong, 400) == "bad_budget"
        more = good(await visitor.post(f"{PREFIX}/budgets/writing/allow", json={"cost": 1}))
        assert (more["used_cost"], more["extra_cost"], more["used_share"]) == (1.0, 1.0, 0.5)
        await look_at_budgets(door.database)
        good(await visitor.post(f"{PREFIX}/tasks", json={"task_type": "noop"}), range(200, 300))
        listed = good(await visitor.get(f"{PREFIX}/budgets"))["items"]
        assert [one["name"] for one in listed] == ["writing"]


async def test_a_command_is_refused(client: Client, shared: Database) -> None:
    await client.budgets.put("all", max_cost=1, action="refuse")
    await note_usage(shared, cost=1)
    await look_at_budgets(shared)
    commands = CommandStore(shared, batch_limit=10, actor="nats")
    with pytest.raises(OverBudgetError):
        await commands.submit(SubmitCommand(uuid4(), made()))


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
