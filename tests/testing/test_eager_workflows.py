"""Workflows in eager mode: the rules are those of the follower."""

from __future__ import annotations

import pytest

import grns
from grns import testing
from grns.errors import NotFoundError, WaitTimeoutError

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
