"""Pages of tasks: each has its order, goes on behind the last, and looks at no more than it may."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pytest

from grns.errors import InvalidInputError
from grns.model.filter import parse
from grns.model.task import TaskStatus
from grns.postgres.database import Database
from grns.postgres.paging import cursor
from grns.tasks import search as task_page
from grns.tasks.search import Count
from tests.support.aggregators import begin_here, count_all
from tests.support.store import fetch, place
from tests.support.task_lists import everything, expected, fill, ids, listed, pages

A_TIME = "2026-02-06T21:00:00+00:00"

# What a list is sorted by, and whether the last comes first.
ORDERS: dict[str, tuple[tuple[str, ...], bool]] = {
    "": (("id",), True),
    "type:type_1": (("id",), True),
    "status:running": (("id",), True),
    "status:queued": (("agent_type", "priority", "queued_at", "id"), False),
    "status:queued pool:worker": (("agent_type", "priority", "queued_at", "id"), False),
    "status:queued pool:worker,batch priority:0,>1": (("agent_type", "priority", "queued_at", "id"), False),
    "status:waiting,retry_wait": (("next_attempt_at", "id"), False),
    "status:waiting": (("next_attempt_at", "id"), False),
    "status:dead": (("finished_at", "id"), True),
    "status:succeeded,failed,dead,cancelled": (("finished_at", "id"), True),
    "discarded:yes": (("finished_at", "id"), True),
    "gr-0001,gr-0002,gr-00030": (("id",), True),
    "key:key-3,key-60,key-9": (("id",), True),
}


def _value(row: Any, name: str) -> Any:
    return row[name] if isinstance(row, dict) else getattr(row, name)


def in_order(rows: Sequence[Any], text: str) -> list[str]:
    """Return the ids of rows in the order of a list."""
    columns, is_last_first = ORDERS[text]
    return ids(
        sorted(rows, key=lambda row: tuple(_value(row, name) for name in columns), reverse=is_last_first)
    )


@pytest.mark.parametrize("limit", [1, 7, 1000])
@pytest.mark.parametrize("text", ORDERS)
async def test_a_list_has_the_order_of_its_road(shared: Database, text: str, limit: int) -> None:
    """Many have one time: these are in the order of their ids, and none is lost between two pages."""
    await fill(shared)
    rows = await expected(shared, text)
    assert len(rows) > 1
    assert ids(await listed(shared, text, limit=limit)) == in_order(rows, text)


async def test_states_come_one_behind_the_other(shared: Database) -> None:
    await fill(shared)
    rows = await listed(shared, "-status:succeeded")
    order = ["running", "queued", "due", "ended"]
    places = [order.index(_ROADS.get(row.status, "ended")) for row in rows]
    assert places == sorted(places)
    assert sorted(ids(rows)) == sorted(ids(await expected(shared, "-status:succeeded")))


_ROADS = {"running": "running", "queued": "queued", "waiting": "due", "retry_wait": "due"}


@pytest.mark.parametrize("limit", [30, 60])
async def test_a_page_that_ends_with_its_road_goes_on_with_the_next(shared: Database, limit: int) -> None:
    """There are thirty in each state: the first page is full as the first road ends, or the second."""
    await fill(shared)
    found = await pages(shared, "status:running,queued,succeeded", limit=limit)
    assert [len(page.rows) for page in found] == [limit] * (90 // limit) + [90 % limit] * (90 % limit > 0)


async def test_a_row_is_told_with_what_a_list_shows(shared: Database) -> None:
    await fill(shared)
    (row,) = await listed(shared, "id:gr-00005")
    stored = next(row for row in await everything(shared) if row["id"] == "gr-00005")
    assert row.error_class == stored["last_error"]["class"]
    assert row.max_attempts == stored["attempt_limit"]
    assert (row.progress_percent, row.current_step) == (None, None)
    assert (row.title, row.tags, row.created_by) == (None, [], None)
    labels = ("title", "tags", "created_by")
    computed = ("error_class", "max_attempts", "progress_percent", "current_step", *labels)
    shown = {name: value for name, value in asdict(row).items() if name not in computed}
    assert shown == {name: stored[name] for name in shown}


@pytest.mark.parametrize("text", ["", "status:running", "status:queued", "status:waiting", "status:dead"])
async def test_what_comes_and_goes_between_two_pages_shifts_nothing(shared: Database, text: str) -> None:
    await fill(shared, last=400)
    everyone = ids(await listed(shared, text, limit=1000))
    page = await task_page.list_tasks(shared, workspace="default", wanted=parse(text), limit=10)
    assert ids(page.rows) == everyone[:10]
    await fetch(shared, "delete from grns.tasks where id = any($1)", everyone[:10])
    await fill(shared, first=401, last=480)
    rest = ids(await listed(shared, text, limit=10, after=page.next_cursor))
    assert [task_id for task_id in rest if task_id <= "gr-00400"] == everyone[10:]


# ---------------------------------------------------------------- bounds


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a page look at no more than ten rows of a road."""
    monkeypatch.setattr(task_page, "MOST_LOOKED_AT", 10)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "type:type_1",
        "error:Value*",
        "attempt:3 payload.n:2",
        "status:running attempt:2",
        "status:queued attempt:3",
        "status:waiting type:type_1",
        "status:retry_wait type:type_2",
        "status:dead,failed,cancelled payload.n:2",
        "-status:succeeded attempt:3",
        "gr-000,gr-001 attempt:3",
        "key:key-1*",
    ],
)
async def test_pages_that_look_at_few_rows_find_all_together(shared: Database, text: str) -> None:
    await fill(shared)
    found = await pages(shared, text, limit=4)
    rows = [row.id for page in found for row in page.rows]
    assert sorted(rows) == sorted(ids(await expected(shared, text)))
    assert (text == "") != any(page.is_partial for page in found)


@pytest.mark.usefixtures("hasty")
async def test_what_was_discarded_fills_no_page(shared: Database) -> None:
    """However much somebody sets aside, the rest does not come a row at a time."""
    await fill(shared)
    await fetch(
        shared, "update grns.tasks set discarded_at = now() where status = 'dead' and id > 'gr-00020'"
    )
    (page,) = await pages(shared, "status:dead")
    assert ids(page.rows) == ["gr-00006"]
    found = await pages(shared, "discarded:yes")
    assert [len(page.rows) for page in found[:-1]] == [7] * (len(found) - 1)


@pytest.mark.usefixtures("hasty")
async def test_a_page_says_that_it_has_not_looked_at_all(shared: Database) -> None:
    await fill(shared)
    page = await task_page.list_tasks(
        shared, workspace="default", wanted=parse("status:dead type:nothing"), limit=5
    )
    assert (page.rows, page.is_partial) == ([], True)
    assert page.next_cursor is not None
    await fetch(shared, "delete from grns.tasks where status = 'dead' and id > 'gr-00060'")
    page = await task_page.list_tasks(
        shared, workspace="default", wanted=parse("status:dead type:nothing"), limit=5
    )
    assert (page.rows, page.is_partial, page.next_cursor) == ([], False, None), "there are but seven"


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("text", ["", "status:running", "status:queued", "status:waiting", "status:dead"])
async def test_no_workspace_sees_tasks_of_another(shared: Database, text: str) -> None:
    await fill(shared, workspace="other")
    await fill(shared, workspace="mine", first=301, last=340)
    await fill(shared, workspace="other", first=401, last=640)
    mine = await listed(shared, text, workspace="mine")
    assert sorted(ids(mine)) == sorted(ids(await expected(shared, text, "mine")))
    assert mine


@pytest.mark.usefixtures("hasty")
async def test_where_all_of_the_latest_are_of_others_tasks_come_by_their_states(shared: Database) -> None:
    await fill(shared, workspace="mine", last=40)
    await fill(shared, workspace="other", first=101, last=340)
    page = await task_page.list_tasks(shared, workspace="mine", wanted=parse(""), limit=8)
    assert [row.status for row in page.rows[:5]] == ["running"] * 5
    assert not page.is_partial


async def test_tasks_are_listed_among_some_states(shared: Database) -> None:
    await fill(shared)
    among = frozenset({TaskStatus.DEAD, TaskStatus.FAILED})
    both = ids(await expected(shared, "status:dead,failed"))
    assert sorted(ids(await listed(shared, "", among=among))) == sorted(both)
    assert await listed(shared, "status:queued", among=among) == []
    assert await listed(shared, "id:gr-00001", among=among) == [], "it is queued"
    assert ids(await listed(shared, "id:gr-00006", among=among)) == ["gr-00006"]


# ---------------------------------------------------------------- cursors


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("", ""),
        ("", "x"),
        ("", "é" * 5000),
        ("", cursor("latest", "gr-1", "gr-2")),
        ("", cursor("shortest", "gr-1")),
        ("", cursor("latest", "a\x00b")),
        ("status:dead", cursor("latest", "gr-1")),
        ("status:dead", cursor("queued", "worker", "1", A_TIME, "gr-1")),
        ("status:dead", cursor("ended", A_TIME)),
        ("status:dead", cursor("ended", "yesterday", "gr-1")),
        ("status:dead", cursor("ended", "2026-02-06T21:00:00", "gr-1")),
        ("status:dead", cursor("ended", "0001-01-01T00:00:00+14:00", "gr-1")),
        ("status:queued", cursor("queued", "worker", "4", A_TIME, "gr-1")),
        ("status:queued", cursor("queued", "worker", "-1", A_TIME, "gr-1")),
        ("status:queued", cursor("queued", "worker", "high", A_TIME, "gr-1")),
        ("status:dead -status:dead", cursor("ended", A_TIME, "gr-1")),
    ],
    ids=lambda value: ascii(value)[:40],
)
async def test_a_cursor_that_nobody_was_given_is_refused(shared: Database, text: str, after: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        await pages(shared, text, after=after)
    assert raised.value.code == "bad_cursor"


async def test_a_cursor_from_far_away_is_one(shared: Database) -> None:
    await fill(shared, last=30)
    due = ids(await listed(shared, "status:dead"))
    assert due
    for far in (cursor("ended"), cursor("ended", "9999-12-31T00:00:00+00:00", "~")):
        assert ids(await listed(shared, "status:dead", after=far)) == due
    assert await listed(shared, "status:dead", after=cursor("ended", "0002-01-01T00:00:00+00:00", "é")) == []


# ---------------------------------------------------------------- counts


async def count(database: Database, text: str, **more: Any) -> Count:
    """Return how many tasks a filter finds."""
    return await task_page.count(database, workspace="default", wanted=parse(text), **more)


COUNTED = """
    insert into grns.task_counts (workspace, task_type, status, count)
    select 'default', t.task_type, t.status, 1000 * count(*) from grns.tasks t group by t.task_type, t.status
    union all select 'other', 'type_1', 'queued', 5;
"""


async def test_what_is_counted_already_is_not_counted_again(shared: Database) -> None:
    """Here each that was counted counts as a thousand."""
    await fill(shared)
    await fetch(shared, COUNTED)
    for text in (
        "status:queued",
        "status:running,succeeded type:type_1",
        "status:waiting type:type_1,type_2",
    ):
        assert await count(shared, text) == Count(1000 * len(await expected(shared, text)))
    assert await count(shared, "status:queued type:nothing") == Count(0)


async def test_what_may_have_been_discarded_is_looked_at(shared: Database) -> None:
    await fill(shared)
    await fetch(shared, COUNTED)
    for text in ("status:dead", "status:dead,failed,cancelled type:type_0", "status:dead discarded:yes,no"):
        assert await count(shared, text) == Count(len(await expected(shared, text)))
    others = len(await expected(shared, "-status:failed,dead,cancelled"))
    ended = len(await expected(shared, "status:failed,dead,cancelled"))
    assert await count(shared, "") == Count(1000 * others + ended)


@pytest.mark.parametrize(
    "text",
    ["type:type_*", "-type:type_1", "type:type_1 -type:type_1", "attempt:3", "status:running worker:worker-1",
     "status:dead error:Value*", "-status:dead priority:1", "gr-0001", "key:key-3",
     "status:queued pool:worker"],
)  # fmt: skip
async def test_what_nobody_has_counted_is_looked_at(shared: Database, text: str) -> None:
    await fill(shared)
    assert await count(shared, text) == Count(len(await expected(shared, text)))


async def test_a_count_of_many_says_at_least(shared: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(shared)
    monkeypatch.setattr(task_page, "MOST_COUNTED", 12)
    found = await count(shared, "status:dead,failed")
    assert not found.is_exact
    assert 0 < found.number <= 12 < len(await expected(shared, "status:dead,failed"))
    assert await count(shared, "status:dead", among=frozenset({TaskStatus.QUEUED})) == Count(0)


async def test_the_open_tasks_of_an_issue_are_counted_however_many(
    shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin_here(shared)
    for _ in range(5):
        await place(shared, "dead")
    monkeypatch.setattr(task_page, "MOST_COUNTED", 2)
    fingerprint = (await fetch(shared, "select fingerprint from grns.tasks limit 1"))[0][0]
    mine, others = f"status:dead,failed fingerprint:{fingerprint}", f"status:dead fingerprint:{fingerprint}"
    assert await count(shared, mine) == Count(2, is_exact=False), "nobody has counted it yet"
    await count_all(shared)
    assert await count(shared, mine) == Count(5)
    assert await count(shared, others) == Count(2, is_exact=False), "an issue counts both states together"
    assert await count(shared, f"{mine} priority:1") == Count(2, is_exact=False)
