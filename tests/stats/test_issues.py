"""Issues: what is dead or failed, grouped as a person would, and what people say of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from grns.errors import ConflictError, InvalidInputError, NotFoundError
from grns.maintenance.reaper import reap
from grns.model.outcome import Outcome, Verb
from grns.postgres.database import Database
from grns.stats import issues as issue
from grns.stats.issues import IssueDetail
from grns.worker import registry as agent
from grns.worker.finishes import Finish, Finishes
from tests.support.aggregators import begin_here, count_all
from tests.support.harness import submit
from tests.support.store import ACTOR, FINGERPRINT, WORKER, claim, fetch, finish, place, redrive, release


@pytest.fixture(autouse=True)
async def begun(shared: Database) -> None:
    """Let what is counted here begin here."""
    await begin_here(shared)


async def fails(
    database: Database, fingerprint: str, *, message: str = "no such thing", **fields: Any
) -> str:
    """Let a new task fail, and return its id."""
    held = await claim(database, (await submit(database, **fields)).id)
    error = json.dumps({"class": "ValueError", "message": message})
    said = Outcome(Verb.FAIL, error=error, error_class="ValueError", fingerprint=fingerprint)
    await Finishes(database, batch_limit=1).finish(Finish(held, said, uuid4()))
    return held.id


async def read(database: Database, fingerprint: str = FINGERPRINT) -> IssueDetail:
    """Count to the end of the log, and read an issue."""
    await count_all(database)
    return await issue.read_issue(database, workspace="default", fingerprint=fingerprint)


async def change(database: Database, fingerprint: str = FINGERPRINT, **said: Any) -> IssueDetail:
    """Say something of an issue."""
    return await issue.change_issue(
        database, workspace="default", fingerprint=fingerprint, actor=ACTOR, **said
    )


async def told(database: Database) -> list[dict[str, Any]]:
    """Return what the log tells of issues, with who has changed them."""
    rows = await fetch(
        database, "select actor, payload from grns.events where kind = 'evt.issue.changed' order by seq"
    )
    return [{**json.loads(row["payload"]), "by": row["actor"]} for row in rows]


# ---------------------------------------------------------------- what is counted


async def test_what_ends_dead_or_failed_opens_an_issue(shared: Database) -> None:
    first = (await place(shared, "failed")).id
    last = (await place(shared, "dead")).id
    found = await read(shared)
    assert (found.error_class, found.message) == ("ValueError", "no such thing")
    assert (found.total, found.open_count, found.state, found.version) == (2, 2, "new", 1)
    assert found.sample_task_id == last != first
    assert found.first_seen <= found.last_seen
    assert found.trend == [0] * 23 + [2] or found.trend[-2:] == [2, 0]
    assert found.facets == {
        "task_type": {"noop": 2}, "worker": {"worker-one": 2}, "version": {}, "error": {"no such thing": 2}
    }  # fmt: skip
    (event,) = await told(shared)
    assert (event["fingerprint"], event["state"], event["was"], event["by"]) == (
        FINGERPRINT,
        "new",
        None,
        None,
    )


@pytest.mark.parametrize("road", ["running_last_late", "running_spared"])
async def test_what_no_handler_has_ended_has_an_issue_too(shared: Database, road: str) -> None:
    """Whose lease is over, and what was given back too often: all of one type are one issue."""
    held = await place(shared, road)
    if road == "running_spared":
        await release(shared, held)
    else:
        await reap(shared, 10, None)
    await count_all(shared)
    (row,) = (await issue.list_issues(shared, workspace="default", limit=10)).rows
    assert row.error_class == ("released" if road == "running_spared" else "lease_expired")
    assert (row.total, row.sample_task_id) == (1, held.id)


async def test_what_is_opened_again_is_open_no_more(shared: Database) -> None:
    ids = [await fails(shared, FINGERPRINT) for _ in range(3)]
    assert (await read(shared)).open_count == 3
    await redrive(shared, *ids[:2])
    found = await read(shared)
    assert (found.total, found.open_count) == (3, 1)
    await finish(shared, await claim(shared, ids[0]), Verb.FAIL)
    found = await read(shared)
    assert (found.total, found.open_count) == (4, 2)


async def test_what_was_cancelled_and_is_opened_again_belongs_to_no_issue(shared: Database) -> None:
    """Though it has the fingerprint of an attempt that had failed before."""
    await fails(shared, FINGERPRINT)
    cancelled = (await place(shared, "cancelled_late")).id
    await redrive(shared, cancelled)
    assert (await read(shared)).open_count == 1


async def test_a_discarded_task_is_open_no_more(shared: Database) -> None:
    task_id = await fails(shared, FINGERPRINT)
    await fails(shared, FINGERPRINT)
    await fetch(
        shared,
        "insert into grns.events (version, workspace, task_id, kind, trace_id, payload)"
        " values (3, 'default', $1, 'evt.task.discarded', 'trace', $2)",
        task_id, json.dumps({"fingerprint": FINGERPRINT}),
    )  # fmt: skip
    found = await read(shared)
    assert (found.total, found.open_count) == (2, 1)


async def test_one_that_was_forgotten_does_not_come_back_with_what_is_opened_again(shared: Database) -> None:
    task_id = await fails(shared, FINGERPRINT)
    await count_all(shared)
    await fetch(shared, "delete from grns.issues")
    await redrive(shared, task_id)
    await count_all(shared)
    assert not await fetch(shared, "select from grns.issues")


async def test_each_workspace_has_its_own(shared: Database) -> None:
    await place(shared, "failed")
    await fetch(shared, "update grns.events set workspace = 'acme'")
    await place(shared, "failed")
    await count_all(shared)
    for workspace in ("default", "acme"):
        found = await issue.read_issue(shared, workspace=workspace, fingerprint=FINGERPRINT)
        assert found.total == 1
    with pytest.raises(NotFoundError):
        await issue.read_issue(shared, workspace="other", fingerprint=FINGERPRINT)


@pytest.mark.parametrize("rows", [1, 5000], ids=["one_by_one", "at_once"])
async def test_of_each_facet_so_many_values_are_told_apart(shared: Database, rows: int) -> None:
    await agent.register(shared, WORKER, concurrency=1, version="1.2.3")
    for number in range(23):
        for _ in range(2 if number < 5 else 1):
            await fails(shared, FINGERPRINT, message=f"message {number}")
    await count_all(shared, rows)
    await fails(shared, FINGERPRINT, message="message 99")
    await fails(shared, FINGERPRINT, message="message 3")
    facets = (await read(shared)).facets
    assert facets["version"] == {"1.2.3": 30}
    messages = facets["error"]
    assert sum(messages.values()) == 30
    assert len(messages) == 21
    assert messages["other"] == 4
    assert messages["message 3"] == 3
    assert next(iter(messages)) == "other", "the most frequent first"


async def test_how_often_it_was_seen_is_known_by_the_hour(shared: Database) -> None:
    for _ in range(3):
        await fails(shared, FINGERPRINT)
    await fetch(
        shared,
        "with late as (select seq, row_number() over (order by seq) as n from grns.events"
        " where kind = 'evt.task.failed')"
        " update grns.events e set created_at = now() - l.n * interval '2 hours'"
        " from late l where l.seq = e.seq",
    )
    found = await read(shared)
    trend = found.trend
    assert len(trend) == 24
    assert [place for place, count in enumerate(trend) if count] in ([17, 19, 21], [16, 18, 20])
    assert found.last_seen - found.first_seen == timedelta(hours=4)


# ---------------------------------------------------------------- what people say of it


async def test_a_resolved_one_that_is_seen_again_has_regressed(shared: Database) -> None:
    await fails(shared, FINGERPRINT)
    await read(shared)
    await change(shared, state="resolved")
    await fails(shared, FINGERPRINT)
    found = await read(shared)
    assert (found.state, found.state_by, found.version) == ("regressed", None, 3)
    await fails(shared, FINGERPRINT)
    assert (await read(shared)).version == 3, "and that once"
    assert [(one["state"], one["was"], one["by"]) for one in await told(shared)] == [
        ("new", None, None), ("resolved", "new", ACTOR), ("regressed", "resolved", None)
    ]  # fmt: skip


async def test_what_had_happened_before_it_was_resolved_brings_it_not_back(shared: Database) -> None:
    """It was counted later."""
    await fails(shared, FINGERPRINT)
    await read(shared)
    await fails(shared, FINGERPRINT)
    await change(shared, state="resolved")
    found = await read(shared)
    assert (found.state, found.total, found.version) == ("resolved", 2, 2)


@pytest.mark.parametrize("state", ["acknowledged", "ignored"])
async def test_other_states_stay_however_often_it_is_seen(shared: Database, state: str) -> None:
    await fails(shared, FINGERPRINT)
    await read(shared)
    await change(shared, state=state)
    await fails(shared, FINGERPRINT)
    found = await read(shared)
    assert (found.state, found.state_by, found.open_count) == (state, ACTOR, 2)


async def test_what_is_not_said_stays_as_it_is(shared: Database) -> None:
    await fails(shared, FINGERPRINT)
    await read(shared)
    until = datetime(2030, 1, 1, tzinfo=UTC)
    await change(shared, note="look at the proxy", owner="ann", snoozed_until=until)
    found = await change(shared, state="acknowledged", owner=None)
    assert (found.state, found.note, found.owner, found.snoozed_until, found.version) == (
        "acknowledged", "look at the proxy", None, until, 3,
    )  # fmt: skip
    last = (await told(shared))[-1]
    assert (last["note"], last["owner"], last["actor"], last["by"]) == (
        "look at the proxy", None, ACTOR, ACTOR,
    )  # fmt: skip


async def test_who_has_seen_an_older_version_is_told(shared: Database) -> None:
    await fails(shared, FINGERPRINT)
    await read(shared)
    await change(shared, version=1, note="mine")
    with pytest.raises(ConflictError, match="version 2"):
        await change(shared, version=1, note="yours")
    await fails(shared, FINGERPRINT)
    assert (await read(shared)).version == 2, "that it was seen again is no change"
    assert (await change(shared, version=2, note="yours")).note == "yours"
    assert len(await told(shared)) == 3


@pytest.mark.parametrize(
    "said",
    [
        {}, {"state": "regressed"}, {"state": "gone"}, {"note": "x" * 4001}, {"owner": "a\x00b"},
        {"note": "\ud800"}, {"snoozed_until": datetime(2030, 1, 1)},  # noqa: DTZ001 - it is to be refused
    ],
    ids=["nothing", "of_the_counter", "unknown", "long", "nul", "surrogate", "without_zone"],
)  # fmt: skip
async def test_what_cannot_be_said_is_refused(shared: Database, said: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError) as raised:
        await change(shared, **said)
    assert raised.value.code == "bad_issue"


async def test_nothing_can_be_said_of_one_that_is_not_there(shared: Database) -> None:
    with pytest.raises(NotFoundError):
        await change(shared, state="resolved")


# ---------------------------------------------------------------- lists


@pytest.fixture
async def many(shared: Database) -> list[str]:
    """Nine issues, the latest first, in three states."""
    prints = [f"{number:016x}" for number in range(9)]
    for fingerprint in prints:
        await fails(shared, fingerprint)
    await count_all(shared)
    # Two at a time were seen last in one moment.
    await fetch(
        shared,
        "update grns.issues i set last_seen = now() - n.number / 2 * interval '1 min',"
        " state = (array['new', 'ignored', 'resolved'])[n.number % 3 + 1]"
        " from unnest($1::text[]) with ordinality as p (fingerprint, place),"
        " lateral (select (p.place - 1)::integer as number) as n where i.fingerprint = p.fingerprint",
        prints,
    )
    return sorted(prints, key=lambda one: (int(one, 16) // 2, -int(one, 16)))


async def listed(database: Database, limit: int, **wanted: Any) -> list[str]:
    """Turn all pages of a list, and return its fingerprints."""
    found: list[str] = []
    after = None
    while True:
        page = await issue.list_issues(database, workspace="default", limit=limit, after=after, **wanted)
        assert len(page.rows) <= limit
        found += [row.fingerprint for row in page.rows]
        if (after := page.next_cursor) is None:
            return found


@pytest.mark.parametrize("limit", [1, 2, 4, 9, 50])
async def test_they_are_listed_page_by_page_the_latest_first(
    shared: Database, many: list[str], limit: int
) -> None:
    assert await listed(shared, limit) == many
    assert await listed(shared, limit, state="ignored") == [one for one in many if int(one, 16) % 3 == 1]
    assert await listed(shared, limit, state=["new", "resolved"]) == [
        one for one in many if int(one, 16) % 3 != 1
    ]
    assert await listed(shared, limit, state="regressed") == []


async def test_a_cursor_that_nobody_was_given_is_refused(shared: Database) -> None:
    with pytest.raises(InvalidInputError) as raised:
        await issue.list_issues(shared, workspace="default", limit=5, after="nonsense")
    assert raised.value.code == "bad_cursor"
