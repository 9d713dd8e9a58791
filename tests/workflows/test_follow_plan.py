"""How much the follower's statement reads where thousands of tasks need one, and one needs thousands."""

from __future__ import annotations

import json

import pytest

from grns.postgres.database import Connection, Database
from grns.postgres.statements import statement
from grns.workflows.follower import _ENDS
from tests.support.followers import begin_here
from tests.support.store import fetch

_WIDE = 600
_ANALYZE = "analyze grns.needs, grns.waits, grns.tasks, grns.workflows, grns.follow_later"
_TYPES = (
    "bigint, bigint, float8, bigint[], bigint[], bigint, bigint, bigint[], bigint[],"
    " text[], bigint, text[], text[]"
)
_WORKFLOW = '{"name": "wide", "fail_after": {"count": 1, "then": {"task_type": "call"}}}'
_END = """
    with claimed as (
        select t.id from grns.tasks t where t.status = 'queued'
    ), ended as (
        update grns.tasks t
        set status = 'cancelled', finished_at = now(), queued_at = null, cancel_requested_at = now(),
            version = t.version + 1
        from claimed c where t.id = c.id
        returning t.*
    )
    insert into grns.events (version, workspace, task_id, kind, trace_id, payload)
    select e.version, e.workspace, e.id, 'evt.task.cancelled', e.trace_id, '{}' from ended e
"""


async def rows_compared(connection: Connection) -> int:
    """Follow the log to its end with one statement; return how many rows it has read for nothing."""
    (cursor,) = await connection.fetch("select moves, low from grns.follow_cursor")
    high = await connection.fetchval("select max(seq) from grns.events")
    ends = "{" + ",".join(_ENDS) + "}"
    plan = await connection.fetchval(
        f"explain (analyze, format json) execute follow (1, {cursor['moves']}, 60, '{{{cursor['low'] + 1}}}',"
        f" '{{{high + 1}}}', {high - cursor['low']}, {high}, '{{}}', '{{}}', '{ends}', 10000, '{{}}', '{{}}')"
    )
    pending, dropped = [json.loads(plan)[0]["Plan"]], 0
    while pending:
        node = pending.pop()
        for name in ("Rows Removed by Join Filter", "Rows Removed by Filter"):
            dropped += node.get(name, 0) * node["Actual Loops"]
        pending += node.get("Plans", ())
    return dropped


@pytest.mark.parametrize("analyzed", ["never", "when empty", "now"])
async def test_no_row_is_compared_with_each_other_one(shared: Database, analyzed: str) -> None:
    """With nested loops over all pairs, the 10,000 tasks of one workflow took 20 s."""
    await begin_here(shared)
    await fetch(
        shared, "update grns.leases set epoch = 1, until = now() + interval '1 hour' where name = 'follower'"
    )
    middle = [
        {"task_type": "noop", "name": f"m{n}", "needs": [{"task": "first", "outcome": "end"}]}
        for n in range(_WIDE)
    ]
    last = {"task_type": "noop", "needs": [{"task": one["name"], "outcome": "end"} for one in middle]}
    graph = json.dumps([{"task_type": "noop", "name": "first"}, *middle, last])
    async with shared.connection() as connection:
        if analyzed == "when empty":
            await connection.execute(_ANALYZE)
        await connection.execute(f"prepare follow ({_TYPES}) as {statement('follow_log')}")
        await connection.fetch(
            "select grns.submit_graph($1::text::jsonb, workflow => $2::text::jsonb)", graph, _WORKFLOW
        )
        if analyzed == "now":
            await connection.execute(_ANALYZE)
        for queued in (1, _WIDE + 1, 1):  # an escalation beside the middle
            assert await rows_compared(connection) < 30 * _WIDE
            rows = await connection.fetch("select from grns.tasks where status = 'queued'")
            assert len(rows) == queued
            await connection.execute(_END)
        await connection.execute("deallocate follow")
