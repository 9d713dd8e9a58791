"""What the follower should have seen and did not: found by its sweep and by `grns admin verify`."""

from __future__ import annotations

from typing import cast

import pytest

from grns.diagnose.explain.explanation import explain
from grns.diagnose.explain.read import read_situation
from grns.maintenance.audit import audit_now
from grns.model.outcome import Verb
from grns.postgres.database import Database
from grns.runtime.leader import LeaderLease
from grns.telemetry.service_signals import WaitsRepaired
from grns.workflows.follower import TaskFollower
from tests.support.followers import begin_here, follow
from tests.support.harness import status_of, submit
from tests.support.relays import Note
from tests.support.store import claim, fetch, finish


@pytest.fixture(autouse=True)
async def begun(shared: Database) -> None:
    """Let what is followed here begin here."""
    await begin_here(shared)


async def noted_follower(database: Database) -> tuple[TaskFollower, Note]:
    """Return a follower that leads, and what it tells."""
    note = Note()
    lease = LeaderLease("follower", "test", 60.0)
    leading = TaskFollower(database=database, transport=cast("object", None), lease=lease, emit=note.receive)  # type: ignore[arg-type]
    assert await leading.lead()
    return leading, note


async def end(database: Database, task_id: str, verb: Verb = Verb.SUCCEED) -> None:
    """Run a task to its end."""
    await finish(database, await claim(database, task_id), verb)


async def child_of(database: Database, *needs: str, outcome: str = "success") -> str:
    """Submit a task that needs others."""
    return (await submit(database, needs=tuple({"task": one, "outcome": outcome} for one in needs))).id


async def unfollowed(database: Database) -> list[str | None]:
    """Return what `grns admin verify` finds waiting for what has happened."""
    found = await audit_now(database, 0.0)
    return [one.task_id for one in found if one.invariant == "unfollowed"]


async def test_a_sweep_leaves_alone_what_has_just_begun_to_need_an_old_task(shared: Database) -> None:
    """The failpoints met it: a need was 0.1 s old when the sweep came, and its task had ended long before."""
    old = (await submit(shared)).id
    await end(shared, old)
    await fetch(shared, "update grns.tasks set finished_at = now() - interval '2 minutes' where id = $1", old)
    child = await child_of(shared, old)
    leading, note = await noted_follower(shared)
    await leading.sweep()
    assert not await note.has_told(WaitsRepaired)
    await fetch(
        shared, "update grns.tasks set updated_at = now() - interval '2 minutes' where id = $1", child
    )
    await leading.sweep()
    assert await note.has_told(WaitsRepaired)


async def test_a_sweep_finds_an_end_that_the_log_has_not_told(shared: Database) -> None:
    first, second = [(await submit(shared)).id for _ in range(2)]
    child, other = await child_of(shared, first), await child_of(shared, second)
    await end(shared, first)
    await begin_here(shared)  # as if the rows had been passed over
    leading, note = await noted_follower(shared)
    await leading.step(100)
    assert await status_of(shared, child) == "waiting"
    assert await unfollowed(shared) == [child]
    await leading.sweep(patience_seconds=0.0)
    await leading.step(100)
    assert [await status_of(shared, one) for one in (child, other)] == ["queued", "waiting"]
    assert [one.number for one in note.emitted if isinstance(one, WaitsRepaired)] == [1]
    assert await unfollowed(shared) == []


async def test_a_sweep_finds_a_task_that_is_decided(shared: Database) -> None:
    first = (await submit(shared)).id
    child = await child_of(shared, first)
    await end(shared, first)
    await begin_here(shared)
    await fetch(shared, "update grns.needs set ended_as = 'succeeded'")
    await fetch(shared, "update grns.waits set open = 0, met = 1")
    leading, _ = await noted_follower(shared)
    await leading.sweep(patience_seconds=0.0)
    await leading.step(100)
    assert await status_of(shared, child) == "queued"


async def test_a_sweep_finds_the_end_of_a_workflow(shared: Database) -> None:
    graph = '[{"task_type": "noop", "name": "only"}]'
    (row,) = await shared.run("submit_graph", graph, "default", None, '{"name": "flow"}')
    await end(shared, row["task_id"])
    await begin_here(shared)
    leading, _ = await noted_follower(shared)
    await leading.sweep(patience_seconds=0.0)
    await leading.step(100)
    assert [one["status"] for one in await fetch(shared, "select status from grns.workflows")] == [
        "succeeded"
    ]


async def test_a_sweep_of_what_is_well_finds_nothing(shared: Database) -> None:
    first = (await submit(shared)).id
    await child_of(shared, first)
    leading, note = await noted_follower(shared)
    await leading.step(100)
    await leading.sweep(patience_seconds=0.0)
    assert not leading._missed.count
    assert not [one for one in note.emitted if isinstance(one, WaitsRepaired)]
    assert await unfollowed(shared) == []


async def explained(database: Database, task_id: str) -> tuple[str, str, list[str]]:
    """Return the reason, the sentence and the next steps for a task."""
    seen = await read_situation(database, task_id, workspace="default")
    assert seen is not None
    told = explain(seen)
    return told.reason, told.sentence, list(told.next_steps)


async def test_explain_says_what_a_task_waits_for(shared: Database) -> None:
    first, second = [(await submit(shared)).id for _ in range(2)]
    child = await child_of(shared, first, second)
    reason, sentence, steps = await explained(shared, child)
    assert (reason, steps) == ("needs", [f"grns explain {min(first, second)}"])
    assert sentence == f"waiting for 2 tasks: noop {first} (queued), noop {second} (queued)"


async def test_explain_says_that_a_workflow_holds_its_tasks(shared: Database) -> None:
    graph = '[{"name": "a", "task_type": "noop"}, {"task_type": "noop", "needs": [{"task": "a"}]}]'
    first, second = await shared.run("submit_graph", graph, "default", None, '{"name": "flow"}')
    ((flow,),) = await fetch(shared, "select id from grns.workflows")
    await shared.run("change_workflow", flow, "default", "pause", "ann", "closed")
    reason, sentence, _ = await explained(shared, second["task_id"])
    assert (reason, sentence) == ("needs", f"waiting for 1 task: a {first['task_id']} (queued)")
    await end(shared, first["task_id"])
    await follow(shared)
    reason, sentence, steps = await explained(shared, second["task_id"])
    assert (reason, steps) == ("paused", [f"grns workflow resume {flow}"])
    assert sentence.startswith(f"its workflow {flow} was paused by ann at ")
    assert sentence.endswith(" (closed)")
    await shared.run("change_workflow", flow, "default", "cancel", "ann", None)
    _, sentence, _ = await explained(shared, second["task_id"])
    assert sentence == f"its workflow {flow} is being cancelled: this task is cancelled next"


async def test_explain_says_what_a_task_was_cancelled_for(shared: Database) -> None:
    first = (await submit(shared)).id
    child, undo = await child_of(shared, first), await child_of(shared, first, outcome="failure")
    await end(shared, first, Verb.FAIL)
    await follow(shared)
    reason, sentence, steps = await explained(shared, child)
    assert reason == "needs"
    assert f"noop {first} had to succeed, and is failed" in sentence
    assert steps == [f"grns task redrive {first}  (brings this task back, too)"]
    assert await status_of(shared, undo) == "queued"
