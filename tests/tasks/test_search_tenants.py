"""Lists of a tenant: they look at no more than anybody's do, however much there is of others."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from grns.access.isolation import as_tenant
from grns.model.filter import parse
from grns.postgres import query
from grns.postgres.database import Connection, Database
from grns.postgres.paging import parts
from grns.tasks import search as task_page
from grns.tasks.index_scan import EVERY_STATE, plans
from tests.support.store import fetch
from tests.support.task_lists import expected, fill, ids, listed, pages

OURS, THEIRS = "acme", "rival"
FILTERS = ("", "type:type_1", "attempt:>2", "status:waiting,retry_wait", "-status:succeeded")
MOST = 20


@pytest.fixture
async def crowded(shared: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A few tasks of ours in front of, between and behind many of theirs; a page looks at few."""
    monkeypatch.setattr(task_page, "MOST_LOOKED_AT", MOST)
    monkeypatch.setattr(task_page, "MOST_COUNTED", MOST)
    await fill(shared, workspace=OURS, first=1, last=16)
    await fill(shared, workspace=THEIRS, first=17, last=200)
    await fill(shared, workspace=OURS, first=201, last=216)
    await fill(shared, workspace=THEIRS, first=217, last=400)
    return shared


@pytest.mark.parametrize("limit", [1, 7, 1000])
@pytest.mark.parametrize("text", FILTERS)
async def test_all_pages_together_have_what_is_ours(crowded: Database, text: str, limit: int) -> None:
    wanted = ids(await expected(crowded, text, OURS))
    async with as_tenant(crowded, OURS) as session:
        assert sorted(ids(await listed(session, text, workspace=OURS, limit=limit))) == sorted(wanted)


@pytest.mark.parametrize("text", FILTERS)
async def test_a_page_and_a_count_look_at_no_more_than_anybodys(crowded: Database, text: str) -> None:
    asked: list[int] = []
    wanted = parse(text)
    async with as_tenant(crowded, OURS) as session, session.connection() as connection:
        for scan in (scan for plan in plans(wanted, wanted.states, OURS) for scan in plan if scan.is_shared):
            edge = await task_page._edge(session, scan, (), MOST)
            assert edge is not None
            whole = task_page.SearchQuery(wanted, EVERY_STATE, OURS)
            near = scan.until(edge)
            asked.append(await _looked_at(connection, task_page.page_statement(near, whole, (), 10)))
            asked.append(await _looked_at(connection, task_page.count_statement(near, whole)))
        page = await task_page.list_tasks(session, workspace=OURS, wanted=wanted, limit=1000)
        assert page.is_partial
        if text == "attempt:>2":  # the others are counted already
            assert not (await task_page.count(session, workspace=OURS, wanted=wanted)).is_exact
    assert asked
    # All that have the time of the last one come with it.
    assert max(asked) <= 4 * MOST


async def test_no_cursor_names_what_is_theirs(crowded: Database) -> None:
    await fetch(
        crowded,
        "update grns.tasks set id = 'gr-' || lpad(substr(id, 4), 10, '0') || workspace",
    )
    async with as_tenant(crowded, OURS) as session:
        for text in FILTERS:
            for page in await pages(session, text, workspace=OURS, limit=3):
                assert page.next_cursor is None or not any(THEIRS in one for one in parts(page.next_cursor))


async def _looked_at(connection: Connection, select: Any) -> int:
    """Return how many tasks a statement has looked at, ours or not."""
    sql, values = query.compiled(select)
    rows = await connection.fetch(f"explain (analyze, format json) {sql}", *values)
    return sum(_rows(json.loads(rows[0][0])[0]["Plan"]))


def _rows(plan: dict[str, Any]) -> list[int]:
    found = [one for inner in plan.get("Plans", ()) for one in _rows(inner)]
    if plan.get("Relation Name") == "tasks":
        found.append((plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"])
    return found


async def test_cursor_of_a_tenant_has_no_exact_time_of_another_tenants_task(crowded: Database) -> None:
    """L8: it is rounded up to the second, and the pages still have all that is due."""
    await fetch(
        crowded,
        "update grns.tasks set next_attempt_at = next_attempt_at + interval '123456 us'"
        " where next_attempt_at is not null",
    )
    wanted = parse("status:waiting,retry_wait")
    after, texts = None, []
    async with as_tenant(crowded, OURS) as session:
        own = set(ids(await listed(session, str(wanted), workspace=OURS, limit=1000)))
        while True:
            page = await task_page.list_tasks(session, workspace=OURS, wanted=wanted, limit=1000, after=after)
            if (after := page.next_cursor) is None:
                break
            _, at, task_id = parts(after)
            if task_id not in own:
                texts.append(at)
    assert texts, "pages end among the others' tasks"
    assert all(datetime.fromisoformat(at).microsecond == 0 for at in texts), texts


async def test_functions_of_the_definer_are_granted_to_tenants_alone(shared: Database) -> None:
    """L8: they read the rows of all workspaces."""
    rows = await fetch(
        shared,
        "select p.proname as name, p.proacl::text as rights from pg_proc p"
        " where p.pronamespace = 'grns'::regnamespace and p.prosecdef",
    )
    # that one tells nothing, and whoever may submit calls it
    rows = [row for row in rows if row["name"] != "wake_relay"]
    assert {row["name"] for row in rows} == {"edge_of_latest", "edge_of_due"}
    for row in rows:
        grantees = {one.partition("=")[0] for one in row["rights"].strip("{}").split(",")}
        assert "" not in grantees, "everybody"
        assert "grns_tenant" in grantees
