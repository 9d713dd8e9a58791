"""Tasks that need others: each is queued once, when what it needs has ended, whoever commits first."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from grns.errors import ConflictError, InvalidInputError, UnavailableError
from grns.maintenance.retention import delete_tasks
from grns.maintenance.scheduler import promote
from grns.model.json import Limits
from grns.model.outcome import Verb
from grns.model.submission import submission
from grns.postgres.database import Database
from grns.tasks.submit import NewWorkflow, Submissions, prepare
from tests.support.followers import begin_here, follow, lead
from tests.support.harness import submit, submit_many
from tests.support.store import (
    cancel,
    claim,
    fall_due,
    fetch,
    finish,
    kinds_of,
    locked,
    log_of,
    redrive,
    row_of,
    stranger,
)


@pytest.fixture(autouse=True)
async def begun(shared: Database) -> None:
    """Let what is followed here begin here."""
    await begin_here(shared)


def need(task_id: str, outcome: str = "success") -> dict[str, str]:
    """Return a need."""
    return {"task": task_id, "outcome": outcome}


async def child_of(database: Database, *needs: str | dict[str, str], **fields: Any) -> str:
    """Submit a task that needs others, and return its id."""
    wanted = tuple(need(one) if isinstance(one, str) else one for one in needs)
    return (await submit(database, needs=wanted, **fields)).id


async def parent(database: Database) -> str:
    """Submit a task, and return its id."""
    return (await submit(database)).id


async def end(database: Database, task_id: str, verb: Verb = Verb.SUCCEED) -> None:
    """Run a task to its end."""
    await finish(database, await claim(database, task_id), verb)


async def where(database: Database, *ids: str) -> list[str]:
    """Return the statuses of tasks."""
    return [str((await row_of(database, one))["status"]) for one in ids]


# ---------------------------------------------------------------- who commits first


async def test_a_task_is_queued_when_what_it_needs_has_succeeded(shared: Database) -> None:
    first, second = await parent(shared), await parent(shared)
    child = await child_of(shared, first, second)
    await end(shared, first)
    await follow(shared)
    assert await where(shared, child) == ["waiting"]
    await end(shared, second)
    await follow(shared)
    row = await row_of(shared, child)
    assert (row["status"], row["waits_for"], row["queued_reason"]) == ("queued", None, "needs_met")
    assert await kinds_of(shared, child) == ["evt.task.waiting", "evt.task.queued", "cmd.task.execute"]
    log = await log_of(shared, child)
    assert json.loads(log[0]["payload"])["waits_for"] == "tasks"
    assert [entry["version"] for entry in log] == [1, 2, 2]
    assert json.loads(log[2]["payload"])["reason"] == "needs_met"
    await end(shared, child)


async def test_what_has_ended_before_is_seen(shared: Database) -> None:
    done = await parent(shared)
    await end(shared, done)
    await follow(shared)
    child = await child_of(shared, done)
    await follow(shared)
    assert await where(shared, child) == ["queued"]


async def test_what_commits_after_its_need_has_ended_and_was_read_is_seen(shared: Database) -> None:
    first = await parent(shared)
    tasks = json.dumps([{"task_type": "noop", "needs": [{"task": first}]}])
    async with stranger(shared) as connection:
        (row,) = await connection.fetch("select * from grns.submit_graph($1::text::jsonb)", tasks)
        await end(shared, first)
        await follow(shared)
        await connection.execute("commit")
    await follow(shared)
    assert await where(shared, row["task_id"]) == ["queued"]


async def test_many_sessions_that_commit_at_the_same_time_lose_nothing(shared: Database) -> None:
    parents = await submit_many(shared, 40)
    claims = [await claim(shared, one) for one in parents]
    children: list[str] = []

    async def add(one: str) -> None:
        children.append(await child_of(shared, one))

    async def follow_on() -> None:
        leading = await lead(shared)
        for _ in range(30):
            await leading.step(7)

    ends = (finish(shared, one) for one in claims)
    await asyncio.gather(*(add(one) for one in parents), *ends, follow_on())
    await follow(shared)
    assert await where(shared, *children) == ["queued"] * 40
    for one in children:
        assert (await kinds_of(shared, one)).count("cmd.task.execute") == 1


# ---------------------------------------------------------------- how needs end


@pytest.mark.parametrize(
    ("outcome", "verb", "status"),
    [
        ("success", Verb.SUCCEED, "queued"),
        ("success", Verb.FAIL, "cancelled"),
        ("failure", Verb.FAIL, "queued"),
        ("failure", Verb.SUCCEED, "cancelled"),
        ("end", Verb.SUCCEED, "queued"),
        ("end", Verb.FAIL, "queued"),
    ],
)
async def test_a_need_says_how_a_task_must_end(
    shared: Database, outcome: str, verb: Verb, status: str
) -> None:
    first = await parent(shared)
    child = await child_of(shared, need(first, outcome))
    await end(shared, first, verb)
    await follow(shared)
    assert await where(shared, child) == [status]


async def test_what_cannot_be_met_cancels_and_that_goes_on(shared: Database) -> None:
    first = await parent(shared)
    child = await child_of(shared, first)
    grandchild = await child_of(shared, child)
    anyway = await child_of(shared, need(child, "end"))
    await end(shared, first, Verb.FAIL)
    await follow(shared)
    assert await where(shared, child, grandchild, anyway) == ["cancelled", "cancelled", "queued"]
    row = await row_of(shared, child)
    assert (row["cancel_reason"], row["cancel_actor"]) == ("dependency", None)
    told = json.loads((await log_of(shared, child))[-1]["payload"])
    assert (told["reason"], told["dependency"]) == ("dependency", first)


async def test_a_branch_that_is_not_needed_is_skipped(shared: Database) -> None:
    first = await parent(shared)
    undo = await child_of(shared, need(first, "failure"))
    after = await child_of(shared, undo)
    anyway = await child_of(shared, need(undo, "end"))
    of_failure = await child_of(shared, need(undo, "failure"))
    await end(shared, first)
    await follow(shared)
    assert await where(shared, undo, after, anyway, of_failure) == ["cancelled"] * 2 + ["queued", "cancelled"]
    assert [(await row_of(shared, one))["cancel_reason"] for one in (undo, after, of_failure)] == [
        "skipped"
    ] * 3


@pytest.mark.parametrize(("required", "statuses"), [(1, ["queued", "queued"]), (2, ["waiting", "queued"])])
async def test_some_of_the_needs_are_enough(shared: Database, required: int, statuses: list[str]) -> None:
    first, second, third = [await parent(shared) for _ in range(3)]
    child = await child_of(shared, first, second, third, required=required)
    await end(shared, first)
    await follow(shared)
    assert await where(shared, child) == statuses[:1]
    await end(shared, second, Verb.FAIL)
    await end(shared, third)
    await follow(shared)
    assert await where(shared, child) == statuses[1:]


async def test_too_few_that_can_still_succeed_cancel(shared: Database) -> None:
    first, second, third = [await parent(shared) for _ in range(3)]
    child = await child_of(shared, first, second, third, required=2)
    await end(shared, first, Verb.FAIL)
    await follow(shared)
    assert await where(shared, child) == ["waiting"]
    await cancel(shared, second)
    await follow(shared)
    assert await where(shared, child) == ["cancelled"]


async def test_what_has_needs_and_a_delay_waits_for_both(shared: Database) -> None:
    first = await parent(shared)
    child = await child_of(shared, first, delay_seconds=60.0)
    await end(shared, first)
    await follow(shared)
    row = await row_of(shared, child)
    assert (row["status"], row["waits_for"]) == ("waiting", "time")
    assert row["next_attempt_at"] > row["created_at"]
    await fall_due(shared, child)
    await promote(shared, 10, None)
    assert await where(shared, child) == ["queued"]
    assert await kinds_of(shared, child) == ["evt.task.waiting"] * 2 + ["evt.task.queued", "cmd.task.execute"]


# ---------------------------------------------------------------- redrive, cancel, retention


async def test_a_redrive_brings_back_what_was_cancelled_for_it(shared: Database) -> None:
    first = await parent(shared)
    child = await child_of(shared, first)
    grandchild = await child_of(shared, child)
    await end(shared, first, Verb.FAIL)
    await follow(shared)
    await redrive(shared, first)
    await follow(shared)
    assert await where(shared, child, grandchild) == ["waiting", "waiting"]
    await end(shared, first)
    await follow(shared)
    await end(shared, child)
    await follow(shared)
    assert await where(shared, child, grandchild) == ["succeeded", "queued"]


async def test_a_redrive_and_its_end_that_are_read_at_once_count_once(shared: Database) -> None:
    first = await parent(shared)
    child = await child_of(shared, first)
    await end(shared, first, Verb.FAIL)
    await follow(shared)
    await redrive(shared, first)
    await end(shared, first)
    await follow(shared)
    assert await where(shared, child) == ["queued"]
    (row,) = await fetch(shared, "select open, met, broken from grns.waits where task_id = $1", child)
    assert tuple(row) == (0, 1, 0)


async def test_a_redrive_leaves_alone_what_a_user_has_cancelled(shared: Database) -> None:
    first, second = await parent(shared), await parent(shared)
    child = await child_of(shared, first, second, required=1)
    await cancel(shared, child)
    await end(shared, first, Verb.FAIL)
    await follow(shared)
    await redrive(shared, first)
    await end(shared, first)
    await follow(shared)
    assert await where(shared, child) == ["cancelled"]


async def test_a_task_that_was_cancelled_for_its_needs_can_be_redriven_by_itself(shared: Database) -> None:
    first = await parent(shared)
    child = await child_of(shared, first)
    await end(shared, first, Verb.FAIL)
    await follow(shared)
    await redrive(shared, child)
    await follow(shared)
    assert await where(shared, child) == ["queued"]
    await cancel(shared, child)
    await redrive(shared, first)
    await end(shared, first)
    await follow(shared)
    assert await where(shared, child) == ["cancelled"], "a user has cancelled it since"


async def test_what_is_needed_is_kept_until_what_needs_it_has_ended(shared: Database) -> None:
    first = await parent(shared)
    child = await child_of(shared, first)
    await end(shared, first)
    await fetch(shared, "update grns.tasks set finished_at = now() - interval '1 day' where id = $1", first)
    assert (await delete_tasks(shared, "", 100, 60, 60)).deleted == 0
    await follow(shared)
    assert (await delete_tasks(shared, "", 100, 60, 60)).deleted == 0, "its result may be asked for"
    await end(shared, child)
    await fetch(shared, "update grns.tasks set finished_at = now() - interval '1 day' where id = $1", child)
    assert (await delete_tasks(shared, "", 100, 60, 60)).deleted == 2
    assert await fetch(shared, "select from grns.needs union all select from grns.waits") == []


# ---------------------------------------------------------------- the follower


async def test_a_row_that_another_session_has_locked_holds_nothing_up(shared: Database) -> None:
    first = await parent(shared)
    held, free = await child_of(shared, first), await child_of(shared, first)
    async with locked(shared, held):
        await end(shared, first)
        leading = await follow(shared)
        assert await where(shared, held, free) == ["waiting", "queued"]
        assert leading.has_work
    await follow(shared, leading)
    assert await where(shared, held) == ["queued"]
    assert not leading.has_work
    assert await fetch(shared, "select from grns.follow_later") == []


async def test_a_task_that_another_session_has_locked_holds_up_none_that_need_it(shared: Database) -> None:
    first, second = await parent(shared), await parent(shared)
    child, other = await child_of(shared, first), await child_of(shared, second)
    await end(shared, first)
    await end(shared, second)
    async with locked(shared, first, second):
        await follow(shared)
        assert await where(shared, child, other) == ["queued", "queued"]


async def test_another_one_does_what_was_left_over(shared: Database) -> None:
    first = await parent(shared)
    held = await child_of(shared, first)
    async with locked(shared, held):
        await end(shared, first)
        await follow(shared)
    await (await lead(shared, "another one")).step(10)
    assert await where(shared, held) == ["queued"]


async def test_many_tasks_that_need_one_are_queued_part_by_part(
    shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grns.workflows.follower._MOST_NEEDS", 10)
    first = await parent(shared)
    children = [await child_of(shared, first) for _ in range(35)]
    await end(shared, first)
    await follow(shared)
    assert await where(shared, *children) == ["queued"] * 35


async def test_one_that_leads_no_more_does_nothing(shared: Database) -> None:
    late = await lead(shared)
    first = await parent(shared)
    child = await child_of(shared, first)
    await lead(shared, "another one")
    await end(shared, first)
    with pytest.raises(UnavailableError):
        await late.step(100)
    assert await where(shared, child) == ["waiting"]
    await follow(shared, await lead(shared, "a third one"))
    assert await where(shared, child) == ["queued"]


async def test_reading_the_same_again_changes_nothing(shared: Database) -> None:
    first = await parent(shared)
    child = await child_of(shared, first)
    await end(shared, first)
    await follow(shared)
    await end(shared, child)
    before = await row_of(shared, child)
    await fetch(shared, "update grns.follow_cursor set low = 0")
    await follow(shared, await lead(shared, "another one"))
    assert await row_of(shared, child) == before


async def test_without_needs_no_row_of_the_log_is_read(shared: Database) -> None:
    await end(shared, await parent(shared))
    leading = await follow(shared)
    assert leading.tick_seconds > 0.1, "it has nothing to hurry for"


async def test_it_hurries_only_while_a_task_waits_for_others(shared: Database) -> None:
    first = await parent(shared)
    child = await child_of(shared, first)
    leading = await follow(shared)
    assert leading.tick_seconds < 0.1
    await end(shared, first)
    await follow(shared, leading)
    await end(shared, child)
    await follow(shared, leading)
    assert leading.tick_seconds > 0.1, "what had needs has none that are open"


# ---------------------------------------------------------------- what is refused


def graph(*tasks: dict[str, Any]) -> str:
    """Return a graph as text."""
    return json.dumps([{"task_type": "noop", **task} for task in tasks])


REFUSED: dict[str, tuple[str, str, str]] = {
    "no array": ("{}", "bad_submission", "array"),
    "no tasks": ("[]", "bad_submission", "1 to 10,000"),
    "no type": ('[{"payload": {}}]', "bad_submission", "task_type"),
    "itself": (graph({"name": "a", "needs": [{"task": "a"}]}), "dependency_cycle", "needs it in turn"),
    "each other": (
        graph({"name": "a", "needs": [{"task": "b"}]}, {"name": "b", "needs": [{"task": "a"}]}),
        "dependency_cycle",
        "a needs b",
    ),
    "a later one": (
        graph({"name": "a", "needs": [{"task": "b"}]}, {"name": "b"}), "bad_submission", "behind"
    ),
    "two of a name": (graph({"name": "a"}, {"name": "a"}), "bad_submission", "same name"),
    "an unknown one": (graph({"needs": [{"task": "gr-none"}]}), "unknown_need", "gr-none"),
    "one twice": (
        graph({"name": "a"}, {"needs": [{"task": "a"}, {"task": "a", "outcome": "end"}]}),
        "bad_submission",
        "twice",
    ),
    "an outcome": (
        graph({"name": "a"}, {"needs": [{"task": "a", "outcome": "done"}]}), "bad_submission", "outcome"
    ),
    "nothing needed": (graph({"needs": [{}]}), "bad_submission", "names a task"),
    "too many required": (
        graph({"name": "a"}, {"needs": [{"task": "a"}], "required": 2}), "bad_submission", "required"
    ),
    "a payload": (graph({"payload": [1]}), "bad_submission", "JSON object"),
    "a last task": (graph({"is_last": True}), "bad_submission", "last"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
async def test_a_graph_that_cannot_be_is_refused_as_a_whole(shared: Database, case: str) -> None:
    text, code, words = REFUSED[case]
    with pytest.raises(InvalidInputError, match=words) as raised:
        await shared.run("submit_graph", text, "default", None, None)
    assert raised.value.code == code
    assert await fetch(shared, "select from grns.tasks") == []


async def test_a_task_of_another_workspace_is_unknown(shared: Database) -> None:
    elsewhere = (await submit(shared, workspace="elsewhere")).id
    with pytest.raises(InvalidInputError) as raised:
        await child_of(shared, elsewhere)
    assert raised.value.code == "unknown_need"


async def test_an_idempotency_key_returns_the_task_that_waits(shared: Database) -> None:
    first = await parent(shared)
    child = await child_of(shared, first, idempotency_key="k")
    again = await submit(shared, needs=(need(first),), idempotency_key="k")
    assert (again.id, again.created) == (child, False)
    with pytest.raises(ConflictError):
        await child_of(shared, first, idempotency_key="k", payload={"other": 1})
    assert len(await fetch(shared, "select from grns.needs")) == 1


async def test_batch_with_needs_in_two_workspaces_is_refused(shared: Database) -> None:
    first = await parent(shared)
    wanted = [
        submission(task_type="noop", needs=({"task": first},)),
        submission(task_type="noop", workspace="b"),
    ]
    prepared = [prepare(one, Limits()) for one in wanted]
    with pytest.raises(InvalidInputError, match="are in one workspace"):
        await Submissions(shared, batch_limit=10).submit_many(prepared)
    both = NewWorkflow("wf-" + "0" * 26, "default", "both", {one.id: one.id for one in prepared})
    with pytest.raises(InvalidInputError, match="one workspace"):
        await Submissions(shared, batch_limit=10).submit_workflow(prepared, both)
    assert len(await fetch(shared, "select from grns.tasks")) == 1
