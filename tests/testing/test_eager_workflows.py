"""Workflows in eager mode: the rules are those of the follower."""

from __future__ import annotations

from typing import Any

import pytest

import grns
from grns import testing
from grns.errors import ConflictError, NotFoundError, WaitTimeoutError

pool = grns.Pool("words")
fails = True


@pool.task
async def measure(word: dict[str, str]) -> int:
    return len(word["word"])


@pool.task
async def report(ctx: grns.Context) -> int:
    return sum((await ctx.results()).values())


@pool.task(max_attempts=1)
async def break_down() -> None:
    if fails:
        raise grns.Fail("broken")


@pool.task
async def note(ctx: grns.Context) -> list[str]:
    return sorted(await ctx.results())


@pool.task
async def call_a_human(alarm: dict[str, Any]) -> None:
    """Take note of an alarm."""


async def test_a_workflow_runs_in_place() -> None:
    with testing.eager() as client:
        flow = client.workflow("count letters")
        words = [flow.task(measure, {"word": word}) for word in ("a", "few", "words")]
        flow.task(report, needs=words)
        named = flow.task(note, name="named", needs=[words[0], grns.after(words[1], name="second")])
        last = flow.on_end(note, name="last")
        run = await flow.submit()
        assert await run.tasks["report"].result() == 9
        assert await run.tasks["named"].result() == ["measure", "second"]
        assert (await run.wait(timeout=0.1)).status == "succeeded"
        assert {named.name, last.name} <= set(run.tasks)
        assert await run.tasks["last"].status() == "succeeded"


async def test_batch_runs_in_place() -> None:
    with testing.eager() as client:
        async with client.batch("letters", on_success={"task": note}, on_failure=report) as batch:
            word = await batch.submit(measure, {"word": "few"}, name="few")
            assert await word.result() == 3
            (last,) = [task for task in client.tasks.values() if task.task_type == "note"]
            assert last.status == "waiting"
            await batch.submit_many([{"task": measure, "payload": {"word": "a"}}])
        assert (await batch.wait(timeout=0.1)).total == 2
        assert [task.status for task in client.tasks.values() if task.task_type == "note"] == ["succeeded"]
        assert [task.status for task in client.tasks.values() if task.task_type == "report"] == ["cancelled"]
        with pytest.raises(ConflictError, match="is sealed"):
            await batch.submit(measure, {"word": "late"})
        with pytest.raises(NotFoundError):
            await client.workflow_handle("wf-missing").submit(measure, {"word": "late"})


async def test_known_key_is_counted_once() -> None:
    with testing.eager() as client:
        flow = client.workflow("letters", is_open=True, fail_after=grns.Failures(count=1))
        run = await flow.submit()
        for _ in range(2):
            await run.submit(measure, {"word": "few"}, idempotency_key="few")
        await run.seal()
        state = await run.get()
    assert (state.status, state.total, state.failed) == ("succeeded", 1, 0)


async def test_failures_cancel_and_a_redrive_brings_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with testing.eager() as client:
        flow = client.workflow("chain")
        first = flow.task(break_down)
        flow.task(note, name="second", needs=[first])
        flow.task(note, name="undo", needs=[grns.after(first, "failure")])
        flow.on_failure(note, name="alarm")
        run = await flow.submit()
        states = {name: str(await handle.status()) for name, handle in run.tasks.items()}
        assert states == {
            "break_down": "failed",
            "second": "cancelled",
            "undo": "succeeded",
            "alarm": "succeeded",
        }
        assert (await run.get()).failed == 2
        monkeypatch.setitem(globals(), "fails", False)
        await run.tasks["break_down"].redrive()
        assert await run.tasks["second"].status() == "succeeded"
        assert (await run.get()).status == "succeeded"


async def test_needs_and_a_delay_wait_for_both() -> None:
    with testing.eager() as client:
        first = await client.submit(measure, {"word": "one"}, delay=60)
        second = await client.submit(note, needs=[first], delay=60)
        skipped = await client.submit(note, needs=[grns.after(first, "failure")])
        assert (await second.get()).waits_for == "tasks"
        await client.run_waiting()
        assert (await second.get()).waits_for == "time"
        assert await skipped.status() == "cancelled"
        await client.run_waiting()
        assert await second.status() == "succeeded"


async def test_what_is_not_there_is_said() -> None:
    with testing.eager(runs=False) as client:
        with pytest.raises(NotFoundError):
            await client.get_workflow("wf-nothing")
        flow = client.workflow("held")
        flow.task(measure, {"word": "a"})
        run = await flow.submit()
        with pytest.raises(WaitTimeoutError):
            await run.wait(timeout=0.05)


FAILURES = 3


async def broken(client: grns.Client, fail_after: grns.Failures, *, tasks: int = 6) -> grns.WorkflowHandle:
    """Submit a workflow whose first tasks fail, and whose others succeed; a report needs these."""
    flow = client.workflow("import", fail_after=fail_after)
    for place in range(FAILURES):
        flow.task(break_down, name=f"broken {place}")
    rest = [flow.task(measure, {"word": "a"}, name=f"part {place}") for place in range(tasks - FAILURES)]
    flow.task(note, name="report", needs=rest)
    flow.on_end(note, name="last")
    return await flow.submit()


async def statuses(run: grns.WorkflowHandle) -> dict[str, str]:
    """Return the statuses of the tasks of a workflow, by name."""
    return {name: str(await handle.status()) for name, handle in run.tasks.items()}


@pytest.mark.parametrize(
    "fail_after", [grns.Failures(count=2), grns.Failures(share=1.0, of_at_least=2)], ids=["count", "share"]
)
async def test_too_many_failures_cancel_the_rest(fail_after: grns.Failures) -> None:
    with testing.eager() as client:
        run = await broken(client, fail_after)
        found = await statuses(run)
        assert (found["broken 0"], found["broken 1"], found["broken 2"]) == ("failed", "failed", "cancelled")
        assert (found["part 0"], found["report"], found["last"]) == ("cancelled", "cancelled", "succeeded")
        state = await run.get()
        assert (state.status, state.failed) == ("cancelled", 7)
        await run.tasks["part 0"].redrive()
        assert (await run.get()).status == "failed", "it is stopped once, and goes on if a task is redriven"


async def test_too_few_failures_change_nothing() -> None:
    with testing.eager() as client:
        for fail_after in (grns.Failures(count=4), grns.Failures(share=0.9, of_at_least=4)):
            run = await broken(client, fail_after)
            assert (await statuses(run))["report"] == "succeeded"
            assert (await run.get()).status == "failed"


async def test_too_many_failures_pause_until_the_workflow_is_resumed() -> None:
    with testing.eager() as client:
        run = await broken(client, grns.Failures(count=2, then="pause"))
        found, state = await statuses(run), await run.get()
        assert (found["broken 2"], found["part 0"], found["report"]) == ("failed", "succeeded", "waiting")
        assert (state.status, state.paused_by) == ("running", "grns")
        await run.resume()
        assert (await statuses(run))["report"] == "succeeded"
        with pytest.raises(ConflictError, match="ended as failed: it cannot pause"):
            await run.pause()


async def test_pause_and_resume_of_a_workflow() -> None:
    with testing.eager(runs=False) as client:
        flow = client.workflow("two")
        first = flow.task(measure, {"word": "a"})
        flow.task(note, name="second", needs=[first])
        run = await flow.submit()
        assert (await run.pause(reason="closed")).pause_reason == "closed"
        await client.run_waiting()
        assert (await statuses(run))["second"] == "waiting"
        await run.resume()
        await client.run_waiting()
        assert (await run.get()).status == "succeeded"


async def test_escalation_is_submitted_once() -> None:
    call = grns.Escalate(call_a_human, {"team": "imports", "failed": 99}, priority=1)
    with testing.eager(pool) as client:
        run = await broken(client, grns.Failures(count=2, then=["cancel", call]))
        await run.tasks["broken 0"].redrive()
        called = [task for task in client.tasks.values() if task.task_type == "call_a_human"]
        assert [(task.status, task.priority) for task in called] == [("succeeded", 1)]
        assert called[0].payload == {
            "team": "imports", "workflow_id": run.id, "workflow": "import", "total": 7, "failed": 2,
            "reason": "too many tasks of the workflow have failed",
        }  # fmt: skip
        assert (await run.get()).escalation_task_id == called[0].id


async def test_escalation_alone_stops_nothing() -> None:
    with testing.eager() as client:
        run = await broken(client, grns.Failures(count=3, then=grns.Escalate("call", pool="ops")))
        assert (await statuses(run))["report"] == "succeeded"
        assert client.assert_submitted("call").priority == 0


async def test_held_tasks_are_not_run_after_too_many_failures() -> None:
    with testing.eager(runs=False) as client:
        run = await broken(client, grns.Failures(count=1))
        await client.run_waiting()
        found = await statuses(run)
        assert (found["broken 0"], found["broken 1"], found["part 0"]) == ("failed", "cancelled", "cancelled")


@pool.task
async def publish(done: dict[str, Any]) -> str:
    return f"{done['result']} of {done['task_id']}"


@pool.task(on_success=publish, on_failure=grns.FollowUp("call_a_human", {"team": "press"}), max_attempts=1)
async def write(page: dict[str, str]) -> str:
    if page["title"] == "bad":
        raise ValueError("no such page")
    return page["title"]


async def test_follow_ups_run_in_place() -> None:
    with testing.eager(pool) as client:
        good = await client.submit(write, {"title": "News"})
        bad = await client.submit(write, {"title": "bad"})
        assert client.assert_submitted("publish").result == f"News of {good.id}"
        called = client.assert_submitted("call_a_human")
        assert (called.status, called.trace_id) == ("succeeded", client.tasks[bad.id].trace_id)
        assert called.payload == {
            "team": "press", "task_id": bad.id, "task_type": "write", "status": "dead",
            "payload": {"title": "bad"}, "error": {"class": "ValueError", "message": "no such page"},
        }  # fmt: skip
        assert len(client.tasks) == 4


async def test_follow_ups_beside_needs_run_each_task_once() -> None:
    with testing.eager() as client:
        flow = client.workflow("pages")
        first = flow.task(measure, {"word": "few"})
        for place in range(3):
            flow.task(write, {"title": f"page {place}"}, needs=[first])
        await flow.submit()
        assert {task.attempt for task in client.tasks.values()} == {1}
        assert sorted(task.task_type for task in client.tasks.values()) == [
            "measure", "publish", "publish", "publish", "write", "write", "write",
        ]  # fmt: skip
    with testing.eager(runs=False) as client:
        await client.submit(write, {"title": "News"})
        await client.run_waiting()
        assert client.assert_submitted(publish).status == "queued"
