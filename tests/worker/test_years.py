"""Waits of a year: what the database has noted moves into the past, as if its clock had been put forward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

import pytest

import grns
from grns.maintenance.event_matcher import EventMatcher
from grns.maintenance.scheduler import promote
from grns.postgres.database import Database
from tests.support.attempts import Attempts, attempts_of
from tests.support.harness import submit
from tests.support.store import row_of

YEAR = timedelta(days=366)
WAITS = ("sleep", "signal", "event", "question")
POOL = grns.Pool("worker")

_TIMES = """
    select c.table_name as name,
        string_agg(format('%1$I = %1$I - $1::interval', c.column_name), ', ') as moves
    from information_schema.columns c
    join information_schema.tables t using (table_schema, table_name)
    where c.table_schema = 'grns' and c.data_type = 'timestamp with time zone' and t.table_type = 'BASE TABLE'
        and c.is_generated = 'NEVER' and c.table_name not like 'log%'
    group by c.table_name
"""
_UNTIL = """
    update grns.steps set value = jsonb_set(
        value, '{until}', to_jsonb((value ->> 'until')::float8 - extract(epoch from $1::interval)))
    where kind = 'sleep'
"""


@POOL.task("noop")
async def patient(ctx: grns.Context) -> str:
    wait = ctx.payload["wait"]
    if wait == "sleep":
        await ctx.sleep(YEAR)
        return "slept"
    with suppress(grns.WaitTimeoutError):
        if wait == "signal":
            await ctx.wait_for_signal("go", timeout=YEAR)
        elif wait == "event":
            await ctx.wait_for_event("evt.task.completed", timeout=YEAR)
        else:
            return str((await ctx.approve("pay", title="Pay?", timeout=YEAR, default=False)).value)
    return "timed out"


@pytest.fixture
def attempts(shared: Database) -> Iterator[Attempts]:
    with attempts_of(POOL, shared) as attempts:
        yield attempts


@pytest.mark.parametrize("wait", WAITS)
async def test_a_wait_of_a_year(attempts: Attempts, shared: Database, wait: str) -> None:
    task = await submit(shared, payload={"wait": wait}, max_attempts=1)
    assert await attempts.run(task.id) == "waiting"
    await _pass(shared, YEAR - timedelta(hours=1))
    await EventMatcher(database=shared, emit=lambda _: None).search()
    assert await promote(shared, 10, None) == []
    assert (await row_of(shared, task.id))["status"] == "waiting"
    await _pass(shared, timedelta(hours=2))
    assert len(await promote(shared, 10, None)) == 1
    assert await attempts.run(task.id) == "succeeded"
    row = await row_of(shared, task.id)
    assert (row["attempt"], row["uncounted_attempts"]) == (2, 1)
    assert row["result"] == {"sleep": '"slept"', "question": '"False"'}.get(wait, '"timed out"')


async def _pass(database: Database, time: timedelta) -> None:
    """Let time pass for the database."""
    async with database.transaction() as connection:
        await connection.execute("set local session_replication_role = replica")
        for row in await connection.fetch(_TIMES):
            await connection.execute(f"update grns.{row['name']} set {row['moves']}", time)
        await connection.execute(_UNTIL, time)
