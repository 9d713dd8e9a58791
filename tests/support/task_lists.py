"""Tasks of all kinds, all pages of a list of them, and what a filter should find, in plain Python."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from grns.dead_letters import listing
from grns.dead_letters.listing import DeadLetter
from grns.model.filter import Filter, Term, parse
from grns.postgres.database import Database, Session
from grns.postgres.paging import Page
from grns.tasks import search as task_page
from grns.tasks.search import TaskSummary
from tests.support.store import fetch

Rows = list[dict[str, Any]]

_COLUMNS = {
    "status": "status", "type": "task_type", "pool": "agent_type", "worker": "owner_agent_id",
    "fingerprint": "fingerprint", "trace": "trace_id", "key": "idempotency_key", "id": "id",
    "waits": "waits_for",
}  # fmt: skip

# Times come five times each: what has one time is placed by its id.
_FILL = """
    insert into grns.tasks (id, workspace, task_type, agent_type, priority, status, payload, attempt,
        attempt_limit, idempotency_key, trace_id, last_message_id, last_error, fingerprint, created_at,
        owner_agent_id, lease_id, lease_until, queued_at, next_attempt_at, waits_for, finished_at,
        discarded_at)
    select 'gr-' || lpad(n::text, 5, '0'), $1, case when n % 11 = 0 then 'typeX1' else 'type_' || n % 3 end,
        case when n / 8 % 2 = 0 then 'worker' else 'batch' end, n / 16 % 4, s.status,
        jsonb_build_object('n', n % 5, 'url', 'https://a.example/' || n % 4, 'flag', n % 2 = 0, 'none', null,
            'deep', jsonb_build_object('list', jsonb_build_array(n % 2, 'x,y'))),
        n % 6, 9, case when n % 3 = 0 then 'key-' || n end, 'tr-' || n % 10 || '-x', gen_random_uuid(),
        case when n % 4 > 0 then jsonb_build_object(
            'class', (array['TimeoutError', 'ValueError', '100%_\\'])[n % 4],
            'message', 'no "thing" ' || n % 7 || E'\\nof this kind') end,
        case when n % 4 > 0 then lpad(to_hex(n % 4), 16, '0') end,
        now() - n * interval '1 h' - interval '30 min',
        case s.status when 'running' then 'worker-' || n % 3 end,
        case s.status when 'running' then gen_random_uuid() end,
        case s.status when 'running' then now() + n % 5 * interval '1 min' end,
        case s.status when 'queued' then now() - n % 5 * interval '1 min' end,
        case when s.status in ('waiting', 'retry_wait') then now() + n % 5 * interval '1 min' end,
        case s.status when 'waiting' then 'time' end,
        case when s.place > 4 then now() - n % 5 * interval '1 min' end,
        case when s.place > 5 and n % 7 = 0 then now() end
    from generate_series($2::integer, $3::integer) as n
    join unnest(array['running', 'queued', 'waiting', 'retry_wait', 'succeeded', 'failed', 'dead',
        'cancelled']) with ordinality as s (status, place) on s.place = 1 + n % 8
"""


async def fill(database: Database, *, workspace: str = "default", first: int = 1, last: int = 240) -> None:
    """Write tasks of these numbers, an eighth in each state; some of those that ended are discarded."""
    await fetch(database, _FILL, workspace, first, last)


async def everything(database: Database, workspace: str = "default") -> Rows:
    """Return all tasks of a workspace as they are."""
    rows = await fetch(database, "select * from grns.tasks where workspace = $1", workspace)
    return [
        {**row, "payload": json.loads(row["payload"]), "last_error": json.loads(row["last_error"] or "null")}
        for row in rows
    ]


async def expected(database: Database, text: str, workspace: str = "default") -> Rows:
    """Return the tasks that a filter should find."""
    wanted, now = parse(text), await listing.now(database)
    return [row for row in await everything(database, workspace) if is_wanted(row, wanted, now)]


def is_wanted(row: dict[str, Any], wanted: Filter, now: datetime) -> bool:
    """Say whether a filter should find a task."""
    is_asked_for = "discarded" in wanted.names or wanted.patterns("id") is not None
    if row["discarded_at"] is not None and not is_asked_for:
        return False
    return all(_fits(row, term, now) for term in wanted.terms)


def _fits(row: dict[str, Any], term: Term, now: datetime) -> bool:
    if term.patterns:
        return any(one.fits(text) for one in term.patterns for text in _texts(row, term)) != term.is_negated
    number = int((now - row["created_at"]).total_seconds()) if term.name == "age" else row[term.name]
    bounds = [bound.fits(number) for bound in term.bounds]
    is_within = any(bounds) if term.is_negated else bool(bounds) and all(bounds)
    return (is_within or any(one.fits(number) for one in term.numbers)) != term.is_negated


def _texts(row: dict[str, Any], term: Term) -> list[str]:
    if term.kind.name == "payload":
        value: Any = row["payload"]
        for step in term.path:
            value = _inside(value, step)
        return [] if value is None else [value if isinstance(value, str) else json.dumps(value)]
    if term.name == "error":
        return [] if row["last_error"] is None else [row["last_error"]["class"], row["last_error"]["message"]]
    if term.name == "discarded":
        return ["no" if row["discarded_at"] is None else "yes"]
    text = row[_COLUMNS[term.name]]
    return [] if text is None else [text]


def _inside(value: Any, step: str) -> Any:
    if isinstance(value, dict):
        return value.get(step)
    if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
        return value[int(step)]
    return None


async def pages(
    database: Database | Session, text: str, *, limit: int = 7, after: str | None = None, **more: Any
) -> list[Page[TaskSummary]]:
    """Return all pages of a list, one behind the other."""
    more.setdefault("workspace", "default")
    found: list[Page[TaskSummary]] = []
    while not found or after is not None:
        page = await task_page.list_tasks(database, wanted=parse(text), limit=limit, after=after, **more)
        assert len(page.rows) <= limit
        assert page.is_partial <= (len(page.rows) < limit and page.next_cursor is not None)
        assert len(found) < 1000, "it comes to no end"
        found.append(page)
        after = page.next_cursor
    return found


async def listed(database: Database | Session, text: str, **more: Any) -> list[TaskSummary]:
    """Return all rows of a list: each task is on it once."""
    found = [row for page in await pages(database, text, **more) for row in page.rows]
    assert len(set(ids(found))) == len(found)
    return found


def ids(rows: Sequence[TaskSummary | DeadLetter | dict[str, Any]]) -> list[str]:
    """Return the ids of rows, in their order."""
    return [row["id"] if isinstance(row, dict) else row.id for row in rows]
