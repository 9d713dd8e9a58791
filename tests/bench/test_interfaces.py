"""The tool that measures API and dashboard: options, table, questions, and the bulk redrive."""

from __future__ import annotations

import asyncpg
import pytest

from grns.maintenance.consistency import ConsistencyCheck
from grns.postgres.database import Database
from tests.bench.figure import MILLISECONDS, Figures
from tests.bench.interfaces import life, question, web
from tests.bench.interfaces.__main__ import main
from tests.bench.interfaces.furniture import Things
from tests.bench.interfaces.goal import goals, settle
from tests.bench.interfaces.redrive import Flow
from tests.bench.interfaces.show import has_missed
from tests.bench.interfaces.size import Sizes
from tests.bench.interfaces.table import sql, write
from tests.support.aggregators import count_all, counted, there

SMALL = Sizes(rows=1000)
THINGS = Things(
    tasks={"dead": ["gr-1"], "queued": ["gr-2", "gr-3"]}, fingerprints=["a", "b"], biggest="a", smallest="b",
    trace="t", filters=["saved"], keys=["k"], operations=["1"], messages=["m"], webhook="w", deliveries=[1],
    workflow="wf-1", schedule="daily", limit="mail", question="q-1", agent="a-1", agent_types=["crawler"],
    blob="sha256-0",
)  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rows", "19999"], "--rows is 20000"),
        (["--rows", "1000000000"], "--rows is 20000"),
        (["--only", "answers,dream"], "there is no 'dream'; there are answers, cost, redrive"),
        (["--result", "/nowhere/at/all.json"], "/nowhere/at/all.json is no place for a file"),
        (["--fast"], "unrecognized arguments: --fast"),
    ],
)
def test_bad_options_are_refused_before_anything_is_measured(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert words in capsys.readouterr().err


def test_every_route_and_every_page_that_looks_is_asked() -> None:
    asked, pages = question.questions(THINGS), web.web_questions(THINGS)
    assert not question.missing(asked)
    assert not web.missing(pages)
    assert "list_pools" in question.missing([one for one in asked if one.route != "list_pools"])
    assert "web_pools" in web.missing([one for one in pages if one.route != "web_pools"])
    names = [one.name for one in (*asked, *pages)]
    assert len(set(names)) == len(names)


def test_a_route_is_as_slow_as_the_slowest_of_its_questions() -> None:
    figures = Figures()
    for name, milliseconds in (("api.list_tasks: all", 3.0), ("api.list_tasks: deep", 49.0)):
        for _ in range(20):
            figures.note(name, milliseconds, MILLISECONDS)
    figures.note("api.list_tasks: all", 900.0, MILLISECONDS)  # one of twenty-one
    settle(figures)
    assert figures.median("worst.api.list_tasks") == 49.0
    assert not has_missed(figures, SMALL)
    figures.note("api.list_tasks: deep", 51.0, MILLISECONDS)
    figures.note("api.list_tasks: deep", 51.0, MILLISECONDS)
    settle(figures)
    assert has_missed(figures, SMALL)
    assert len({goal.figure for goal in goals(SMALL)}) == len(goals(SMALL))


def test_what_one_fails_with_has_one_fingerprint_whatever_its_number() -> None:
    known = {one.fingerprint for one in life.failures(300)}
    assert len(known) == 300
    sizes = Sizes()
    still_open = sizes.queued + sizes.retrying + sizes.running + sizes.waiting
    assert (sizes.dead, sizes.retrying, sizes.rate) == (100_000, 20_000, 2_000)
    assert sizes.rows > still_open + sizes.dead + sizes.failed + sizes.cancelled


def test_the_rate_of_a_redrive_leaves_out_when_nobody_was_there() -> None:
    steady = [(0.1 * number, 200) for number in range(300)]
    assert Flow(steady).rate == pytest.approx(2000)
    assert Flow(steady).outages == []
    assert Flow(steady).peak == pytest.approx(2000, rel=0.02)
    killed = [(at if at < 15 else at + 16, tasks) for at, tasks in steady]
    assert Flow(killed).rate == pytest.approx(2000)
    assert Flow(killed).outages == [pytest.approx(16.1)]
    assert Flow(killed).peak == pytest.approx(2000, rel=0.02)
    burst = [*steady, *((10.0, 200) for _ in range(20))]
    assert Flow(sorted(burst)).peak == pytest.approx(2400, rel=0.02)
    slow = [(2 * at, tasks) for at, tasks in steady]
    assert Flow(slow).rate == pytest.approx(1000)


async def test_the_table_is_what_the_product_would_have_written(
    database: Database, database_url: str
) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        await write(connection, SMALL, lambda *_: None)
        assert await _is_in_order(connection)
        await count_all(database)
        assert await counted(database) == await there(database)
        assert sum((await there(database)).values()) == SMALL.rows
        assert not (await _inspected(database)).counts
        await connection.execute(
            "delete from grns.events where kind = 'dlq.task.dead'"
            " and task_id = (select id from grns.tasks where status = 'dead' limit 1)"
        )
        assert (await _inspected(database)).counts == {"missing_message": 1}
    finally:
        await connection.close()


# What the log would have of a task that was redriven, and what a second time would leave there.
_OPENED = """
    insert into grns.events (version, workspace, task_id, kind, route, trace_id, payload)
    select 10, 'default', id, 'evt.task.queued', 'worker.p2', 't', json_build_object('operation_id', '7')
    from public.dead_before
    where id = any($1)
"""
_REDRIVEN = """
    update grns.tasks t set status = 'queued', queued_at = now(), queued_reason = 'redriven',
        finished_at = null, operation_id = 7, uncounted_attempts = attempt, version = version + 1
    where status = 'dead'
"""


async def test_what_was_redriven_twice_or_not_at_all_is_found(database: Database, database_url: str) -> None:
    connection = await asyncpg.connect(database_url)
    try:
        await write(connection, Sizes(rows=400), lambda *_: None)
        await connection.execute(
            "insert into grns.operations"
            " (id, workspace, action, filter, canary, created_by, matched, is_exact)"
            " overriding system value values (7, 'default', 'redrive', '', false, 'me', 40, true)"
        )
        await connection.execute(sql("note_dead"))
        ids = [row["id"] for row in await connection.fetch("select id from public.dead_before order by id")]
        mark = await connection.fetchval("select max(seq) from grns.events")
        await connection.execute(_REDRIVEN)
        await connection.execute(_OPENED, ids[1:])
        for more, found in (([], (39, 1, 0)), (ids[:1], (40, 0, 0)), (ids[5:8], (37, 3, 0))):
            await connection.execute(_OPENED, more)
            row = await connection.fetchrow(sql("check_redrive"), 7, mark)
            assert row is not None
            assert (row["once"], row["otherwise"], row["others"]) == found
        await connection.execute("delete from public.dead_before where id = $1", ids[9])
        row = await connection.fetchrow(sql("check_redrive"), 7, mark)
        assert row is not None
        assert row["others"] == 1
    finally:
        await connection.close()


async def _inspected(database: Database) -> ConsistencyCheck:
    inspection = ConsistencyCheck(database, stuck_after_seconds=1e6)
    await inspection.look_at_all()
    # nobody publishes here
    inspection.counts.pop("unrelayed", None)
    return inspection


async def _is_in_order(connection: asyncpg.Connection) -> bool:
    return bool(
        await connection.fetchval(
            "select bool_and(coalesce(created_at >= was, true)) from ("
            " select created_at, lag(created_at) over (order by seq) as was from grns.events) as e"
        )
    )
