"""The table of transitions: in the database, and in what each statement does and says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from itertools import product
from typing import Any, cast
from uuid import UUID, uuid4

import asyncpg
import pytest

from grns.maintenance.reaper import reap
from grns.maintenance.scheduler import promote
from grns.model.events import PAYLOADS
from grns.model.failure import fingerprint
from grns.model.outcome import Claim, Verb
from grns.model.task import LETTERS, TERMINAL, TRANSITIONS, TaskStatus, Transition
from grns.postgres.database import Database, Session
from grns.worker.claims import Claims
from grns.worker.finishes import Finishes
from tests.support.admitters import admit
from tests.support.followers import begin_here, follow
from tests.support.harness import eventually, submit
from tests.support.operations import asked, step
from tests.support.store import (
    ACTOR,
    FINGERPRINT,
    ROADS,
    WORKER,
    cancel,
    ending,
    fetch,
    finish,
    is_waiting_for_lock,
    log_of,
    place,
    redrive,
    row_of,
    stranger,
    with_commands,
)
from tests.support.store import claim as claimed

Row = dict[str, Any]
Act = Callable[[Database, dict[str, Claim]], Awaitable[object]]

_SHAPE = """
    status = $2::text,
    owner_agent_id = case $2 when 'running' then 'worker-raw' end,
    lease_id = case $2 when 'running' then gen_random_uuid() end,
    lease_until = case $2 when 'running' then now() end,
    queued_at = case $2 when 'queued' then now() end,
    next_attempt_at = case when $2 in ('waiting', 'retry_wait') then now() end,
    waits_for = case $2 when 'waiting' then 'time' end,
    finished_at = case when $2 in ('succeeded', 'failed', 'dead', 'cancelled') then now() end
"""


async def test_the_database_allows_exactly_the_transitions_of_the_table(shared: Database) -> None:
    allowed = {(row.source, row.target) for row in TRANSITIONS if row.source} | {
        (status, status) for status in TaskStatus
    }
    task_id = (await submit(shared)).id
    seen = set()
    async with shared.connection() as connection:
        for source, target in product(TaskStatus, TaskStatus):
            await connection.execute("begin")
            await connection.execute("alter table grns.tasks disable trigger tasks_transition")
            await connection.execute(f"update grns.tasks set {_SHAPE} where id = $1", task_id, source.value)
            await connection.execute("alter table grns.tasks enable trigger tasks_transition")
            try:
                await connection.execute(
                    f"update grns.tasks set {_SHAPE} where id = $1", task_id, target.value
                )
                seen.add((source, target))
            except asyncpg.CheckViolationError as error:
                assert f"no transition from {source} to {target}" in str(error)  # noqa: PT017
            await connection.execute("rollback")
    assert seen == allowed


@pytest.mark.parametrize("status", TaskStatus)
async def test_a_row_has_what_its_status_needs_and_nothing_else(shared: Database, status: TaskStatus) -> None:
    """Running rows, and only they, have a lease; queued_at, next_attempt_at, finished_at likewise."""
    task_id = (await submit(shared)).id
    breaks = (
        "lease_id = case when lease_id is null then gen_random_uuid() end",
        "lease_until = case when lease_until is null then now() end",
        "owner_agent_id = case when owner_agent_id is null then 'x' end",
        "queued_at = case when queued_at is null then now() end",
        "next_attempt_at = case when next_attempt_at is null then now() end",
        "finished_at = case when finished_at is null then now() end",
        "waits_for = case when waits_for is null then 'time' end",
        "status = 'elsewhere'",
    )
    async with shared.connection() as connection:
        await connection.execute("alter table grns.tasks disable trigger tasks_transition")
        await connection.execute(f"update grns.tasks set {_SHAPE} where id = $1", task_id, status.value)
        for change in breaks:
            with pytest.raises(asyncpg.CheckViolationError, match="tasks_shape"):
                await connection.execute(f"update grns.tasks set {change} where id = $1", task_id)
        await connection.execute("alter table grns.tasks enable trigger tasks_transition")


async def _finish_all(database: Database, tasks: dict[str, Claim], verb: Verb) -> None:
    finishes = Finishes(database, batch_limit=100)
    await asyncio.gather(*(finishes.finish(ending(claim, verb)) for claim in tasks.values()))


async def _claim_all(database: Database, tasks: dict[str, Claim]) -> None:
    claims = Claims(database, WORKER, batch_limit=100)
    await asyncio.gather(*(claims.claim(claim.id, _COMMANDS[road]) for road, claim in tasks.items()))


_COMMANDS = {road: uuid4() for road in ROADS}
_ACTS: dict[str, Act] = {
    "claim": _claim_all,
    "claim_next": lambda database, _: Claims(database, WORKER, batch_limit=1).claim_next(
        99, older_than_seconds=0.0
    ),
    "finish succeed": lambda database, tasks: _finish_all(database, tasks, Verb.SUCCEED),
    "finish fail": lambda database, tasks: _finish_all(database, tasks, Verb.FAIL),
    "finish retry": lambda database, tasks: _finish_all(database, tasks, Verb.RETRY),
    "finish snooze": lambda database, tasks: _finish_all(database, tasks, Verb.SNOOZE),
    "finish cancel": lambda database, tasks: _finish_all(database, tasks, Verb.CANCEL),
    "release": lambda database, tasks: Finishes(database, batch_limit=1).release(
        list(tasks.values()), "shutdown"
    ),
    "reap": lambda database, _: reap(database, 99, None),
    "promote": lambda database, _: promote(database, 99, None),
    "cancel": lambda database, tasks: cancel(database, *(claim.id for claim in tasks.values()), reason="why"),
    "redrive": lambda database, tasks: redrive(database, *(claim.id for claim in tasks.values())),
    "pause": lambda database, tasks: database.run(
        "pause_tasks", [claim.id for claim in tasks.values()], "default", ACTOR, "why"
    ),
}

_RUNNING = [road for road in ROADS if road.startswith("running")]
_ASKED = ["running_asked", "running_asked_late", "running_asked_last"]
_SPENT = ["running_last", "running_last_late", "running_spared"]
_FREE = ["running", "running_late"]
_EXPECTED: dict[str, dict[str, TaskStatus]] = {
    "claim": dict.fromkeys(["queued", "queued_again", "retry_due"], TaskStatus.RUNNING),
    "claim_next": dict.fromkeys(["queued", "queued_again"], TaskStatus.RUNNING),
    "finish succeed": dict.fromkeys(_RUNNING, TaskStatus.SUCCEEDED),
    "finish fail": dict.fromkeys(_RUNNING, TaskStatus.FAILED),
    "finish retry": dict.fromkeys(_FREE, TaskStatus.RETRY_WAIT)
    | dict.fromkeys(_SPENT, TaskStatus.DEAD)
    | dict.fromkeys(_ASKED, TaskStatus.CANCELLED),
    "finish snooze": dict.fromkeys([*_FREE, *_SPENT], TaskStatus.RETRY_WAIT)
    | dict.fromkeys(_ASKED, TaskStatus.CANCELLED),
    # Nobody has asked for the end of most: an attempt alone cannot cancel its task.
    "finish cancel": dict.fromkeys(_FREE, TaskStatus.RETRY_WAIT)
    | dict.fromkeys(_SPENT, TaskStatus.DEAD)
    | dict.fromkeys(_ASKED, TaskStatus.CANCELLED),
    "release": dict.fromkeys([*_FREE, "running_last", "running_last_late"], TaskStatus.QUEUED)
    | {"running_spared": TaskStatus.DEAD}
    | dict.fromkeys(_ASKED, TaskStatus.CANCELLED),
    "reap": {
        "running_late": TaskStatus.QUEUED,
        "running_last_late": TaskStatus.DEAD,
        "running_asked_late": TaskStatus.CANCELLED,
        "running_asked_last": TaskStatus.CANCELLED,
    },
    "promote": {"waiting_due": TaskStatus.QUEUED, "retry_due": TaskStatus.QUEUED},
    "cancel": dict.fromkeys(
        ["waiting", "waiting_due", "queued", "queued_again", "retry_wait", "retry_due"], TaskStatus.CANCELLED
    ),
    "redrive": dict.fromkeys(["failed", "dead", "cancelled", "cancelled_late"], TaskStatus.QUEUED),
    "pause": dict.fromkeys(
        ["waiting", "waiting_due", "queued", "queued_again", "retry_wait", "retry_due"], TaskStatus.WAITING
    ),
}


def _status_on(road: str) -> TaskStatus:
    return (
        next(status for status in TaskStatus if road.startswith(status))
        if road[:5] != "retry"
        else (TaskStatus.RETRY_WAIT)
    )


def _transition(statement: str, source: TaskStatus | None, target: TaskStatus) -> Transition:
    by = statement.split()[0].removesuffix("_next")
    if (statement, target) == ("finish snooze", TaskStatus.RETRY_WAIT):
        by = "snooze"
    found = [row for row in TRANSITIONS if (row.source, row.target, row.by) == (source, target, by)]
    assert len(found) == 1, f"{statement}: {source} → {target} is not in the table"
    return found[0]


def test_the_roads_lead_over_every_transition() -> None:
    """What the next test sees is the whole table."""
    seen = {
        _transition(statement, _status_on(road), target)
        for statement, ends in _EXPECTED.items()
        for road, target in ends.items()
    }
    seen |= {_transition("follow", source, target) for _, source, target in _FOLLOWED.values()}
    seen |= {_transition("operation", source, TaskStatus.WAITING) for source in _OPERATED.values()}
    seen |= {_transition("resume", TaskStatus.WAITING, target) for target in _RESUMED.values()}
    seen |= {
        _transition(statement, _status_on(road), TaskStatus.WAITING) for road, statement in _LIMITED.items()
    }
    seen.add(_transition("admit", TaskStatus.WAITING, TaskStatus.QUEUED))
    seen.add(_transition("suspend", TaskStatus.RUNNING, TaskStatus.WAITING))  # tests/worker/test_steps.py
    seen |= {
        _transition("signal", TaskStatus.WAITING, target)
        for target in (TaskStatus.QUEUED, TaskStatus.WAITING)
    }
    assert seen == {row for row in TRANSITIONS if row.source is not None}


@pytest.mark.parametrize("statement", _ACTS)
async def test_a_statement_makes_its_transitions_and_no_other(shared: Database, statement: str) -> None:
    """One statement, over a task on every road: what may move moves as the table says, the rest stays."""
    tasks = {road: await place(shared, road) for road in ROADS}
    before = {road: await row_of(shared, claim.id) for road, claim in tasks.items()}
    old = {road: await log_of(shared, claim.id) for road, claim in tasks.items()}
    assert {road: row["status"] for road, row in before.items()} == {road: _status_on(road) for road in ROADS}

    await _ACTS[statement](shared, tasks)

    for road, claim in tasks.items():
        after, log = await row_of(shared, claim.id), await log_of(shared, claim.id)
        assert log[: len(old[road])] == old[road], "the log only grows"
        target, news = _EXPECTED[statement].get(road), log[len(old[road]) :]
        if target is None:
            _check_still(statement, road, before[road], after, news)
            continue
        transition = _transition(statement, _status_on(road), target)
        _check_step(transition, before[road], after, news)
        _check_causation(statement, road, before[road], claim, news)
        _check_special(statement, before[road], after, news)


# What a need went through before the follower reads, where its task is then, and where it goes.
_FOLLOWED: dict[str, tuple[str, TaskStatus, TaskStatus]] = {
    "met": ("succeed", TaskStatus.WAITING, TaskStatus.QUEUED),
    "met, and it has a delay": ("succeed", TaskStatus.WAITING, TaskStatus.WAITING),
    "broken": ("fail", TaskStatus.WAITING, TaskStatus.CANCELLED),
    "open again": ("fail read redrive", TaskStatus.CANCELLED, TaskStatus.WAITING),
    "met after all": ("fail read redrive succeed", TaskStatus.CANCELLED, TaskStatus.QUEUED),
}


@pytest.mark.parametrize("case", _FOLLOWED)
async def test_the_follower_makes_its_transitions(shared: Database, case: str) -> None:
    await begin_here(shared)
    steps, source, target = _FOLLOWED[case]
    need = (await submit(shared)).id
    delay = 100.0 if "delay" in case else 0.0
    child = (await submit(shared, needs=({"task": need},), delay_seconds=delay, causation_id=uuid4())).id
    for word in steps.split():
        if word == "read":
            await follow(shared)
        elif word == "redrive":
            await redrive(shared, need)
        else:
            await finish(shared, await claimed(shared, need), Verb(word))
    before, old = await row_of(shared, child), await log_of(shared, child)
    assert before["status"] == source
    await follow(shared)
    after, log = await row_of(shared, child), await log_of(shared, child)
    _check_step(_transition("follow", source, target), before, after, log[len(old) :])
    assert log[len(old)]["causation_id"] == before["last_message_id"]
    if target is TaskStatus.WAITING:
        assert after["waits_for"] == ("time" if delay else "tasks")
    if target is not TaskStatus.CANCELLED:
        assert after["cancel_reason"] is None


# How a task ended that needs another one, before an operation redrives it.
_OPERATED = {"retry": TaskStatus.DEAD, "fail": TaskStatus.FAILED, "cancel": TaskStatus.CANCELLED}


@pytest.mark.parametrize("end", _OPERATED)
async def test_an_operation_lets_a_task_wait_for_its_needs_once_more(shared: Database, end: str) -> None:
    await begin_here(shared)
    need = (await submit(shared)).id
    child = (await submit(shared, needs=({"task": need},), max_attempts=1)).id
    await finish(shared, await claimed(shared, need), Verb.SUCCEED)
    await follow(shared)
    if end == "cancel":
        await cancel(shared, child)
    else:
        await finish(shared, await claimed(shared, child), Verb(end))
    before, old = await row_of(shared, child), await log_of(shared, child)
    await asked(shared, filter="status:dead,failed,cancelled")
    await step(shared)
    after, log = await row_of(shared, child), await log_of(shared, child)
    _check_step(_transition("operation", _OPERATED[end], TaskStatus.WAITING), before, after, log[len(old) :])
    assert after["waits_for"] == "tasks"
    await follow(shared)
    assert (await row_of(shared, child))["status"] == "queued", "its need is met still"


# By what a task that falls under a limit comes to wait for room.
_LIMITED = {
    "waiting_due": "promote",
    "retry_due": "promote",
    "failed": "redrive",
    "dead": "redrive",
    "cancelled": "redrive",
}


@pytest.mark.parametrize("road", _LIMITED)
async def test_a_task_under_limits_waits_for_room_and_is_admitted(shared: Database, road: str) -> None:
    held = await place(shared, road)
    task_id = held.id
    await fetch(shared, "update grns.tasks set limits = '{tenant}' where id = $1", task_id)
    before, old = await row_of(shared, task_id), await log_of(shared, task_id)
    await _ACTS[_LIMITED[road]](shared, {road: held})
    waiting, log = await row_of(shared, task_id), await log_of(shared, task_id)
    _check_step(
        _transition(_LIMITED[road], _status_on(road), TaskStatus.WAITING), before, waiting, log[len(old) :]
    )
    assert waiting["waits_for"] == "limit"
    await admit(shared)
    admitted, more = await row_of(shared, task_id), await log_of(shared, task_id)
    _check_step(
        _transition("admit", TaskStatus.WAITING, TaskStatus.QUEUED), waiting, admitted, more[len(log) :]
    )
    assert more[len(log)]["causation_id"] == waiting["last_message_id"]


# What a task was, before it was paused, and where a resume leads.
_RESUMED = {
    "queued": TaskStatus.QUEUED,
    "waiting": TaskStatus.WAITING,
    "retry_due": TaskStatus.QUEUED,
    "needy": TaskStatus.WAITING,
}


@pytest.mark.parametrize("road", _RESUMED)
async def test_a_resumed_task_waits_for_what_it_waited_for(shared: Database, road: str) -> None:
    await begin_here(shared)
    if road == "needy":
        need = (await submit(shared)).id
        task_id = (await submit(shared, needs=({"task": need},))).id
    else:
        task_id = (await place(shared, road)).id
    due_at = (await row_of(shared, task_id))["next_attempt_at"]
    await shared.run("pause_tasks", [task_id], "default", ACTOR, "why")
    if road == "needy":
        await finish(shared, await claimed(shared, need), Verb.SUCCEED)
        await follow(shared)
        assert (await row_of(shared, task_id))["waits_for"] == "pause", "it is paused, and its needs are met"
    await promote(shared, 99, None)
    before, old = await row_of(shared, task_id), await log_of(shared, task_id)
    assert (before["status"], before["waits_for"]) == ("waiting", "pause")
    await shared.run("resume_tasks", [task_id], "default", ACTOR, "why")
    after, log = await row_of(shared, task_id), await log_of(shared, task_id)
    _check_step(_transition("resume", TaskStatus.WAITING, _RESUMED[road]), before, after, log[len(old) :])
    if road == "waiting":
        assert (after["waits_for"], after["next_attempt_at"]) == ("time", due_at)
    if road == "needy":
        await follow(shared)
        assert (await row_of(shared, task_id))["status"] == "queued"
    again = await shared.run("resume_tasks", [task_id], "default", ACTOR, "why")
    assert again[0]["answer"] == (await row_of(shared, task_id))["status"]


# What waits for a row: where it leads, what it answers then, and what it answers of a task that runs.
_LATE = {
    "cancel": (TaskStatus.CANCELLED, "cancelled", "requested"),
    "redrive": (TaskStatus.QUEUED, "redriven", "running"),
}


@pytest.mark.parametrize("statement", _ACTS)
@pytest.mark.parametrize("late", _LATE)
async def test_a_statement_that_waited_for_another_goes_on_from_what_that_one_left(
    shared: Database, late: str, statement: str
) -> None:
    """Its snapshot knows the tasks as they were before: what it writes must have the shape all the same."""
    tasks = {road: await place(shared, road) for road in _EXPECTED[statement]}
    async with stranger(shared) as connection:
        await _ACTS[statement](cast(Database, Session(connection)), tasks)
        before = {row["id"]: dict(row) for row in await connection.fetch("select * from grns.tasks")}
        logged = {
            row["message_id"] for row in with_commands(await connection.fetch("select * from grns.events"))
        }
        late_one = asyncio.ensure_future(_ACTS[late](shared, tasks))
        await eventually(lambda: is_waiting_for_lock(shared))
        await connection.execute("commit")
        answers = cast(dict[str, str], await late_one)

    for road, claim in tasks.items():
        row, after = before[claim.id], await row_of(shared, claim.id)
        news = [new for new in await log_of(shared, claim.id) if new["message_id"] not in logged]
        source, (target, done, of_running) = TaskStatus(row["status"]), _LATE[late]
        assert source is _EXPECTED[statement][road]
        if any((step.source, step.target, step.by) == (source, target, late) for step in TRANSITIONS):
            assert answers[claim.id] == done
            _check_step(_transition(late, source, target), row, after, news)
            _check_causation(late, road, row, claim, news)
            _check_special(late, row, after, news)
        else:
            assert answers[claim.id] == (of_running if source is TaskStatus.RUNNING else source)
            _check_still(late, road, row, after, news)


def _check_still(statement: str, road: str, before: Row, after: Row, news: Sequence[Row]) -> None:
    assert news == [], road
    if statement == "cancel" and before["status"] == "running":
        assert after["cancel_requested_at"] is not None
        assert after["cancel_reason"] == ("not needed" if road in _ASKED else "why")
        assert after["cancel_actor"] == ACTOR
        changed = dict.fromkeys(("cancel_requested_at", "cancel_reason", "cancel_actor", "updated_at"))
        before, after = before | changed, after | changed
    assert after == before, road


def _check_step(transition: Transition, before: Row | None, after: Row, news: Sequence[Row]) -> None:
    """The row and the messages are those of the transition."""
    assert after["status"] == transition.target
    assert after["version"] == (before["version"] + 1 if before else 1)
    expected = [transition.event]
    expected += ["cmd.task.execute"] if transition.command else []
    expected += [transition.dead_letter] if transition.dead_letter else []
    assert [row["kind"] for row in news] == expected
    assert news[0]["message_id"] == after["last_message_id"]
    assert len({row["message_id"] for row in news}) == len(news)
    is_asked_for = transition.by in ("redrive", "operation", "pause", "resume") or (
        transition.target is TaskStatus.CANCELLED and transition.by != "follow"
    )
    was = LETTERS[transition.source].encode() if transition.source else None
    assert [row["was"] for row in news] == [was] + [None] * (len(news) - 1)
    assert [row["actor"] for row in news] == [ACTOR if is_asked_for else None] + [None] * (len(news) - 1)
    for row in news:
        assert row["version"] == after["version"]
        assert (row["workspace"], row["trace_id"]) == (after["workspace"], after["trace_id"])
        assert row["attempt"] == after["attempt"]
        is_command = row["kind"] == "cmd.task.execute"
        assert row["route"] == (f"{after['agent_type']}.p{after['priority']}" if is_command else None)
        _check_payload(transition, before or {}, after, row)
    _check_columns(transition, before or {}, after)


def _check_payload(transition: Transition, before: Row, after: Row, row: Row) -> None:
    """The payload fits its model and says what the row says."""
    model = PAYLOADS[row["kind"]].model_validate_json(row["payload"])
    said = model.model_dump(by_alias=True, exclude_unset=True)
    truth = {name: after[name] for name in ("task_type", "agent_type", "priority", "attempt", "fingerprint")}
    truth |= {name: after[name] for name in ("next_attempt_at", "result_ref")}
    truth["task_id"] = after["id"]
    truth["target_agent_type"] = after["agent_type"]
    truth["agent_id"] = after["owner_agent_id"] or before.get("owner_agent_id")
    truth["lease_until"] = after["lease_until"] or before.get("lease_until")
    truth["max_attempts"] = after["attempt_limit"]
    truth["payload"] = json.loads(after["payload"])
    truth["error"] = json.loads(after["last_error"] or "null")
    if transition.command and row["kind"] != "evt.task.lease_expired":
        truth["reason"] = "shutdown" if row["kind"] == "evt.task.released" else transition.command
    if transition.target is TaskStatus.CANCELLED:
        truth["reason"], truth["actor"] = after["cancel_reason"], after["cancel_actor"]
    if transition.by in ("pause", "resume"):
        truth["actor"] = ACTOR
    if transition.by in ("redrive", "operation"):
        is_dead = before["status"] in (TaskStatus.DEAD, TaskStatus.FAILED)
        truth["actor"], truth["fingerprint"] = ACTOR, before["fingerprint"] if is_dead else None
    known = {name: value for name, value in said.items() if name in truth}
    assert known == {name: truth[name] for name in known}
    if transition.target in TERMINAL:  # newcomer 8: a subscriber need not look the task up
        assert {"task_type", "agent_type"} <= known.keys()


def _check_columns(transition: Transition, before: Row, after: Row) -> None:
    if transition.target is TaskStatus.QUEUED:
        assert after["queued_reason"] == transition.command
        assert after["queued_at"] == after["updated_at"]
        assert after["next_attempt_at"] is None
        assert after["finished_at"] is None
    if transition.target in TERMINAL:
        assert after["finished_at"] == after["updated_at"]
    if transition.target is not TaskStatus.RUNNING:
        assert (after["owner_agent_id"], after["lease_id"], after["lease_until"]) == (None, None, None)
    if before:
        assert after["attempt"] == before["attempt"] + (transition.by == "claim")
        assert after["updated_at"] > before["updated_at"]


def _check_causation(statement: str, road: str, before: Row, claim: Claim, news: Sequence[Row]) -> None:
    """An event answers its command, a command follows from its event, a retry from its schedule."""
    event, *others = news
    causes: dict[str, UUID | None] = {"claim": _COMMANDS[road], "finish": claim.causation_id}
    cause = causes.get(statement.split()[0], before["last_message_id"])
    if statement == "promote" and before["status"] == "waiting":
        cause = before["causation_id"]
    assert cause is not None
    assert event["causation_id"] == cause
    for other in others:
        assert other["causation_id"] == event["message_id"]


def _check_special(statement: str, before: Row, after: Row, news: Sequence[Row]) -> None:
    said = json.loads(news[0]["payload"])
    if statement.startswith("claim"):
        assert (after["lease_until"] - after["updated_at"]).total_seconds() == WORKER.lease_seconds
        assert (after["owner_agent_id"], after["attempt_limit"]) == (
            WORKER.agent_id,
            before["max_attempts"] or 3,
        )
        assert after["started_at"] == after["updated_at"]
    elif after["status"] == "retry_wait":
        assert (after["next_attempt_at"] - after["updated_at"]).total_seconds() == 100.0
        is_snoozed = statement == "finish snooze"
        assert after["uncounted_attempts"] - before["uncounted_attempts"] == is_snoozed
        if not is_snoozed:
            assert (said["backoff_ms"], said["error_class"]) == (100_000, "ValueError")
    elif statement == "release" and after["status"] == "queued":
        assert (after["uncounted_attempts"], after["released"]) == (
            before["uncounted_attempts"] + 1,
            before["released"] + 1,
        )
    elif statement == "redrive":
        assert (after["uncounted_attempts"], after["released"]) == (after["attempt"], 0)
        assert (after["cancel_requested_at"], after["cancel_reason"], after["cancel_actor"]) == (None,) * 3
    elif after["status"] == "succeeded":
        assert json.loads(after["result"]) == {"answer": 42}
        assert after["result_ref"] == f"db://tasks/{after['id']}"
    elif after["status"] == "dead":
        classes = {"reap": "lease_expired", "release": "released"}
        assert said["error_class"] == classes.get(statement, "ValueError")
        made = {name: fingerprint("noop", error_class, "") for name, error_class in classes.items()}
        assert after["fingerprint"] == made.get(statement, FINGERPRINT)


@pytest.mark.parametrize("delay_seconds", [0.0, 7.0])
async def test_submit_makes_its_transitions(shared: Database, delay_seconds: float) -> None:
    causation_id = uuid4()
    submitted = await submit(
        shared, payload={"a": [1]}, agent_type="writer", priority=0, delay_seconds=delay_seconds,
        causation_id=causation_id, trace_id="tr-1",
    )  # fmt: skip
    after, news = await row_of(shared, submitted.id), await log_of(shared, submitted.id)
    target = TaskStatus.WAITING if delay_seconds else TaskStatus.QUEUED
    _check_step(_transition("submit", None, target), None, after, news)
    assert news[0]["causation_id"] == causation_id
    if delay_seconds:
        assert (after["next_attempt_at"] - after["created_at"]).total_seconds() == delay_seconds
    assert after["attempt"] == after["uncounted_attempts"] == 0
    assert len(await fetch(shared, "select from grns.tasks")) == 1
