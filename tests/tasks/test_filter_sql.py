"""Filters, asked of Postgres: what comes is what plain Python says that has to come."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import select

from grns.model.filter import parse
from grns.model.filter_kinds import TERMS
from grns.postgres import query
from grns.postgres.database import Database
from grns.postgres.tables import tasks
from grns.tasks.filter_sql import conditions
from tests.support.task_lists import expected, fill, ids, listed

FOUND = (
    "",
    "status:dead",
    "status:dead,running,waiting",
    "-status:succeeded",
    "-status:succeeded,failed,dead,cancelled",
    "type:type_1",
    "type:type_*",  # the character is no wildcard
    "-type:type_*",
    "type:type_1,type_2 -type:type_2",
    "pool:worker",
    "pool:w*,b*",
    "status:queued pool:worker",
    "status:queued pool:worker,batch priority:1,3",
    "status:queued priority:>1",
    "worker:worker-1",
    "worker:*",
    "-worker:*",
    "-worker:worker-1",
    "priority:0",
    "priority:<2",
    "priority:0,>2",
    "-priority:<1,>2",
    "attempt:3",
    "attempt:>3",
    "attempt:>=3",
    "attempt:>1,<4",
    "attempt:0,>3,<=4",
    "-attempt:0,>3",
    "age:>100h",
    "age:<2d",
    "age:>1d,<=2d",
    "-age:<100h,>200h",
    "error:TimeoutError",
    "error:Time*,Value*",
    'error:"*thing*3*of*"',
    'error:"*\\"thing\\" 3*"',
    "error:*Error",
    "error:*0%_*",
    "error:100%_\\\\",
    "error:*",
    "-error:*",
    "-error:Time*",
    "fingerprint:0000000000000002",
    "trace:tr-7-x",
    "trace:tr-*",
    "tr-7",
    "key:key-3,key-6,key-7",
    "key:key-1*",
    "-key:*",
    "id:gr-00017",
    "id:gr-00017,gr-00018,gr-00019",
    "waits:time",
    "waits:time,signal status:waiting",
    "-waits:time",
    "gr-0001",
    "gr-0001,gr-00023,gr-00018*",
    "-gr-0001 status:dead",
    "id:gr-0001*,gr-00200 status:dead,failed",
    "discarded:yes",
    "discarded:yes,no",
    "discarded:yes status:dead",
    "-discarded:no",
    "payload.n:3",
    "payload.n:*",
    "payload.flag:true",
    "payload.url:https://a.example/1",
    "payload.url:https://a.example/*",
    "-payload.url:https://a.example/1",
    "payload.deep.list.0:1",
    'payload.deep.list.1:"x,y"',
    "-payload.none:*",
    "status:dead,failed error:Value* payload.n:2 -pool:batch",
    "-status:dead type:type_0 attempt:<4 age:>10h",
)
NOT_FOUND = (
    "status:dead -status:dead",
    "priority:1 -priority:1 status:queued",
    "worker:worker-1 status:dead",
    "type:typex1",
    "type:type",
    "type:TYPE*",
    "type:type_%",
    "type:type%",
    "error:time*",
    "error:100__*",
    "payload.none:*",
    "payload.n.n:*",
    "payload.deep.list.7:*",
    "payload.missing:x",
    "discarded:yes status:running",
    "id:gr-00017 status:dead,failed -id:gr-*",
    """type:"'; drop table grns.tasks;--" """,
    """payload.a:"$1 {} %s' or true" """,
    'key:"a\\"b"',
    "age:>3660d",
    "attempt:999999999",
)


@pytest.mark.parametrize("text", FOUND)
async def test_a_filter_finds_what_it_says(shared: Database, text: str) -> None:
    await fill(shared)
    due = ids(await expected(shared, text))
    assert due, "a filter that finds nothing shows little"
    assert sorted(ids(await listed(shared, text, limit=50))) == sorted(due)
    assert await by_conditions(shared, text) == sorted(due)


@pytest.mark.parametrize("text", NOT_FOUND)
async def test_a_filter_finds_nothing_else(shared: Database, text: str) -> None:
    await fill(shared)
    assert await expected(shared, text) == []
    assert await listed(shared, text, limit=50) == []
    assert await by_conditions(shared, text) == []


async def by_conditions(database: Database, text: str) -> list[str]:
    """Return what the conditions alone find, on no road."""
    found = select(tasks.c.id).where(tasks.c.workspace == "default", *conditions(parse(text)))
    return [row["id"] for row in await query.run(database, found.order_by(tasks.c.id))]


def test_all_that_a_term_can_be_about_is_asked() -> None:
    asked = {name for text in FOUND for name in parse(text).names}
    # Those of workflows are in tests/workflows/test_control.py, of labels in tests/tasks/test_labels.py,
    # of words in tests/stats/test_text_indexer.py.
    assert asked == {kind.name for kind in TERMS} - {"workflow", "needs", "tag", "title", "creator", "text"}


@pytest.mark.parametrize("text", [*FOUND, *NOT_FOUND])
def test_what_is_asked_for_is_always_a_parameter(text: str) -> None:
    sql, values = query.compiled(select(tasks.c.id).where(*conditions(parse(text))))
    assert not re.search(r"['0-9]", re.sub(r"\$[0-9]+", "", sql)), sql
    assert len(set(re.findall(r"\$[0-9]+", sql))) == len(values)
