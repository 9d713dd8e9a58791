"""Claiming: each task at most once, only what may run, and a reason where nothing was claimed."""

from __future__ import annotations

import asyncio
import json
import random
import time
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from grns.errors import UnavailableError
from grns.maintenance.audit import audit_tasks
from grns.maintenance.scheduler import promote
from grns.model.outcome import Claim, Unclaimed, Verb
from grns.postgres.database import Database
from grns.worker.claims import Claims, dispatch, explain
from grns.worker.finishes import Finishes
from tests.support.harness import submit, submit_many
from tests.support.store import (
    OTHER_WORKER,
    WORKER,
    claim,
    ending,
    fall_due,
    fetch,
    finish,
    kinds_of,
    locked,
    log_of,
    place,
    refusal,
    release,
    row_of,
    stranger,
)


async def test_of_two_claimants_one_gets_each_task(shared: Database) -> None:
    ids = await submit_many(shared, 200)
    shuffled = random.Random(7).sample(ids, len(ids))
    one = Claims(shared, WORKER, batch_limit=20)
    two = Claims(shared, OTHER_WORKER, batch_limit=30)
    answers = await asyncio.gather(
        *(one.claim(task_id) for task_id in ids), *(two.claim(task_id) for task_id in shuffled)
    )
    won = [answer for answer in answers if isinstance(answer, Claim)]
    lost = [answer for answer in answers if isinstance(answer, Unclaimed)]
    assert sorted(answer.id for answer in won) == sorted(ids)
    assert sorted(answer.id for answer in lost) == sorted(ids)
    assert {answer.reason for answer in lost} <= {"lost_race", "locked"}
    rows = await fetch(shared, "select id, attempt, owner_agent_id, lease_id from grns.tasks")
    owners = {row["id"]: (row["attempt"], row["owner_agent_id"], row["lease_id"]) for row in rows}
    who = [WORKER.agent_id if place < 200 else OTHER_WORKER.agent_id for place in range(400)]
    assert owners == {
        answer.id: (1, owner, answer.lease_id)
        for answer, owner in zip(answers, who, strict=True)
        if isinstance(answer, Claim)
    }
    counts = await fetch(shared, "select count(*) from grns.events where kind = 'evt.task.claimed'")
    assert counts[0]["count"] == 200


async def test_a_task_named_twice_in_one_batch_is_claimed_once(shared: Database) -> None:
    task_id = (await submit(shared)).id
    claims = Claims(shared, WORKER, batch_limit=10)
    first, second, third = await asyncio.gather(*(claims.claim(task_id) for _ in range(3)))
    won = [answer for answer in (first, second, third) if isinstance(answer, Claim)]
    assert len(won) == 1
    row = await row_of(shared, task_id)
    assert (row["attempt"], row["lease_id"]) == (1, won[0].lease_id)
    assert (await kinds_of(shared, task_id)).count("evt.task.claimed") == 1


async def test_two_polls_share_what_there_is(shared: Database) -> None:
    ids = await submit_many(shared, 60)
    polls = [Claims(shared, who, batch_limit=1) for who in (WORKER, OTHER_WORKER)]
    found = await asyncio.gather(*(poll.claim_next(40, older_than_seconds=0.0) for poll in polls * 2))
    assert sorted(answer.id for answers in found for answer in answers) == sorted(ids)


async def test_the_poll_takes_the_most_urgent_and_the_oldest_first(shared: Database) -> None:
    ids = {}
    for name, priority, age in (("old", 2, 50), ("new", 2, 10), ("urgent", 0, 20), ("fresh", 0, 0)):
        ids[name] = (await submit(shared, priority=priority)).id
        await fetch(
            shared, "update grns.tasks set queued_at = now() - $2::interval where id = $1",
            ids[name], timedelta(seconds=age),
        )  # fmt: skip
    poll = Claims(shared, WORKER, batch_limit=1)
    taken = []
    while found := await poll.claim_next(1, older_than_seconds=5.0):
        taken += found
    assert [answer.id for answer in taken] == [ids["urgent"], ids["old"], ids["new"]]
    assert 19.0 < taken[0].queued_seconds < 40.0


async def test_the_poll_takes_only_what_its_worker_serves(shared: Database) -> None:
    for fields in (
        {"agent_type": "writer"},
        {"workspace": "elsewhere"},
        {"task_type": "unheard_of"},
        {"delay_seconds": 60.0},
    ):
        await submit(shared, **{"task_type": "noop", **fields})  # type: ignore[arg-type]
    mine = (await submit(shared)).id
    found = await Claims(shared, WORKER, batch_limit=1).claim_next(9, older_than_seconds=0.0)
    assert [answer.id for answer in found] == [mine]


@pytest.mark.parametrize(
    ("road", "reason"),
    [
        ("waiting", "not_due"),
        ("retry_wait", "not_due"),
        ("running", "lost_race"),
        ("running_late", "lost_race"),
        ("succeeded", "terminal"),
        ("failed", "terminal"),
        ("dead", "terminal"),
        ("cancelled", "terminal"),
    ],
)
async def test_what_may_not_run_says_why(shared: Database, road: str, reason: str) -> None:
    task_id = (await place(shared, road)).id
    before = await row_of(shared, task_id), await log_of(shared, task_id)
    assert await refusal(shared, task_id) == reason
    assert await explain(shared, task_id, WORKER) == reason
    assert (await row_of(shared, task_id), await log_of(shared, task_id)) == before


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"workspace": "elsewhere"}, "other_workspace"),
        ({"agent_type": "writer"}, "other_agent_type"),
        ({"task_type": "unheard_of"}, "no_handler"),
    ],
)
async def test_what_others_serve_says_so(shared: Database, fields: dict[str, str], reason: str) -> None:
    task_id = (await submit(shared, **{"task_type": "noop", **fields})).id
    assert await refusal(shared, task_id) == reason
    assert (await row_of(shared, task_id))["attempt"] == 0


async def test_an_id_that_nobody_made_is_unknown(shared: Database) -> None:
    mine = (await submit(shared)).id
    claims = Claims(shared, WORKER, batch_limit=10)
    strange = ["gr-nothing", "'; drop table tasks;--", mine]
    answers = await asyncio.gather(*(claims.claim(task_id) for task_id in strange))
    assert [isinstance(answer, Claim) or answer.reason for answer in answers] == [
        "unknown_task",
        "unknown_task",
        True,
    ]


async def test_a_locked_row_is_left_and_blocks_nothing(shared: Database) -> None:
    held, free = await submit_many(shared, 2)
    async with locked(shared, held):
        claims = Claims(shared, WORKER, batch_limit=10)
        refused, claimed = await asyncio.gather(claims.claim(held), claims.claim(free))
        assert refused == Unclaimed(held, "locked")
        assert isinstance(claimed, Claim)
    assert (await claim(shared, held)).attempt == 1


async def test_a_task_of_an_open_transaction_is_unknown_until_it_commits(shared: Database) -> None:
    async with stranger(shared) as connection:
        task_id = await connection.fetchval("select grns.submit_task('noop')")
        assert await refusal(shared, task_id) == "unknown_task"
        await connection.execute("commit")
    assert (await claim(shared, task_id)).id == task_id


async def test_the_limit_of_the_row_wins_over_the_handlers_and_three_is_the_last_word(
    shared: Database,
) -> None:
    who = replace(WORKER, handled={"noop": 5, "modest": None})
    ids = [
        (await submit(shared, "noop")).id,
        (await submit(shared, "modest")).id,
        (await submit(shared, "noop", max_attempts=2)).id,
    ]
    assert [(await claim(shared, task_id, who=who)).attempt_limit for task_id in ids] == [5, 3, 2]


@pytest.mark.parametrize("way", ["by_id", "by_poll"])
async def test_a_claim_that_allows_less_than_is_spent_allows_just_itself(shared: Database, way: str) -> None:
    """While a new version is rolled out, a task that was retried is claimed by one with a smaller limit."""
    older, newer = (replace(WORKER, handled={"noop": limit}) for limit in (5, 2))
    task_id = (await submit(shared)).id
    for who in (older, older, older, newer):
        if way == "by_id":
            held = await claim(shared, task_id, who=who)
        else:
            (held,) = await Claims(shared, who, batch_limit=1).claim_next(1, older_than_seconds=0.0)
        finished = await finish(shared, held, Verb.RETRY)
        if finished.status == "retry_wait":
            await fall_due(shared, task_id)
            assert await promote(shared, 1, None)
    assert (held.attempt, held.attempt_limit) == (4, 4)
    assert finished.status == "dead"
    assert (await audit_tasks(shared, "", 10)).findings == []


async def test_a_claim_brings_what_the_handler_needs(shared: Database) -> None:
    command = uuid4()
    submitted = await submit(shared, payload={"a": {"": [1, None]}}, priority=3, trace_id="tr-9")
    await fetch(shared, "update grns.tasks set queued_at = now() - interval '7 s'")
    earlier = time.monotonic()
    got = await claim(shared, submitted.id, causation_id=command)
    assert (got.task_type, got.priority, got.payload) == ("noop", 3, '{"a": {"": [1, null]}}')
    assert (got.trace_id, got.causation_id, got.attempt, got.uncounted_attempts) == ("tr-9", command, 1, 0)
    assert 7.0 <= got.queued_seconds < 30.0
    assert earlier + 15.0 <= got.expires_at <= time.monotonic() + 15.0, "counted from before the request"
    await release(shared, got)
    again = await claim(shared, submitted.id)
    assert (again.attempt, again.uncounted_attempts, again.counted_attempts) == (2, 1, 1)
    assert again.lease_id != got.lease_id


async def test_dispatch_writes_a_new_command_for_what_is_queued_and_nothing_else(shared: Database) -> None:
    command = uuid4()
    for road in ("waiting", "running", "retry_wait", "succeeded", "dead", "cancelled"):
        task_id = (await place(shared, road)).id
        before = len(await log_of(shared, task_id))
        assert not await dispatch(shared, task_id, command)
        assert len(await log_of(shared, task_id)) == before
    assert not await dispatch(shared, "gr-nothing", command)

    task_id = (await place(shared, "queued_again")).id
    row, log = await row_of(shared, task_id), await log_of(shared, task_id)
    assert await dispatch(shared, task_id, command)
    assert await row_of(shared, task_id) == row, "a dispatch is no transition"
    *older, news = await log_of(shared, task_id)
    assert older == log
    old_ids = {entry["message_id"] for entry in log}
    assert news["message_id"] not in old_ids, "the broker drops an id that it has seen"
    assert (news["kind"], news["causation_id"]) == ("cmd.task.execute", command)
    assert (news["route"], news["version"]) == ("worker.p1", row["version"])
    assert '"reason" : "released"' in news["payload"]


async def test_without_a_schema_the_error_names_the_command_to_run(shared: Database) -> None:
    bare = Database(shared.url.rsplit("/", 1)[0] + "/postgres", name="test")
    await bare.connect()
    try:
        with pytest.raises(UnavailableError, match="grns admin db upgrade"):
            await Claims(bare, WORKER, batch_limit=1).claim("gr-x")
    finally:
        await bare.close()


async def test_each_message_has_an_id_of_its_own(shared: Database) -> None:
    """Those of one statement differ in their last digits only; all are version 4, as others make them."""
    ids = await submit_many(shared, 40)
    claims = Claims(shared, WORKER, batch_limit=100)
    await asyncio.gather(*(claims.claim(one) for one in ids[:20]))
    await claims.claim_next(20, older_than_seconds=0.0)
    rows = await fetch(shared, "select message_id from grns.events")
    assert len(rows) == 40 + 20 + 20
    assert len({row["message_id"] for row in rows}) == len(rows)
    assert {row["message_id"].version for row in rows} == {4}


@pytest.mark.parametrize("name", ['a "worker" \\ \t', "wörker"])
async def test_a_worker_may_have_any_name(shared: Database, name: str) -> None:
    """What the log says of it is JSON all the same."""
    claim_ = await claim(shared, (await submit(shared)).id, who=replace(WORKER, agent_id=name))
    await Finishes(shared, batch_limit=1).finish(ending(claim_))
    said = [json.loads(row["payload"]) for row in await log_of(shared, claim_.id)]
    assert [payload.get("agent_id") for payload in said] == [None, None, name, name]


@pytest.mark.parametrize("is_next", [False, True])
async def test_what_waits_for_a_connection_at_the_end_claims_nothing(
    shared: Database, shared_url: str, *, is_next: bool
) -> None:
    """A worker that was asked to stop takes nothing more, however slow its database was until then."""
    (task_id,) = await submit_many(shared, 1)
    narrow = Database(shared_url, name="narrow", size=1)
    claims = Claims(narrow, WORKER, batch_limit=10)
    async with narrow.opened():
        async with narrow.connection():
            wish = claims.claim_next(1, older_than_seconds=0.0) if is_next else claims.claim(task_id)
            waiting = asyncio.ensure_future(wish)
            await asyncio.sleep(0.05)
            claims.close()
        answer = await waiting
        assert await claims.claim(task_id) == Unclaimed(task_id, "stopping")
    assert answer == ([] if is_next else Unclaimed(task_id, "stopping"))
    assert (await row_of(shared, task_id))["status"] == "queued"
