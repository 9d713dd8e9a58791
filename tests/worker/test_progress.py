"""Progress and checkpoints: what an attempt reports is written while it owns its task, and bounded."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

import grns
from grns.client.client import Client
from grns.errors import ContendedError, InvalidInputError, LeaseLostError, UnavailableError
from grns.maintenance.reaper import Reaper, reap
from grns.model.json import Limits
from grns.model.task import Task
from grns.model.vault import Vault
from grns.postgres.database import Database
from grns.settings import load
from grns.tasks.read import tasks
from grns.tasks.steps import list_steps
from grns.telemetry.signal import Signal
from grns.telemetry.task_signals import AttemptOverdue, AttemptStalled
from grns.worker.claims import Claimant
from grns.worker.progress import AttemptProgress, ProgressStore, Report, record
from grns.worker.step_store import StepStore
from tests.support.attempts import Attempts, attempts_of
from tests.support.harness import submit
from tests.support.store import (
    claim,
    fall_due,
    fetch,
    kinds_of,
    lapse,
    log_of,
    redrive,
    release,
    row_of,
    stranger,
)

POOL = grns.Pool("worker", backoff=grns.Backoff(base_seconds=0.001, max_seconds=0.001))
SEEN: list[Any] = []
FAILS: list[str] = []


@POOL.task("noop")
async def read_pages(ctx: grns.Context) -> int:
    SEEN.append(ctx.last_checkpoint)
    first: int = (ctx.last_checkpoint or {"page": 0})["page"]
    for page in range(first, 4):
        ctx.progress(100 * page / 4, f"page {page}")
        ctx.checkpoint({"page": page + 1})
        if FAILS and page == 1:
            raise ConnectionError(FAILS.pop())
    return first


@pytest.fixture
async def attempts(shared: Database) -> AsyncIterator[Attempts]:
    SEEN.clear()
    FAILS.clear()
    with attempts_of(POOL, shared) as attempts:
        yield attempts


async def read(database: Database, task_id: str) -> Task:
    return (await tasks(database, [task_id], "default"))[task_id]


async def shift(database: Database, seconds: float) -> None:
    """Let all of what was reported be so many seconds older."""
    for table, columns in {
        "progress": ("reported_at", "logged_at", "stalls_at", "completes_at"),
        "steps": ("recorded_at",),
        "tasks": ("started_at",),
    }.items():
        changes = ", ".join(f"{column} = {column} - $1::interval" for column in columns)
        await fetch(database, f"update grns.{table} set {changes}", timedelta(seconds=seconds))


def reaper_of(database: Database, emitted: list[Signal]) -> Reaper:
    class Quiet:
        async def nudge(self, subject: str) -> None: ...

    return Reaper(
        database=database, transport=Quiet(), settings=load(), emit=emitted.append,  # type: ignore[arg-type]
    )  # fmt: skip


async def test_the_next_attempt_gets_the_last_checkpoint(attempts: Attempts, shared: Database) -> None:
    FAILS.append("once")
    task = await submit(shared)
    assert await attempts.run(task.id) == "retry_wait"
    found = await read(shared, task.id)
    assert (found.progress_percent, found.current_step, found.checkpoint_data) == (25, "page 1", {"page": 2})
    await fall_due(shared, task.id)
    assert await attempts.run(task.id) == "succeeded"
    assert SEEN == [None, {"page": 2}]
    found = await read(shared, task.id)
    assert (found.result, found.progress_percent, found.checkpoint_data) == (2, 75, {"page": 4})


@pytest.mark.parametrize("end", ["release", "lapse", "redrive"])
async def test_a_checkpoint_outlives_each_end_of_an_attempt(shared: Database, end: str) -> None:
    task = await submit(shared, max_attempts=1)
    taken = await claim(shared, task.id)
    store = ProgressStore(shared, batch_limit=10)
    await store.write(taken, Report(percent=40, checkpoint='{"n": 1}'))
    if end == "release":
        await release(shared, taken)
    else:
        await lapse(shared, task.id)
        await reap(shared, 10, None)
    if end != "release":
        assert (await row_of(shared, task.id))["status"] == "dead"
        await redrive(shared, task.id)
    again = await claim(shared, task.id)
    assert await store.read_checkpoint(again) == {"n": 1}
    found = await read(shared, task.id)
    assert found.progress_percent is None, "the new attempt has reported nothing"
    await store.write(again, Report(step="begins"))
    found = await read(shared, task.id)
    assert (found.progress_percent, found.current_step, found.checkpoint_data) == (None, "begins", {"n": 1})


async def test_only_the_attempt_that_owns_the_task_reports(shared: Database) -> None:
    task = await submit(shared)
    old = await claim(shared, task.id)
    store = ProgressStore(shared, batch_limit=10)
    await store.write(old, Report(checkpoint="1"))
    await lapse(shared, task.id)
    await reap(shared, 10, None)
    with pytest.raises(LeaseLostError):
        await store.write(old, Report(checkpoint="2"))
    new = await claim(shared, task.id)
    (refused,) = await record(shared, [(old, Report(checkpoint="3"))])
    assert refused.verdict == "lost"
    answers = await asyncio.gather(
        store.write(old, Report(checkpoint="4")), store.write(new, Report(checkpoint="5")),
        return_exceptions=True,
    )  # fmt: skip
    assert [type(one) for one in answers] == [LeaseLostError, type(None)]
    assert await store.read_checkpoint(new) == 5


async def test_a_report_waits_while_another_transaction_holds_the_task(shared: Database) -> None:
    taken = await claim(shared, (await submit(shared)).id)
    store = ProgressStore(shared, batch_limit=10)
    progress = AttemptProgress(taken, Limits(), store)
    async with stranger(shared) as connection:
        await connection.execute("select from grns.tasks for update")
        progress.checkpoint(1)
        with pytest.raises(ContendedError):
            await progress.flush()
        progress.report(10, None, None)
    await store.tick()
    found = await read(shared, taken.id)
    assert (found.progress_percent, found.checkpoint_data) == (10, 1), "both are written later"


async def test_what_could_not_be_written_is_written_with_what_is_newer(shared: Database) -> None:
    class Away(ProgressStore):
        is_away = True

        async def write(self, claim: Any, report: Report) -> None:
            if self.is_away:
                raise UnavailableError("away")
            await super().write(claim, report)

    store = Away(shared, batch_limit=10)
    taken = await claim(shared, (await submit(shared)).id)
    progress = AttemptProgress(taken, Limits(), store)
    progress.report(10, "first", None)
    progress.checkpoint("a")
    await store.tick()
    progress.report(20, None, None)
    store.is_away = False
    await store.tick()
    await store.tick()
    found = await read(shared, taken.id)
    assert (found.progress_percent, found.current_step, found.checkpoint_data) == (20, "first", "a")


async def test_reports_of_an_attempt_are_written_together_once_a_tick(shared: Database) -> None:
    store = ProgressStore(shared, batch_limit=10)
    taken = [await claim(shared, (await submit(shared)).id) for _ in range(5)]
    attempts = [AttemptProgress(one, Limits(), store) for one in taken]
    for percent in range(100):
        for one in attempts:
            one.report(percent, None, None)
    assert not await fetch(shared, "select from grns.progress"), "nothing is written before the tick"
    assert await store.tick() == 1.0
    rows = await fetch(shared, "select percent, xmin::text as xmin from grns.progress")
    assert [row["percent"] for row in rows] == [99] * 5
    assert len({row["xmin"] for row in rows}) <= 2, "one statement for all, after the first"


async def test_the_log_gets_each_ten_percent_and_one_in_30_seconds(shared: Database) -> None:
    task = await submit(shared)
    taken = await claim(shared, task.id)
    store = ProgressStore(shared, batch_limit=10)
    told = []
    for percent, later in ((0, 0), (30, 0), (35, 31), (38, 31), (50, 31), (55, 31), (100, 31)):
        await shift(shared, later)
        await store.write(taken, Report(percent=percent))
        rows = [row for row in await log_of(shared, task.id) if row["kind"] == "evt.attempt.progressed"]
        told.append(len(rows))
    assert told == [1, 1, 2, 2, 3, 3, 4]
    assert rows[-1]["version"] == (await row_of(shared, task.id))["version"]
    (event,) = [one for one in await log_of(shared, task.id) if one["seq"] == rows[0]["seq"]]
    assert '"progress_percent": 0' in event["payload"].replace(" : ", ": ")


async def test_a_step_that_came_too_soon_is_in_the_log_later(shared: Database) -> None:
    task = await submit(shared)
    taken = await claim(shared, task.id)
    store = ProgressStore(shared, batch_limit=10)
    await store.write(taken, Report(step="a"))
    await store.write(taken, Report(step="b"))
    await shift(shared, 31)
    await store.write(taken, Report(step="b"))
    assert (await kinds_of(shared, task.id)).count("evt.attempt.progressed") == 2


async def test_without_a_percentage_the_log_gets_each_new_step(shared: Database) -> None:
    task = await submit(shared)
    taken = await claim(shared, task.id)
    store = ProgressStore(shared, batch_limit=10)
    for step in ("reads", "reads", "writes"):
        await store.write(taken, Report(step=step))
        await shift(shared, 31)
    await store.write(taken, Report(checkpoint="1"))
    assert (await kinds_of(shared, task.id)).count("evt.attempt.progressed") == 2


@pytest.mark.parametrize(
    ("percent", "kept"),
    [(-1, 0.0), (101, 100.0), (math.inf, 100.0), (33.3, 33.3), (Decimal("3"), 3.0), (10**400, 100.0)],
)
def test_a_percentage_is_bounded(percent: Any, kept: float) -> None:
    ctx = grns.testing.context()
    ctx.progress(percent, "x" * 1000, remaining=timedelta(minutes=1))
    assert (ctx.reported.percent, ctx.reported.step) == (kept, "x" * 255)
    assert ctx.reported.remaining_seconds == 60


@pytest.mark.parametrize(
    ("remaining", "kept"), [(math.inf, 366 * 86_400), (-5, 0), (math.nan, None), (6e9, 366 * 86_400)]
)
def test_what_remains_is_bounded(remaining: float, kept: float | None) -> None:
    ctx = grns.testing.context()
    ctx.progress(math.nan, remaining=remaining)
    assert (ctx.reported.percent, ctx.reported.remaining_seconds) == (None, kept)


def test_what_is_no_json_is_refused() -> None:
    ctx = grns.testing.context()
    for data in (object(), {"x": math.nan}, "x" * 10_000_000):
        with pytest.raises(InvalidInputError):
            ctx.checkpoint(data)
    for percent in (True, "9"):
        with pytest.raises(InvalidInputError, match="0 to 100"):
            ctx.progress(percent)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        ctx.progress(step=7)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError):
        ctx.progress(1, remaining="soon")  # type: ignore[arg-type]
    assert ctx.reported == Report()


async def test_a_checkpoint_is_kept_as_it_was() -> None:
    ctx = grns.testing.context()
    data = {"pages": [1]}
    ctx.checkpoint(data)
    data["pages"].append(2)
    assert ctx.reported.checkpoint == '{"pages":[1]}'


async def test_a_plain_handler_reports_and_finds_its_checkpoint(shared: Database) -> None:
    pool = grns.Pool("worker", backoff=grns.Backoff(base_seconds=0.001))

    @pool.task("noop")
    def count(ctx: grns.Context) -> Any:
        found = ctx.last_checkpoint
        ctx.progress(50, "half")
        ctx.checkpoint(7)
        if found is None:
            raise ConnectionError
        return found

    with attempts_of(pool, shared) as attempts:
        task = await submit(shared)
        assert await attempts.run(task.id) == "retry_wait"
        await fall_due(shared, task.id)
        assert await attempts.run(task.id) == "succeeded"
    found = await read(shared, task.id)
    assert (found.result, found.progress_percent, found.current_step) == (7, 50, "half")


async def test_checkpoints_of_two_workspaces_are_read_together(shared: Database) -> None:
    store = ProgressStore(shared, batch_limit=10)
    taken = []
    for workspace in ("default", "acme"):
        who = Claimant(f"worker-{workspace}", workspace, "worker", {"noop": 3}, 15.0)
        made = await submit(shared, workspace=workspace)
        taken.append(replace(await claim(shared, made.id, who=who), workspace=workspace))
        await store.write(taken[-1], Report(checkpoint=f'"{workspace}"'))
    found = await asyncio.gather(*(store.read_checkpoint(one) for one in taken))
    assert found == ["default", "acme"]


async def test_what_is_reported_before_a_transaction_is_written_with_it(shared: Database) -> None:
    pool = grns.Pool("worker")

    @pool.task("noop")
    async def pay(ctx: grns.Context) -> None:
        ctx.progress(100, "paid")
        ctx.checkpoint(1)
        async with ctx.transaction() as tx:
            tx.complete(None)

    with attempts_of(pool, shared) as attempts:
        task = await submit(shared)
        assert await attempts.run(task.id) == "succeeded"
    found = await read(shared, task.id)
    assert (found.progress_percent, found.checkpoint_data) == (100, 1)


def test_reports_of_threads_are_not_lost() -> None:
    kept: list[Report] = []

    class Store:
        vault = Vault()

        def note(self, attempt: AttemptProgress) -> None: ...

        async def write(self, claim: Any, report: Report) -> None:
            kept.append(report)

    progress = AttemptProgress(None, Limits(), Store())  # type: ignore[arg-type]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            for round_ in range(300):
                jobs = [threads.submit(progress.report, None, None, 1000 * round_ + n) for n in range(4)]
                jobs += [threads.submit(progress.checkpoint, round_)]
                asyncio.run(progress.flush())
                for job in jobs:
                    job.result()
                asyncio.run(progress.flush())
    finally:
        sys.setswitchinterval(interval)
    checkpoints = [int(one.checkpoint) for one in kept if one.checkpoint is not None]
    assert checkpoints == list(range(300))


# ---------------------------------------------------------------- stalled attempts


async def test_a_report_moves_no_index_entry(shared: Database) -> None:
    taken = await claim(shared, (await submit(shared)).id)
    store = ProgressStore(shared, batch_limit=10)
    await store.write(taken, Report(stall_seconds=60))
    (before,) = await fetch(shared, "select stalls_at from grns.progress")
    await store.write(taken, Report(percent=1, remaining_seconds=5))
    (after,) = await fetch(shared, "select stalls_at from grns.progress")
    assert before == after, "Postgres updates the row within its page"


async def test_a_handler_begins_once_a_passing_lock_is_gone(shared: Database) -> None:
    pool = grns.Pool("worker")

    @pool.task("noop", stall_timeout=60)
    async def work() -> None: ...

    with attempts_of(pool, shared) as attempts:
        taken = await claim(shared, (await submit(shared)).id, who=attempts.who)
        async with stranger(shared) as connection:
            await connection.execute("select from grns.tasks for no key update")
            running = asyncio.create_task(attempts.executor.run(taken))
            await asyncio.sleep(0.1)
        await running
    assert (await row_of(shared, taken.id))["status"] == "succeeded"


async def test_a_stalled_attempt_is_ended_and_queued_one_priority_higher(shared: Database) -> None:
    emitted: list[Signal] = []
    reaper = reaper_of(shared, emitted)
    task = await submit(shared)
    taken = await claim(shared, task.id)
    store = ProgressStore(shared, batch_limit=10)
    await store.write(taken, Report(stall_seconds=600))
    await reaper.tick()
    await shift(shared, 500)
    await store.write(taken, Report(percent=10))
    await shift(shared, 599)
    await reaper.tick()
    assert (await row_of(shared, task.id))["status"] == "running"
    await shift(shared, 2)
    await reaper.tick()
    row = await row_of(shared, task.id)
    assert (row["status"], row["priority"], row["attempt"]) == ("queued", 1, 1)
    assert '"class": "stalled"' in row["last_error"]
    assert "reported nothing for 600 s" in row["last_error"]
    assert [one.attempt for one in emitted if isinstance(one, AttemptStalled)] == [1]
    assert (await kinds_of(shared, task.id))[-2:] == ["evt.task.lease_expired", "cmd.task.execute"]
    with pytest.raises(LeaseLostError):
        await store.write(taken, Report(percent=20))
    again = await claim(shared, task.id)
    await shift(shared, 5000)
    await reaper.tick()
    assert (await row_of(shared, task.id))["status"] == "running", "this attempt has set no limit"
    assert again.attempt == 2


async def test_a_stalled_attempt_counts_and_the_last_one_is_dead(shared: Database) -> None:
    reaper = reaper_of(shared, [])
    task = await submit(shared, max_attempts=1)
    await ProgressStore(shared, batch_limit=1).write(await claim(shared, task.id), Report(stall_seconds=5))
    await shift(shared, 6)
    await reaper.tick()
    row = await row_of(shared, task.id)
    assert (row["status"], row["priority"]) == ("dead", 2)
    assert (await kinds_of(shared, task.id))[-1] == "dlq.task.dead"


async def test_a_recorded_step_is_progress(shared: Database) -> None:
    reaper = reaper_of(shared, [])
    task = await submit(shared)
    taken = await claim(shared, task.id)
    await ProgressStore(shared, batch_limit=1).write(taken, Report(stall_seconds=60))
    await shift(shared, 50)
    await StepStore(shared, batch_limit=1).record(taken, "one", "step", "1")
    await shift(shared, 20)
    await reaper.tick()
    assert (await row_of(shared, task.id))["status"] == "running"
    await shift(shared, 60)
    await reaper.tick()
    assert (await row_of(shared, task.id))["status"] == "queued"
    assert len((await list_steps(shared, task.id, workspace="default", limit=10)).rows) == 1


async def test_an_attempt_that_has_ended_does_not_stall(shared: Database) -> None:
    reaper = reaper_of(shared, [])
    task = await submit(shared)
    taken = await claim(shared, task.id)
    await ProgressStore(shared, batch_limit=1).write(taken, Report(stall_seconds=5))
    await release(shared, taken)
    await claim(shared, task.id)
    await shift(shared, 6)
    await reaper.tick()
    row = await row_of(shared, task.id)
    assert (row["status"], row["attempt"]) == ("running", 2)
    assert not await fetch(shared, "select from grns.progress where stalls_at is not null")


async def test_a_stalled_task_that_is_locked_is_looked_at_again(shared: Database) -> None:
    reaper = reaper_of(shared, [])
    task = await submit(shared)
    await ProgressStore(shared, batch_limit=1).write(await claim(shared, task.id), Report(stall_seconds=5))
    await shift(shared, 6)
    async with stranger(shared) as connection:
        await connection.execute("select from grns.tasks for update")
        await reaper.tick()
    assert (await row_of(shared, task.id))["status"] == "running"
    await shift(shared, 2)
    await reaper.tick()
    assert (await row_of(shared, task.id))["status"] == "queued"


async def test_a_handler_says_for_how_long_it_may_report_nothing(shared: Database) -> None:
    pool = grns.Pool("worker")
    seen = []

    @pool.task("noop", stall_timeout=timedelta(minutes=10))
    async def quiet() -> None:
        seen.append(
            (await fetch(shared, "select stall_seconds, stalls_at > now() as is_ahead from grns.progress"))[0]
        )

    with attempts_of(pool, shared) as attempts:
        assert await attempts.run((await submit(shared)).id) == "succeeded"
    assert (seen[0]["stall_seconds"], seen[0]["is_ahead"]) == (600, True), "before the handler begins"
    for wrong in (0, 1, 1e20, "soon"):
        with pytest.raises(InvalidInputError, match="stall_timeout"):
            pool.task("other", stall_timeout=wrong)(quiet.function)  # type: ignore[arg-type]


# ---------------------------------------------------------------- overdue attempts


async def test_an_overdue_attempt_is_warned_of_and_ended_if_it_reports_nothing(
    shared: Database, client: Client
) -> None:
    emitted: list[Signal] = []
    reaper = reaper_of(shared, emitted)
    handle = await client.submit("noop", {}, pool="worker", estimate=timedelta(minutes=20))
    taken = await claim(shared, handle.id)
    found = await read(shared, handle.id)
    assert found.started_at is not None
    assert found.estimated_completion_at == found.started_at + timedelta(minutes=20)
    await shift(shared, 49 * 60)
    await reaper.tick()
    assert not (await read(shared, handle.id)).is_overdue
    await shift(shared, 2 * 60)
    reaper._warn_at = -math.inf
    await reaper.tick()
    reaper._warn_at = -math.inf
    await reaper.tick()
    assert (await read(shared, handle.id)).is_overdue
    assert (await kinds_of(shared, handle.id))[-1] == "evt.attempt.overdue"
    assert len([one for one in emitted if isinstance(one, AttemptOverdue)]) == 1, "once"
    (answer,) = await record(shared, [(taken, Report(percent=90))])
    assert answer.is_overdue
    await shift(shared, 9 * 60)
    await reaper.tick()
    assert (await row_of(shared, handle.id))["status"] == "running"
    await shift(shared, 2 * 60)
    await reaper.tick()
    row = await row_of(shared, handle.id)
    assert (row["status"], row["priority"]) == ("queued", 1)
    await claim(shared, handle.id)
    assert not (await read(shared, handle.id)).is_overdue, "the next attempt has its own time"


async def test_each_overdue_attempt_is_warned_of_once_by_many_reapers(
    shared: Database, client: Client
) -> None:
    for _ in range(20):
        handle = await client.submit("noop", {}, pool="worker", estimate=60)
        await claim(shared, handle.id)
    await shift(shared, 3600)
    reapers = [reaper_of(shared, []) for _ in range(4)]
    await asyncio.gather(*(reaper.tick() for reaper in reapers))
    (row,) = await fetch(shared, "select count(*) as n from grns.events where kind = 'evt.attempt.overdue'")
    assert row["n"] == 20


async def test_a_report_beside_the_warning_keeps_its_limit(shared: Database, client: Client) -> None:
    handle = await client.submit("noop", {}, pool="worker", estimate=60)
    taken = await claim(shared, handle.id)
    store = ProgressStore(shared, batch_limit=1)
    await store.write(taken, Report(percent=1))
    await shift(shared, 3600)
    async with stranger(shared) as connection:
        await connection.execute("select from grns.progress for update")
        writing = asyncio.create_task(store.write(taken, Report(percent=2)))
        await asyncio.sleep(0.1)
        await connection.execute(
            "update grns.progress set overdue_seconds = 600, stalls_at = now() + interval '10 minutes'"
        )
        await connection.execute("commit")
        await writing
    (row,) = await fetch(
        shared, "select percent, overdue_seconds, stalls_at is not null as is_set from grns.progress"
    )
    assert (row["percent"], row["overdue_seconds"], row["is_set"]) == (2, 600, True)


async def test_an_overdue_attempt_is_ended_after_ten_minutes_whatever_its_own_limit(
    shared: Database, client: Client
) -> None:
    reaper = reaper_of(shared, [])
    handle = await client.submit("noop", {}, pool="worker", estimate=60)
    await ProgressStore(shared, batch_limit=1).write(
        await claim(shared, handle.id), Report(stall_seconds=86_400)
    )
    await shift(shared, 3600)
    await reaper.tick()
    await shift(shared, 599)
    await reaper.tick()
    assert (await row_of(shared, handle.id))["status"] == "running"
    await shift(shared, 2)
    await reaper.tick()
    assert (await row_of(shared, handle.id))["status"] == "queued"


async def test_an_attempt_that_asks_for_more_time_is_overdue_no_more(
    shared: Database, client: Client
) -> None:
    reaper = reaper_of(shared, [])
    handle = await client.submit("noop", {}, pool="worker", estimate=60)
    taken = await claim(shared, handle.id)
    await shift(shared, 3600)
    await reaper.tick()
    (answer,) = await record(shared, [(taken, Report(remaining_seconds=3600))])
    assert not answer.is_overdue
    await shift(shared, 3000)
    await reaper.tick()
    assert (await row_of(shared, handle.id))["status"] == "running"
    await shift(shared, 3000)
    reaper._warn_at = -math.inf
    await reaper.tick()
    assert (await read(shared, handle.id)).is_overdue
    assert (await kinds_of(shared, handle.id)).count("evt.attempt.overdue") == 2


async def test_a_stalled_attempt_is_not_warned_of(shared: Database, client: Client) -> None:
    emitted: list[Signal] = []
    handle = await client.submit("noop", {}, pool="worker", estimate=60)
    await ProgressStore(shared, batch_limit=1).write(await claim(shared, handle.id), Report(stall_seconds=60))
    await shift(shared, 3600)
    await reaper_of(shared, emitted).tick()
    assert [type(one).__name__ for one in emitted] == ["AttemptStalled", "TaskReaped"]
    assert "evt.attempt.overdue" not in await kinds_of(shared, handle.id)


async def test_what_an_attempt_expects_counts_more_than_its_submission(
    shared: Database, client: Client
) -> None:
    reaper = reaper_of(shared, [])
    handle = await client.submit("noop", {}, pool="worker", estimate=60)
    taken = await claim(shared, handle.id)
    store = ProgressStore(shared, batch_limit=1)
    await store.write(taken, Report(remaining_seconds=7200))
    await shift(shared, 3600)
    await reaper.tick()
    assert not (await read(shared, handle.id)).is_overdue
    await shift(shared, 5500)
    reaper._warn_at = -math.inf
    await reaper.tick()
    assert (await read(shared, handle.id)).is_overdue


@pytest.mark.parametrize("estimate", [0, -1, "soon", "20", True, math.nan, 366 * 86_400 + 60])
async def test_an_estimate_is_checked(client: Client, estimate: Any) -> None:
    with pytest.raises(InvalidInputError, match="estimate"):
        await client.submit("noop", {}, pool="worker", estimate=estimate)


async def test_estimates_of_many_and_of_a_workflow_are_kept(shared: Database, client: Client) -> None:
    made = await client.submit_many(
        [{"task": "noop", "pool": "worker"}, {"task": "noop", "pool": "worker", "estimate": 120}]
    )
    flow = client.workflow("w")
    first = flow.task("noop", pool="worker", estimate=180)
    flow.task("noop", pool="worker", needs=[first])
    await flow.submit()
    rows = await fetch(shared, "select minutes from grns.progress order by minutes")
    assert [row["minutes"] for row in rows] == [2, 3]
    assert len(made) == 2
    (row,) = await fetch(shared, "select grns.submit_task('noop', estimated_duration_minutes => 4) as id")
    (row,) = await fetch(shared, "select minutes from grns.progress where task_id = $1", row["id"])
    assert row["minutes"] == 4
