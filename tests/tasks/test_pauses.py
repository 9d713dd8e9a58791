"""Pauses: what is paused nobody claims, what runs goes on, and each change of one is in the log."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from grns.errors import InvalidInputError, UnavailableError
from grns.maintenance.scheduler import promote
from grns.model.outcome import Claim, Unclaimed, Verb
from grns.postgres.database import Database
from grns.tasks import pauses as pause
from grns.tasks.pauses import Pause
from grns.worker.claims import Claims
from grns.worker.renewals import HeldLease, renew
from tests.support.harness import submit
from tests.support.store import (
    LEASE_SECONDS,
    WORKER,
    cancel,
    claim,
    fall_due,
    fetch,
    finish,
    log_of,
    place,
    redrive,
    refusal,
    release,
    row_of,
)

ACTOR = "key:k1"


async def paused(database: Database, **changes: Any) -> Pause:
    """Pause the pool of the tests' worker, but for what is said otherwise."""
    fields: dict[str, Any] = {
        "workspace": "default", "agent_type": "worker", "task_type": None, "actor": ACTOR, "reason": None,
        "until": None,
    }  # fmt: skip
    return await pause.begin(database, **(fields | changes))


async def resumed(database: Database, **changes: Any) -> Pause | None:
    """End the pause of that pool, but for what is said otherwise."""
    fields: dict[str, Any] = {
        "workspace": "default",
        "agent_type": "worker",
        "task_type": None,
        "actor": ACTOR,
    }
    return await pause.end(database, **(fields | changes))


async def lapsed(database: Database) -> None:
    """Let the time of all pauses that have an end be over."""
    await fetch(database, "update grns.pauses set until = now() - interval '1 s' where until is not null")


async def told(database: Database) -> list[tuple[str, str | None, dict[str, Any]]]:
    """Return what the log says of pools: kinds, actors, payloads."""
    rows = await fetch(
        database, "select kind, actor, payload from grns.events where kind like 'evt.pool.%' order by seq"
    )
    return [(row["kind"], row["actor"], json.loads(row["payload"])) for row in rows]


@pytest.mark.parametrize("task_type", [None, "noop"])
@pytest.mark.parametrize("way", ["by_id", "by_poll"])
async def test_what_is_paused_nobody_claims(shared: Database, way: str, task_type: str | None) -> None:
    task_id = (await submit(shared)).id
    before = await row_of(shared, task_id), await log_of(shared, task_id)
    await paused(shared, task_type=task_type)
    if way == "by_id":
        assert await refusal(shared, task_id) == "paused"
    else:
        found = await Claims(shared, WORKER, batch_limit=1).claim_next(5, older_than_seconds=0.0)
        assert found == []
    assert (await row_of(shared, task_id), await log_of(shared, task_id)) == before
    await resumed(shared, task_type=task_type)
    assert (await claim(shared, task_id)).attempt == 1


@pytest.mark.parametrize(
    "other", [{"workspace": "elsewhere"}, {"agent_type": "writer"}, {"task_type": "other"}]
)
async def test_a_pause_concerns_no_other_pool_and_no_other_type(
    shared: Database, other: dict[str, str]
) -> None:
    by_id, by_poll = (await submit(shared)).id, (await submit(shared)).id
    await paused(shared, **other)
    assert (await claim(shared, by_id)).id == by_id
    (found,) = await Claims(shared, WORKER, batch_limit=1).claim_next(5, older_than_seconds=0.0)
    assert found.id == by_poll


async def test_of_a_batch_only_what_is_paused_stays(shared: Database) -> None:
    who = replace(WORKER, handled={"noop": 3, "slow": 3, "odd": 3})
    ids = [(await submit(shared, task_type)).id for task_type in ("noop", "slow", "odd", "noop", "slow")]
    await paused(shared, task_type="slow")
    await paused(shared, task_type="odd")
    claims = Claims(shared, who, batch_limit=10)
    answers = await asyncio.gather(*(claims.claim(task_id) for task_id in ids))
    assert [isinstance(answer, Claim) for answer in answers] == [True, False, False, True, False]
    assert {answer.reason for answer in answers if isinstance(answer, Unclaimed)} == {"paused"}


async def test_a_retry_that_is_due_waits_too(shared: Database) -> None:
    held = await place(shared, "retry_due")
    await paused(shared)
    assert await refusal(shared, held.id) == "paused"
    await promote(shared, 10, None)
    assert await refusal(shared, held.id) == "paused"
    assert (await row_of(shared, held.id))["status"] == "queued"


@pytest.mark.parametrize(
    ("road", "reason"), [("running", "lost_race"), ("waiting", "not_due"), ("succeeded", "terminal")]
)
async def test_what_could_not_be_claimed_anyway_says_why(shared: Database, road: str, reason: str) -> None:
    task_id = (await place(shared, road)).id
    await paused(shared)
    assert await refusal(shared, task_id) == reason


async def test_what_others_would_claim_says_so(shared: Database) -> None:
    await paused(shared)
    await paused(shared, agent_type="writer")
    unheard_of, others = await submit(shared, "unheard_of"), await submit(shared, agent_type="writer")
    assert await refusal(shared, unheard_of.id) == "no_handler"
    assert await refusal(shared, others.id) == "other_agent_type"


async def test_what_runs_goes_on_and_everything_but_claims_goes_its_way(shared: Database) -> None:
    done, given_back, retried = [await place(shared, "running") for _ in range(3)]
    queued, dead = await place(shared, "queued"), await place(shared, "dead")
    await paused(shared)
    (verdict,) = await renew(shared, [HeldLease(done.id, done.attempt, done.lease_id)], LEASE_SECONDS)
    assert verdict.verdict == "renewed"
    assert (await finish(shared, done)).status == "succeeded"
    assert await release(shared, given_back) == {given_back.id: "queued"}
    assert (await finish(shared, retried, Verb.RETRY)).status == "retry_wait"
    await fall_due(shared, retried.id)
    assert await promote(shared, 10, None)
    assert await redrive(shared, dead.id) == {dead.id: "redriven"}
    assert await cancel(shared, queued.id) == {queued.id: "cancelled"}
    new = await submit(shared)
    for task_id in (given_back.id, retried.id, dead.id, new.id):
        assert await refusal(shared, task_id) == "paused"


async def test_a_pause_ends_with_its_time_also_where_nobody_has_taken_it_away(shared: Database) -> None:
    task_id = (await submit(shared)).id
    begun = await paused(shared, until=3600.0)
    assert begun.until is not None
    assert begun.left_seconds == 3600.0
    assert await refusal(shared, task_id) == "paused"
    await lapsed(shared)
    assert await pause.in_force(shared, "default", ["worker"]) == []
    assert await pause.of_whole_pools(shared, ("", ""), 10) == []
    assert (await claim(shared, task_id)).id == task_id


async def test_whose_time_is_over_is_taken_away_once_whoever_asks(shared: Database) -> None:
    await paused(shared, until=60.0, reason="deploy")
    await paused(shared, agent_type="writer", until=60.0)
    await paused(shared, agent_type="scout")
    await lapsed(shared)
    await paused(shared, task_type="noop", until=60.0)
    counts = await asyncio.gather(*(pause.end_lapsed(shared, 10) for _ in range(4)))
    assert sum(counts) == 2
    rows = await fetch(shared, "select agent_type, task_type from grns.pauses order by 1")
    assert [tuple(row) for row in rows] == [("scout", ""), ("worker", "noop")]
    ends = [
        (actor, said["agent_type"]) for kind, actor, said in await told(shared) if kind.endswith("resumed")
    ]
    assert sorted(ends, key=str) == [(None, "worker"), (None, "writer")], "nobody has asked for it"


async def test_each_change_is_in_the_log_with_who_asked(shared: Database) -> None:
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    await paused(shared, reason="deploy", until=until)
    await paused(shared, task_type="noop", actor="cli:me@here")
    assert await resumed(shared, task_type="noop", actor="cli:me@here") is not None
    assert await resumed(shared, task_type="noop") is None
    log = await told(shared)
    assert [(kind, actor) for kind, actor, _ in log] == [
        ("evt.pool.paused", ACTOR),
        ("evt.pool.paused", "cli:me@here"),
        ("evt.pool.resumed", "cli:me@here"),
    ], "what changes nothing is not told"
    said = {name: log[0][2][name] for name in ("agent_type", "task_type", "reason", "until")}
    assert datetime.fromisoformat(said.pop("until")) == until
    assert said == {"agent_type": "worker", "task_type": None, "reason": "deploy"}
    assert [payload["task_type"] for _, _, payload in log[1:]] == ["noop", "noop"]


async def test_one_that_is_paused_already_is_paused_for_another_reason(shared: Database) -> None:
    first = await paused(shared, reason="deploy", until=60.0)
    second = await paused(shared, reason="broken", actor="cli:me@here")
    assert (second.reason, second.paused_by, second.until) == ("broken", "cli:me@here", None)
    assert second.paused_at == first.paused_at, "it is so since then"
    assert await pause.in_force(shared, "default", ["worker"]) == [second]
    await paused(shared, until=60.0)
    await lapsed(shared)
    assert (await paused(shared)).paused_at > first.paused_at, "in between it was not"
    assert len(await told(shared)) == 4


@pytest.mark.parametrize("until", [0.0, -1.0, datetime(2020, 1, 1, tzinfo=UTC)])
async def test_a_pause_that_would_be_over_is_refused(shared: Database, until: float | datetime) -> None:
    await paused(shared, task_type="noop")
    for task_type in (None, "noop"):
        with pytest.raises(InvalidInputError) as refused:
            await paused(shared, task_type=task_type, until=until)
        assert refused.value.code == "bad_until"
    (left,) = await pause.in_force(shared, "default", ["worker"])
    assert (left.task_type, left.until, len(await told(shared))) == ("noop", None, 1)


async def test_what_cannot_be_logged_is_not_done(database: Database) -> None:
    await paused(database, task_type="noop")
    await fetch(database, "select setval('grns.events_seq', max(upper_seq)) from grns.log_partitions")
    with pytest.raises(UnavailableError, match="janitor"):
        await paused(database)
    with pytest.raises(UnavailableError, match="janitor"):
        await resumed(database, task_type="noop")
    assert [one.task_type for one in await pause.in_force(database, "default", ["worker"])] == ["noop"]


async def test_pauses_are_read_by_pool_that_of_all_of_it_first(shared: Database) -> None:
    for agent_type, task_type in (("writer", None), ("worker", "noop"), ("worker", None), ("scout", None)):
        await paused(shared, agent_type=agent_type, task_type=task_type)
    await paused(shared, workspace="elsewhere")
    found = await pause.in_force(shared, "default", ["writer", "worker", "nobody"])
    assert [(one.agent_type, one.task_type) for one in found] == [
        ("worker", None),
        ("worker", "noop"),
        ("writer", None),
    ]
    after = ("", "")
    pools: list[tuple[str, str]] = []
    while page := await pause.of_whole_pools(shared, after, 2):
        pools += [(one.workspace, one.agent_type) for one in page]
        after = pools[-1]
    assert pools == [
        ("default", "scout"),
        ("default", "worker"),
        ("default", "writer"),
        ("elsewhere", "worker"),
    ]
