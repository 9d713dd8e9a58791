"""Dead letters of both kinds on one list, and filters that somebody has saved."""

from __future__ import annotations

import pytest

from grns.dead_letters import listing
from grns.dead_letters.listing import MESSAGE, TASK, DeadFilter, DeadLetter
from grns.errors import InvalidInputError, NotFoundError
from grns.model.filter import parse
from grns.postgres.database import Database
from grns.postgres.paging import Page, cursor
from grns.tasks import saved_filters as saved_filter
from grns.tasks import search as task_page
from grns.tasks.search import Count
from tests.support.store import fetch
from tests.support.task_lists import expected, fill, ids

# Three come at the very time of tasks, and a third of them somebody has dealt with.
_BURY = """
    insert into grns.dead_letters (workspace, reason, detail, subject, stream, stream_seq, delivery_count, headers,
        body, body_sha256, state, created_at)
    select $1::text, 'bad_json', 'it is no document', 'cmd.task.execute.v1', 'GRNS_CMD', n, 1, '{}', '', $1::text || n,
        case n % 3 when 0 then 'discarded' else 'new' end,
        t.finished_at - case when n > 3 then n * interval '7 s' else interval '0' end
    from generate_series(1, 40) as n, (select max(finished_at) as finished_at from grns.tasks) as t
"""  # noqa: E501


async def bury(database: Database, workspace: str = "default") -> list[str]:
    """Write messages that belong to no task; return the ids of those that nobody has dealt with."""
    await fetch(database, _BURY, workspace)
    rows = await fetch(
        database,
        "select id::text as id from grns.dead_letters where state = 'new' and workspace = $1",
        workspace,
    )
    return [row["id"] for row in rows]


async def pages(database: Database, wanted: DeadFilter, *, limit: int) -> list[Page[DeadLetter]]:
    """Return all pages of dead letters, one behind the other."""
    found: list[Page[DeadLetter]] = []
    after: str | None = None
    while not found or after is not None:
        page = await listing.list_dead(database, workspace="default", wanted=wanted, limit=limit, after=after)
        assert len(page.rows) <= limit
        assert len(found) < 1000, "it comes to no end"
        found.append(page)
        after = page.next_cursor
    return found


def rows_of(found: list[Page[DeadLetter]]) -> list[DeadLetter]:
    """Return the rows of pages, which are in order."""
    rows = [row for page in found for row in page.rows]
    assert rows == sorted(rows, key=lambda row: (row.at, row.id), reverse=True)
    assert len(set(ids(rows))) == len(rows)
    return rows


@pytest.mark.parametrize("most", [3, 5_000])
@pytest.mark.parametrize("limit", [1, 4, 1000])
async def test_tasks_and_messages_are_on_one_list(
    shared: Database, monkeypatch: pytest.MonkeyPatch, limit: int, most: int
) -> None:
    """However far each page has looked: the latest come first, each once."""
    monkeypatch.setattr(task_page, "MOST_LOOKED_AT", most)
    await fill(shared)
    messages = await bury(shared)
    tasks = ids(await expected(shared, "status:dead,failed"))
    found = await pages(shared, DeadFilter(), limit=limit)
    rows = rows_of(found)
    assert sorted(ids(rows)) == sorted([*tasks, *messages])
    assert {row.id for row in rows if row.what == MESSAGE} == set(messages)


async def test_one_kind_is_listed_without_the_other(shared: Database) -> None:
    await fill(shared)
    messages = await bury(shared)
    await bury(shared, "other")
    tasks = ids(await expected(shared, "status:dead,failed"))
    for what, due in ((TASK, tasks), (MESSAGE, messages)):
        assert sorted(ids(rows_of(await pages(shared, DeadFilter(what), limit=5)))) == sorted(due)
    failed = ids(await expected(shared, "status:failed"))
    assert sorted(
        ids(rows_of(await pages(shared, DeadFilter(None, parse("error:Time*")), limit=5)))
    ) == sorted(failed)
    assert await pages(shared, DeadFilter(None, parse("status:queued")), limit=5) == [Page([], None)]


async def test_dead_letters_are_counted_by_kind(shared: Database) -> None:
    await fill(shared)
    messages = await bury(shared)
    tasks = await expected(shared, "status:dead,failed attempt:>0")
    found = await listing.count_dead(
        shared, workspace="default", wanted=DeadFilter(TASK, parse("attempt:>0"))
    )
    assert found == {TASK: Count(len(tasks))}
    found = await listing.count_dead(shared, workspace="default", wanted=DeadFilter(MESSAGE))
    assert found == {MESSAGE: Count(len(messages))}


def test_a_filter_asks_for_nothing_that_messages_have() -> None:
    with pytest.raises(InvalidInputError) as raised:
        DeadFilter(MESSAGE, parse("type:a"))
    assert raised.value.code == "bad_filter"


@pytest.mark.parametrize(
    "after",
    [
        "",
        "x",
        cursor("yesterday", "gr-1"),
        cursor("2026-02-06T21:00:00", "gr-1"),
        cursor("2026-02-06T21:00:00Z"),
    ],
)
async def test_a_cursor_that_nobody_was_given_is_refused(shared: Database, after: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        await listing.list_dead(shared, workspace="default", wanted=DeadFilter(), limit=5, after=after)
    assert raised.value.code == "bad_cursor"


# ---------------------------------------------------------------- saved filters


async def save(database: Database, name: str, text: str, workspace: str = "default") -> None:
    """Save a filter."""
    await saved_filter.save(
        database, workspace=workspace, name=name, wanted=parse(text), actor="cli:ann@desk"
    )


async def test_a_filter_is_saved_under_a_name(database: Database) -> None:
    await save(database, "flaky", "error:Timeout* status:dead")
    assert await saved_filter.read(database, workspace="default", name="flaky") == parse(
        "status:dead error:Timeout*"
    )
    with pytest.raises(InvalidInputError, match="at least one term"):  # L5
        await save(database, "flaky", "")
    await save(database, "flaky", "status:failed")
    assert await saved_filter.read(database, workspace="default", name="flaky") == parse("status:failed")
    await saved_filter.delete(database, workspace="default", name="flaky", actor="cli:bob@desk")
    with pytest.raises(NotFoundError, match="no saved filter flaky"):
        await saved_filter.read(database, workspace="default", name="flaky")
    with pytest.raises(NotFoundError, match="no saved filter flaky"):
        await saved_filter.delete(database, workspace="default", name="flaky", actor=None)
    told = await fetch(database, "select kind, actor from grns.events order by seq")
    assert [tuple(row) for row in told] == [
        ("evt.filter.saved", "cli:ann@desk"),
        ("evt.filter.saved", "cli:ann@desk"),
        ("evt.filter.deleted", "cli:bob@desk"),
    ]


async def test_saved_filters_are_listed_by_their_names(database: Database) -> None:
    for name in ("b", "a", "C", "d"):
        await save(database, name, f"type:{name}")
    await save(database, "elsewhere", "type:x", "other")
    first = await saved_filter.list_saved(database, workspace="default", limit=3)
    assert [(row.name, row.text) for row in first.rows] == [
        ("C", "type:C"), ("a", "type:a"), ("b", "type:b")
    ]  # fmt: skip
    assert {row.saved_by for row in first.rows} == {"cli:ann@desk"}
    second = await saved_filter.list_saved(database, workspace="default", limit=3, after=first.next_cursor)
    assert ([row.name for row in second.rows], second.next_cursor) == (["d"], None)
    with pytest.raises(InvalidInputError):
        await saved_filter.list_saved(database, workspace="default", limit=3, after=cursor("a", "b"))
