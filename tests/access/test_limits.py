"""Limits between workspaces: what one workspace asks for, holds or leaves open does not lock others out."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx2
import pytest

from grns.access import keys as keys
from grns.access.keys import create_key, revoke_key
from grns.access.limiter import WorkspaceLimiter
from grns.access.principals import Principal
from grns.api import event_tail as tail
from grns.api import key_watch, stream, task
from grns.api.route import PREFIX
from grns.api.stream import EVENT_STREAM
from grns.errors import ConflictError, RateLimitedError
from grns.gateway import claims as agent_claims
from grns.postgres.database import Database, run
from grns.postgres.statements import statement
from grns.worker import registry as agent
from grns.worker.claims import Claimant
from tests.support import api as kit
from tests.support.api import OURS, THEIRS, Door, good, problem_of
from tests.support.harness import eventually, submit
from tests.support.store import ACTOR, deleted, fetch, is_waiting_for_lock, kinds_of, row_of, stranger

CLAIM = f"{PREFIX}/queue/claim"
LIMIT_SECONDS = 20.0


def of(workspace: str | None, number: int = 0) -> Principal:
    """Return who holds a key of a workspace."""
    return Principal(f"key:{workspace}{number}", workspace, frozenset())


def taken(places: WorkspaceLimiter, workspace: str | None) -> int:
    """Take places with one key after another until none is given; return how many."""
    for number in range(places.most + 1):
        try:
            places.take(of(workspace, number))
        except RateLimitedError:
            return number
    pytest.fail("all places were given away")


# ---------------------------------------------------------------- M5: shares of places


def test_places_alone_a_workspace_gets_half_of_them() -> None:
    """M5: keys that a workspace makes at will get it no more."""
    places = WorkspaceLimiter("claims", most=12, most_of_one=100)
    assert taken(places, OURS) == 6
    assert taken(places, THEIRS) == 3
    assert taken(places, "third") == 2
    assert taken(places, "fourth") == 1


def test_places_of_one_key_are_bounded() -> None:
    """M5: other keys of the same workspace keep some, too."""
    places = WorkspaceLimiter("claims", most=12, most_of_one=2)
    places.take(of(OURS))
    with places.place(of(OURS)), pytest.raises(RateLimitedError):
        places.take(of(OURS))
    places.take(of(OURS))
    places.take(of(OURS, 1))


def test_places_given_back_are_free_again() -> None:
    """M5: nothing of a workspace that holds no place is kept."""
    places = WorkspaceLimiter("claims", most=2, most_of_one=2)
    for _ in range(3):
        with places.place(of(OURS)), pytest.raises(RateLimitedError):
            places.take(of(OURS, 1))
    assert not places._of_actor
    assert not places._of_share


async def waiting(door: Door, workspace: str, count: int) -> list[asyncio.Task[httpx2.Response]]:
    """Have as many claims of a workspace wait, each with a key of its own."""
    visitors = [door.visitor(await door.key("work", workspace=workspace)) for _ in range(count)]
    order = {"task_types": ["noop"], "wait_seconds": 60}
    asked = [asyncio.create_task(one.post(CLAIM, json=order)) for one in visitors]

    async def has_begun() -> bool:
        waits = door.context.agent_claims.waiting(workspace).get("worker", 0)
        return waits + sum(one.done() for one in asked) == count

    await eventually(has_begun)
    return asked


async def test_waiting_claims_of_one_workspace_with_many_keys_leave_places_for_others(
    door: Door, shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M5: an admin of one workspace made keys until all other agents were refused."""
    monkeypatch.setattr(agent_claims, "_MOST_WAITING", 8)
    small = Door(shared)
    ours = await waiting(small, OURS, 9)
    refused = [one.result() for one in ours if one.done()]
    assert [problem_of(one, 429) for one in refused] == ["too_many_requests"] * 5
    theirs = await waiting(small, THEIRS, 1)
    assert not theirs[0].done()
    small.context.agent_claims.stop()
    await asyncio.gather(*ours, *theirs)
    await small.context.agent_claims.close()


async def test_event_streams_of_one_workspace_with_many_keys_leave_places_for_others(
    door: Door, shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M5: the same for event streams."""
    monkeypatch.setattr(tail, "_MOST_READERS", 4)
    small = Door(shared)
    async with kit.serving(small.context, small.api) as server:
        statuses = []
        async with httpx2.AsyncClient(base_url=server.url, timeout=LIMIT_SECONDS) as visitor:
            for workspace in (OURS, OURS, OURS, THEIRS):
                shown = await door.key("read", workspace=workspace)
                headers = {"Accept": EVENT_STREAM, "Authorization": f"Bearer {shown}"}
                asked = visitor.build_request("GET", f"{PREFIX}/events", headers=headers)
                statuses.append((await visitor.send(asked, stream=True)).status_code)
            small.context.stopping.set()
    assert statuses == [200, 200, 429, 200]


async def test_create_key_beyond_the_most_of_a_workspace_is_refused(
    door: Door, shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M5: live keys count; revoked and expired ones do not, nor do those of others."""
    monkeypatch.setattr(keys, "MOST_KEYS", 3)
    said: dict[str, Any] = {"scopes": ["read"], "actor": ACTOR}
    await create_key(shared, workspace=OURS, name="gone", expires_seconds=1e-6, **said)
    first, _ = await create_key(shared, workspace=OURS, name="first", **said)
    for name in ("second", "third"):
        await create_key(shared, workspace=OURS, name=name, **said)
    with pytest.raises(ConflictError, match="workspace acme has 3 keys"):
        await create_key(shared, workspace=OURS, name="fourth", **said)
    for workspace in (THEIRS, None):
        await create_key(shared, workspace=workspace, name="theirs", **said)
    await revoke_key(shared, first.id, workspace=OURS, actor=ACTOR)
    shown = await create_key(shared, workspace=OURS, name="fourth", scopes=["admin"], actor=ACTOR)
    async with door.visitor(shown[0].reveal()) as visitor:
        answer = await visitor.post(f"{PREFIX}/keys", json={"name": "fifth", "scopes": ["read"]})
        assert problem_of(answer, 409) == "conflict"


# ---------------------------------------------------------------- L2: what is open for a key ends with it


@pytest.fixture
def watchful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at keys more often."""
    monkeypatch.setattr(key_watch, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(stream, "_PAUSE_SECONDS", 0.02)


@pytest.mark.usefixtures("watchful")
@pytest.mark.parametrize("how", ["revoked_at = now()", "expires_at = now() - interval '1 s'"])
async def test_event_stream_of_a_key_that_has_ended_ends(door: Door, shared: Database, how: str) -> None:
    """L2: it went on for up to ten minutes."""
    ended, good_one = await door.key("read"), await door.key("read")
    async with (
        kit.serving(door.context, door.api) as server,
        httpx2.AsyncClient(base_url=server.url, timeout=LIMIT_SECONDS) as visitor,
    ):
        answers = []
        for shown in (ended, good_one):
            headers = {"Accept": EVENT_STREAM, "Authorization": f"Bearer {shown}"}
            asked = visitor.build_request("GET", f"{PREFIX}/events", headers=headers)
            answers.append(await visitor.send(asked, stream=True))
        await fetch(shared, f"update grns.api_keys set {how} where id = $1", ended.split("_")[1])
        async with asyncio.timeout(LIMIT_SECONDS):
            text = "".join([part async for part in answers[0].aiter_text()])
        assert text.endswith(": the API key is not valid any more\n\n")
        again = await visitor.get(f"{PREFIX}/events", headers={"Authorization": f"Bearer {ended}"})
        assert problem_of(again, 401) == "denied"
        assert door.context.tail.readers._of_actor.total() == 1, "the other stream goes on"
        door.context.stopping.set()


@pytest.mark.usefixtures("watchful")
async def test_waiting_claim_of_a_revoked_key_is_denied(door: Door, shared: Database) -> None:
    """L2: it waited on for up to a minute."""
    shown = await door.key("work")
    async with door.visitor(shown) as visitor:
        order = {"task_types": ["noop"], "wait_seconds": 60}
        asked = asyncio.create_task(visitor.post(CLAIM, json=order))
        await eventually(lambda: _waits(door))
        await revoke_key(shared, shown.split("_")[1], workspace=OURS, actor=ACTOR)
        answer = await asyncio.wait_for(asked, LIMIT_SECONDS)
    assert problem_of(answer, 401) == "denied"
    assert door.context.key_watch._running is None


async def test_waiting_claim_of_a_key_revoked_meanwhile_gets_no_task(door: Door, shared: Database) -> None:
    """L2: also before the watch has looked. What was claimed is given back, and no attempt is spent."""
    shown = await door.key("work")
    async with door.visitor(shown) as visitor, stranger(shared) as connection:
        task_id = (await submit(shared, workspace=OURS)).id
        await connection.execute("lock table grns.tasks in share row exclusive mode")
        order = {"task_types": ["noop"], "wait_seconds": 60}
        asked = asyncio.create_task(visitor.post(CLAIM, json=order))
        await eventually(lambda: is_waiting_for_lock(shared))
        await asyncio.sleep(agent_claims._LEAST_WAIT_SECONDS)  # no claim that short asks for its key again
        await revoke_key(shared, shown.split("_")[1], workspace=OURS, actor=ACTOR)
        await connection.execute("rollback")
        answer = await asyncio.wait_for(asked, LIMIT_SECONDS)
    assert problem_of(answer, 401) == "denied"

    async def is_back() -> bool:
        return bool((await row_of(shared, task_id))["status"] == "queued")

    await eventually(is_back)
    assert (await row_of(shared, task_id))["uncounted_attempts"] == 1
    assert "evt.task.claimed" in await kinds_of(shared, task_id)


async def _waits(door: Door) -> bool:
    return bool(door.context.agent_claims.waiting(OURS))


# ---------------------------------------------------------------- M6: agents over HTTP in the list of workers


def http_agent(number: int, workspace: str = OURS, lease_seconds: float = 60.0) -> Claimant:
    """Return an agent over HTTP."""
    return Claimant(f"worker-{workspace}-{number}", workspace, "worker", {"noop": None}, lease_seconds)


async def register(database: Database, who: Claimant, **said: Any) -> None:
    """Make an agent over HTTP known."""
    fields = {"concurrency": 1, "version": "1", "host": "http", "pid": agent.NO_PROCESS, **said}
    await agent.register(database, who, **fields)


async def known(database: Database, workspace: str = OURS) -> list[str]:
    """Return the agents that are known."""
    statement = "select agent_id from grns.workers where workspace = $1 order by agent_id"
    return [row["agent_id"] for row in await fetch(database, statement, workspace)]


async def silent(database: Database, agent_id: str, seconds: float) -> None:
    """Let nothing have been heard of a worker for a while."""
    said = "update grns.workers set last_seen_at = now() - $2 * interval '1 s' where agent_id = $1"
    await fetch(database, said, agent_id, seconds)


async def test_register_worker_beyond_the_most_replaces_the_one_silent_for_longest(
    door: Door, shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M6: a key that invented a name for each claim filled the table; processes of its workspace stay."""
    monkeypatch.setattr(agent, "MOST_OVER_HTTP", 3)
    await register(shared, http_agent(99), pid=1)
    await silent(shared, http_agent(99).agent_id, 3600.0)
    await register(shared, http_agent(0, THEIRS))
    for number in range(3):
        await register(shared, http_agent(number))
        await silent(shared, http_agent(number).agent_id, 10.0 - number)
    await silent(shared, http_agent(1).agent_id, 60.0)
    await register(shared, http_agent(3))
    await register(shared, http_agent(3))
    assert await known(shared) == [http_agent(number).agent_id for number in (0, 2, 3, 99)]
    assert await known(shared, THEIRS) == [http_agent(0, THEIRS).agent_id]
    async with door.visitor(await door.key("work")) as visitor:
        for number in range(10):
            order = {"task_types": ["noop"], "wait_seconds": 0, "agent": f"name-{number}"}
            assert (await visitor.post(CLAIM, json=order)).status_code == 204
    assert len(await known(shared)) == 3 + 1


async def test_agent_that_was_forgotten_is_listed_again_with_its_next_claim(door: Door) -> None:
    """M6: also where the process has noted it before."""
    order = {"task_types": ["noop"], "wait_seconds": 0}
    async with door.visitor(await door.key("work")) as visitor:
        await visitor.post(CLAIM, json=order)
        (listed,) = await known(door.database)
        await fetch(door.database, "delete from grns.workers")
        for seen in door.context.agent_claims._registry._seen.values():
            seen.noted_at = -1e9
        await visitor.post(CLAIM, json=order)
    assert await known(door.database) == [listed]


async def test_delete_http_workers_forgets_silent_workers_over_http_after_an_hour(shared: Database) -> None:
    """M6: they were kept for a month; not within their lease, and a page at a time."""
    await fetch(shared, "delete from grns.workers")
    for number in range(5):
        await register(shared, http_agent(number))
        await silent(shared, http_agent(number).agent_id, 3700.0)
    await silent(shared, http_agent(4).agent_id, 3500.0)
    for number, said in ((5, {"pid": 1}), (6, {})):
        await register(shared, http_agent(number, lease_seconds=7200.0), **said)
        await silent(shared, http_agent(number).agent_id, 7000.0)
    assert await deleted(shared, "delete_http_workers", 3, 3600.0) == 3
    assert await deleted(shared, "delete_http_workers", 3, 3600.0) == 1
    assert await deleted(shared, "delete_old_workers", 3, 30 * 86_400.0) == 0
    assert await known(shared) == [http_agent(number).agent_id for number in (4, 5, 6)]


async def rows_read(database: Database, name: str, *arguments: Any, is_tenant: bool = False) -> int:
    """Run a statement as an analyzed plan; return how many rows of tables and indexes it has read."""
    async with database.connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        if is_tenant:
            await run(connection, "become_tenant", OURS)
        said = f"explain (analyze, format json) {statement(name)}"
        (found,) = await connection.fetch(said, *arguments)
        await transaction.rollback()

    def counted(node: dict[str, Any]) -> int:
        inner = sum(counted(one) for one in node.get("Plans", ()))
        if "Relation Name" not in node or node["Node Type"] == "ModifyTable":
            return inner
        removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
        touched: int = round((node["Actual Rows"] + removed) * node["Actual Loops"])
        return inner + touched

    plan: dict[str, Any] = json.loads(found[0])[0]["Plan"]
    return counted(plan)


async def test_tick_reaper_reads_as_many_rows_however_many_workers_over_http_there_are(
    shared: Database,
) -> None:
    """M6: it read all of a day, every two seconds."""
    await register(shared, http_agent(0))
    few = await rows_read(shared, "tick_reaper", 15.0, 2.0, 60.0)
    await fetch(
        shared,
        "insert into grns.workers (agent_id, workspace, agent_type, host, pid, version, concurrency,"
        " task_types, lease_seconds) select 'many-' || n, 'acme', 'worker', 'h', 0, '1', 1, '{}', 1"
        " from generate_series(1, 5000) as n",
    )
    assert await rows_read(shared, "tick_reaper", 15.0, 2.0, 60.0) <= few
    await fetch(shared, "delete from grns.workers")


# ---------------------------------------------------------------- M8: attempts of a task


async def history(database: Database, task_id: str, kind: str, attempt: int, count: int = 1) -> None:
    """Write rows into the log about a task of ours."""
    await fetch(
        database,
        "insert into grns.events (version, workspace, task_id, kind, attempt, trace_id, payload)"
        """ select 1, 'acme', $1, $2, $3, 'trace', '{"agent_id": "a", "reason": "r"}'"""
        " from generate_series(1, $4::integer)",
        task_id,
        kind,
        attempt,
        count,
    )


@pytest.mark.parametrize("is_tenant", [False, True], ids=["owner", "tenant"])
async def test_read_attempts_reads_as_many_rows_however_much_progress_was_told(
    door: Door, shared: Database, is_tenant: bool
) -> None:
    """M8: each view of a task read all events of it, 9 s for one day of progress."""
    task_id = (await submit(shared, workspace=OURS)).id
    await history(shared, task_id, "evt.task.claimed", 1)
    asked = ("read_attempts", task_id, OURS, None, 1001)
    few = await rows_read(shared, *asked, is_tenant=is_tenant)
    await history(shared, task_id, "evt.attempt.progressed", 1, 20_000)
    assert 2 <= await rows_read(shared, *asked, is_tenant=is_tenant) == few
    await history(shared, task_id, "evt.task.completed", 1)
    async with door.visitor(await door.key("read")) as visitor:
        (attempt,) = good(await visitor.get(f"{PREFIX}/tasks/{task_id}/attempts"))["items"]
    assert (attempt["attempt"], attempt["outcome"]) == (1, "succeeded")


async def test_list_attempts_of_many_has_the_latest_and_a_cursor_to_those_before(
    door: Door, shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M8: an answer is told from a bounded number of transitions, and has each attempt whole."""
    monkeypatch.setattr(task, "_TRANSITIONS_AT_ONCE", 5)
    task_id = (await submit(shared, workspace=OURS)).id
    for number in range(1, 8):
        await history(shared, task_id, "evt.task.claimed", number)
        await history(shared, task_id, "evt.task.released", number)
    found: list[tuple[int, str]] = []
    cursor: str | None = None
    async with door.visitor(await door.key("read")) as visitor:
        for _ in range(9):
            params: dict[str, str] = {} if cursor is None else {"cursor": cursor}
            page = good(await visitor.get(f"{PREFIX}/tasks/{task_id}/attempts", params=params))
            found = [(one["attempt"], one["outcome"]) for one in page["items"]] + found
            cursor = page["next_cursor"]
            if cursor is None:
                break
    assert found == [(number, "released") for number in range(1, 8)]
