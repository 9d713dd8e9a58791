"""Tasks that only some agents may run: who claims them, who does not, and why nobody does."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from grns.client.client import Client
from grns.dead_letters.triage import Triage
from grns.diagnose.explain.collect import Explainer
from grns.errors import InvalidInputError
from grns.maintenance.scheduler import promote
from grns.model.outcome import Claim, Verb
from grns.model.submission import Edit, edit, route_to
from grns.postgres.database import Database, run
from grns.settings import load
from grns.worker import registry
from grns.worker.claims import Claimant, Claims, dispatch
from tests.support.store import WORKER, fetch, finish, log_of, release, row_of


async def agent(client: Client, shared: Database, name: str, *capabilities: str, most: int = 5) -> Claimant:
    """Register an agent, and begin its life."""
    await client.agents.put(
        name, pool=WORKER.agent_type, capabilities=list(capabilities), max_concurrent_tasks=most
    )
    who = replace(WORKER, agent_id=f"life-of-{name}", agent=name)
    await registry.register(shared, who, concurrency=5, version="1")
    return who


async def polled(shared: Database, who: Claimant, count: int = 10, *, is_routed: bool = False) -> list[str]:
    """Return what a poll of a worker claims."""
    claims = Claims(shared, who, batch_limit=10)
    return [one.id for one in await claims.claim_next(count, older_than_seconds=None if is_routed else 0.0)]


async def made(client: Client, count: int = 1, **options: Any) -> list[str]:
    """Submit tasks that differ in nothing."""
    handles = [await client.submit("noop", {}, pool=WORKER.agent_type, **options) for _ in range(count)]
    return [one.id for one in handles]


async def test_a_task_for_an_agent_is_run_by_no_one_else(client: Client, shared: Database) -> None:
    coder, other = await agent(client, shared, "coder"), await agent(client, shared, "other")
    (task,) = await made(client, agent="coder")
    assert (await client.get(task)).target_agent == "coder"
    for who in (WORKER, other):
        assert await polled(shared, who) == []
        answer = await Claims(shared, who, batch_limit=1).claim(task)
        assert not isinstance(answer, Claim)
        assert answer.reason == "routed"
    assert await polled(shared, coder) == [task]


async def test_capabilities_must_all_be_there(client: Client, shared: Database) -> None:
    both = await agent(client, shared, "both", "sql", "python", "git")
    some = await agent(client, shared, "some", "python")
    (hard,) = await made(client, requires=["sql", "python", "sql"])
    (easy,) = await made(client, requires=["python"])
    assert (await client.get(hard)).required_capabilities == ["python", "sql"]
    assert await polled(shared, some) == [easy]
    assert await polled(shared, both) == [hard]


async def test_all_that_an_agent_may_run_comes_in_one_order(client: Client, shared: Database) -> None:
    coder = await agent(client, shared, "coder", "sql")
    ids = []
    for options in ({"requires": ["sql"]}, {"agent": "coder"}, {}, {"agent": "coder"}, {"requires": ["sql"]}):
        ids += await made(client, **options)
    urgent = await made(client, agent="coder", priority=0)
    assert await polled(shared, coder, 4) == [*urgent, *ids[:3]]
    assert await polled(shared, coder, is_routed=True) == ids[3:]


async def test_a_capability_that_is_dropped_counts_at_once(client: Client, shared: Database) -> None:
    coder = await agent(client, shared, "coder", "sql")
    (task,) = await made(client, requires=["sql"])
    await client.agents.put("coder", pool=WORKER.agent_type)
    assert await polled(shared, coder) == []
    await client.agents.put("coder", pool=WORKER.agent_type, capabilities=["sql"])
    assert await polled(shared, coder) == [task]


async def test_no_command_is_sent_and_the_route_is_told(client: Client, shared: Database) -> None:
    (routed,) = await made(client, agent="coder")
    (plain,) = await made(client)
    rows = await fetch(shared, "select task_id, route from grns.events where kind = 'evt.task.queued'")
    assert {row["task_id"]: row["route"] for row in rows} == {
        routed: f"@{WORKER.agent_type}@a:coder",
        plain: f"{WORKER.agent_type}.p2",
    }
    assert not await dispatch(shared, routed, None)


async def test_a_route_outlives_whatever_puts_the_task_back(client: Client, shared: Database) -> None:
    coder = await agent(client, shared, "coder")
    (task,) = await made(client, agent="coder", max_attempts=9)
    for end in ("retry", "release", "reap", "redrive"):
        assert await polled(shared, coder) == [task], end
        row = await row_of(shared, task)
        held = await _claim_of(shared, task)
        if end == "retry":
            await finish(shared, held, Verb.RETRY)
            await fetch(shared, "update grns.tasks set next_attempt_at = now() where id = $1", task)
            await promote(shared, 10, None)
        elif end == "release":
            await release(shared, held)
        elif end == "reap":
            await fetch(
                shared, "update grns.tasks set lease_until = now() - interval '1 s' where id = $1", task
            )
            await shared.run("reap", 10, None)
        else:
            await finish(shared, held, Verb.FAIL)
            await client.redrive(task)
        assert row["route"] == "a:coder"
    assert await polled(shared, WORKER) == []
    assert await polled(shared, coder) == [task]


async def _claim_of(shared: Database, task_id: str) -> Claim:
    row = await row_of(shared, task_id)
    (found,) = await shared.run("read_claims", [task_id], [row["lease_id"]])
    return Claims(shared, WORKER, batch_limit=1)._made(found, 0.0)


async def test_it_is_assigned_by_hand(client: Client, shared: Database) -> None:
    one, two = await agent(client, shared, "one"), await agent(client, shared, "two")
    (task,) = await made(client, agent="one")
    await _edit(client, shared, task, target_agent="two")
    assert await polled(shared, one) == []
    *_, changed = await log_of(shared, task)
    said = json.loads(changed["payload"])
    assert (said["target_agent"], said["before"]) == ("two", {"route": "a:one"})
    assert await polled(shared, two) == [task]
    (task,) = await made(client, agent="one")
    await _edit(client, shared, task, required_capabilities=[])
    assert await polled(shared, WORKER) == [task]


async def _edit(client: Client, shared: Database, task_id: str, **fields: Any) -> None:
    limits = load()
    triage = Triage(
        database=shared, transport=client._transport, workspace=WORKER.workspace,
        payload_limits=limits.payload_limits, envelope_limits=limits.envelope_limits,
    )  # fmt: skip
    await triage.edit(task_id, edit(**fields), actor="test")


@pytest.mark.parametrize(
    "options",
    [
        {"agent": "a b"}, {"requires": ["a b"]}, {"requires": [f"c{n}" for n in range(17)]},
        {"agent": "coder", "requires": ["sql"]}, {"requires": "sql"}, {"requires": [1]}, {"agent": ""},
    ],
    ids=str,
)  # fmt: skip
async def test_what_cannot_be_asked_for(client: Client, shared: Database, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        await made(client, **options)
    assert await fetch(shared, "select from grns.tasks") == []


def test_an_edit_names_one_route() -> None:
    assert edit(target_agent="one").route == "a:one"
    assert edit(required_capabilities=["b", "a"]).route == "c:a,b"
    assert edit(required_capabilities=[]).route == ""
    assert Edit(priority=1).route is None
    with pytest.raises(InvalidInputError):
        edit(target_agent="one", required_capabilities=["a"])


@pytest.mark.parametrize(
    ("name", "capabilities"), [(None, None), (None, []), ("a", None), (None, ["b", "a", "b", "C", "_"])]
)
async def test_python_and_sql_write_the_same_route(
    shared: Database, name: str | None, capabilities: Sequence[str] | None
) -> None:
    (row,) = await fetch(shared, "select grns.route_to($1, $2) as route", name, capabilities)
    assert row["route"] == route_to(name, capabilities)


async def test_sql_graphs_and_batches_have_routes(client: Client, shared: Database) -> None:
    await fetch(
        shared, "select grns.submit_task('noop', agent_type => $1, target_agent => 'x')", WORKER.agent_type
    )
    flow = client.workflow("both")
    first = flow.task("noop", {}, pool=WORKER.agent_type, requires=["sql"])
    flow.task("noop", {}, pool=WORKER.agent_type, agent="y", needs=[first])
    await flow.submit()
    await client.submit_many(
        {"task": "noop", "payload": {}, "pool": WORKER.agent_type, "agent": name} for name in (None, "z")
    )
    rows = await fetch(shared, "select route from grns.tasks order by route")
    assert [row["route"] for row in rows] == ["", "a:x", "a:y", "a:z", "c:sql"]


async def over_http(client: Client, shared: Database, name: str, *, most: int) -> Claimant:
    """Register an agent, and begin a life of it over HTTP."""
    await client.agents.put(name, pool=WORKER.agent_type, max_concurrent_tasks=most)
    who = replace(WORKER, agent_id=f"http-life-of-{name}", agent=name, is_counted=True)
    await registry.register(shared, who, concurrency=1, version="1", pid=registry.NO_PROCESS)
    return who


async def test_an_agent_has_no_more_tasks_than_it_may(client: Client, shared: Database) -> None:
    """Over HTTP an agent may have several claims that wait, also of several API processes."""
    who = await over_http(client, shared, "coder", most=2)
    await made(client, 6)
    waiting = [Claims(shared, who, batch_limit=1) for _ in range(6)]
    answers = await asyncio.gather(*(one.claim_next(1, older_than_seconds=0.0) for one in waiting))
    claims = [claim for answer in answers for claim in answer]
    assert len(claims) == 2
    await finish(shared, claims[0], Verb.SUCCEED)
    assert len(await polled(shared, who, 1)) == 1
    assert await polled(shared, who, 1) == []


async def test_a_claim_that_waited_for_others_has_its_whole_lease(client: Client, shared: Database) -> None:
    who = await over_http(client, shared, "coder", most=2)
    (task,) = await made(client)
    async with shared.transaction() as other:
        await run(other, "hold_agent", "default", "coder", "")
        claiming = asyncio.create_task(
            Claims(shared, who, batch_limit=1).claim_next(1, older_than_seconds=0.0)
        )
        await asyncio.sleep(1.0)
        waited_until = time.monotonic()
    (claim,) = await claiming
    (row,) = await fetch(shared, "select lease_until - now() as left from grns.tasks where id = $1", task)
    assert row["left"].total_seconds() > who.lease_seconds - 0.9
    assert claim.expires_at >= waited_until + who.lease_seconds


async def test_claims_that_wait_for_one_another_leave_connections_to_outcomes(
    client: Client, shared: Database
) -> None:
    who = await over_http(client, shared, "coder", most=2)
    await made(client, 2)
    few = Database(shared.url, name="few", size=2)
    claims = Claims(few, who, batch_limit=1)
    async with few.opened():
        async with shared.transaction() as other:
            await run(other, "hold_agent", "default", "coder", "")
            claiming = [asyncio.create_task(claims.claim_next(1, older_than_seconds=0.0)) for _ in range(5)]
            await asyncio.sleep(0.2)
            await asyncio.wait_for(few.run("read_room", "default", "coder", ""), 1.0)
        assert sum(len(one) for one in await asyncio.gather(*claiming)) == 2


async def test_tasks_of_a_worker_with_the_name_count(client: Client, shared: Database) -> None:
    who = await over_http(client, shared, "coder", most=3)
    worker = await agent(client, shared, "coder", most=3)
    await registry.touch(shared, worker.agent_id, idle_seconds=0.0, running=2)
    tasks = await made(client, 3)
    assert len(await polled(shared, who, 1)) == 1
    assert await polled(shared, who, 1) == []
    await registry.stop(shared, worker.agent_id)
    assert len(await polled(shared, who, 1)) == 1
    assert len(tasks) == 3


async def test_an_agent_locks_no_task_that_it_does_not_claim(client: Client, shared: Database) -> None:
    """One that finds a task locked does not look again: it would wait although there is work."""
    both = await agent(client, shared, "both", "python", "sql")
    other = await agent(client, shared, "other", "python", "sql")
    (first,) = await made(client, requires=["python"])
    (second,) = await made(client, requires=["sql"])
    async with shared.transaction() as connection:
        types = list(both.handled)
        claimed = await run(
            connection, "claim_next", [uuid4()], both.agent_id, both.workspace, both.agent_type, types,
            [None] * len(types), both.lease_seconds, None, both.agent,
        )  # fmt: skip
        assert [row["id"] for row in claimed] == [first]
        assert await polled(shared, other, 1, is_routed=True) == [second]


@pytest.mark.parametrize("is_graceful", [True, False])
async def test_over_http_who_is_told_to_end_claims_no_more(
    client: Client, shared: Database, is_graceful: bool
) -> None:
    """Also in a claim that waited already when it was told so. The next life works again."""
    who = await over_http(client, shared, "coder", most=2)
    (task,) = await made(client)
    await client.agents.terminate("coder", graceful=is_graceful)
    assert await polled(shared, who) == []
    following = replace(who, agent_id="http-next-life-of-coder")
    await registry.register(shared, following, concurrency=5, version="1", pid=registry.NO_PROCESS)
    assert await polled(shared, who) == []
    assert await polled(shared, following) == [task]


@pytest.mark.parametrize(
    ("word", "prepare"),
    [
        ("agent_away", "update grns.agents set stopped_at = now()"),
        ("agent_draining", "update grns.agents set ordered = 'drain', ordered_at = now() + interval '1 s'"),
        ("agent_full", "update grns.agents set max_concurrent_tasks = 0"),
        ("no_capable_agent", "update grns.agents set capabilities = '{}'"),
        ("on_its_way", "select"),
    ],
)
async def test_it_is_explained(client: Client, shared: Database, word: str, prepare: str) -> None:
    await agent(client, shared, "coder", "sql")
    (task,) = await made(client, requires=["sql"])
    await fetch(shared, prepare)
    explainer = Explainer(
        database=shared, whole=shared, transport=client._transport, workspace=WORKER.workspace
    )
    said = await explainer.explain(task)
    assert said.reason == word, said.sentence
    if word != "on_its_way":
        assert said.claim == "routed"


async def test_who_is_not_registered_is_explained(client: Client, shared: Database) -> None:
    await agent(client, shared, "coder")
    (task,) = await made(client, agent="ghost")
    explainer = Explainer(
        database=shared, whole=shared, transport=client._transport, workspace=WORKER.workspace
    )
    said = await explainer.explain(task)
    assert (said.reason, said.claim) == ("agent_away", "routed")
    assert "the agent ghost, which is not registered" in said.sentence
    assert f"grns task edit {task} --any-worker" in said.next_steps
