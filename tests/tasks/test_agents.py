"""Agents by name: their lives, what their heartbeats tell, and what they are told."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from grns.client.client import Client
from grns.errors import ConflictError, InvalidInputError, NotFoundError, RateLimitedError
from grns.gateway import registry as over_http
from grns.model.agent import AgentHeartbeat, AgentOrder, NamedHeartbeat
from grns.model.outcome import Verb
from grns.postgres.database import Database, run
from grns.tasks import agents as agents_module
from grns.tasks.agents import Heartbeats
from grns.telemetry.signal import Signal
from grns.telemetry.task_signals import AgentOrdered
from grns.worker import registry
from grns.worker.claims import Claimant
from grns.worker.order_watch import OrderWatch
from grns.worker.slots import Slots
from tests.support.harness import submit
from tests.support.store import WORKER, claim, fetch, finish, row_of

CODER = replace(WORKER, agent_id="worker-1", agent="coder")
BATCH = 200


async def begin(database: Database, who: Claimant = CODER) -> None:
    """Begin a life."""
    await registry.register(database, who, concurrency=2, version="1")


async def silent(database: Database, seconds: float, name: str = "coder") -> None:
    """Let an agent have been silent for so long."""
    await fetch(
        database,
        "update grns.agents set last_seen_at = now() - $2 * interval '1 second' where name = $1",
        name,
        seconds,
    )


async def told(database: Database) -> list[str]:
    """Let the reaper look; return what the log has of agents' presence, oldest first."""
    await database.run("note_presence", BATCH)
    events = ("started", "stopped", "stale", "dead", "recovered")
    rows = await fetch(database, "select kind from grns.events where kind like 'evt.agent.%' order by seq")
    found = [row["kind"].rpartition(".")[2] for row in rows]
    return [one for one in found if one in events]


async def test_what_is_registered_is_shown(client: Client) -> None:
    made = await client.agents.put(
        "coder", pool="worker", title="The coder", model="small-1", capabilities=["python", "sql"],
        max_concurrent_tasks=2, heartbeat_interval_seconds=30, stale_threshold_seconds=180,
        metadata={"team": 7},
    )  # fmt: skip
    assert made == await client.agents.get("coder")
    assert (made.health, made.status, made.agent_id, made.metadata) == ("absent", "idle", None, {"team": 7})
    assert (made.capabilities, made.max_concurrent_tasks) == (["python", "sql"], 2)
    changed = await client.agents.put("coder", pool="worker")
    assert (changed.title, changed.capabilities, changed.created_at) == (None, [], made.created_at)


async def test_agents_are_listed_by_name_and_filtered(client: Client, shared: Database) -> None:
    for number in range(5):
        await client.agents.put(f"a{number}", pool="even" if number % 2 == 0 else "odd")
    await client.agents.put("b", pool="odd", capabilities=["sql"])
    await begin(shared, replace(CODER, agent="a1", agent_type="odd"))
    page = await client.agents.list(limit=4)
    rest = await client.agents.list(limit=4, after=page.next_cursor)
    assert [one.name for one in (*page.rows, *rest.rows)] == ["a0", "a1", "a2", "a3", "a4", "b"]

    async def found(**fields: Any) -> list[str]:
        return [one.name for one in (await client.agents.list(**fields)).rows]

    assert await found(pool="odd") == ["a1", "a3", "b"]
    assert await found(health="healthy") == ["a1"]
    assert await found(capability="sql") == ["b"]
    for wrong in ({"health": "fine"}, {"limit": 0}, {"after": "!"}):
        with pytest.raises(InvalidInputError):
            await client.agents.list(**wrong)


@pytest.mark.parametrize(
    "fields",
    [
        {"pool": "a b"}, {"pool": "instance"}, {"capabilities": ["a b"]}, {"capabilities": ["a"] * 51},
        {"max_concurrent_tasks": 0}, {"max_concurrent_tasks": True}, {"title": "x\n"}, {"title": "x" * 256},
        {"heartbeat_interval_seconds": 40, "stale_threshold_seconds": 100}, {"metadata": {"a": "x" * 17_000}},
        {"name": "x"}, {"nonsense": 1},
    ],
    ids=str,
)  # fmt: skip
async def test_what_cannot_be_registered(client: Client, shared: Database, fields: dict[str, Any]) -> None:
    said = {"pool": "worker", **fields}
    with pytest.raises((InvalidInputError, TypeError)):
        await client.agents.put("coder", **said)
    assert await fetch(shared, "select from grns.agents") == []


async def test_a_workspace_has_so_many_agents_at_most(
    client: Client, shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents_module, "MOST_AGENTS", 1)
    monkeypatch.setattr(registry, "MOST_AGENTS", 1)
    await client.agents.put("first", pool="worker")
    with pytest.raises(RateLimitedError):
        await client.agents.put("second", pool="worker")
    await client.agents.put("first", pool="worker", model="other")
    await begin(shared)
    assert [one.name for one in (await client.agents.list()).rows] == ["first"]
    assert await fetch(shared, "select from grns.workers") != [], "it works all the same"


async def test_a_worker_with_a_name_is_the_life_of_an_agent(client: Client, shared: Database) -> None:
    await begin(shared)
    agent = await client.agents.get("coder")
    assert (agent.health, agent.agent_type, agent.agent_id, agent.running) == (
        "healthy",
        "worker",
        "worker-1",
        0,
    )
    touched = await registry.touch(shared, "worker-1", idle_seconds=0, running=2, usage=(64.5, 12.0))
    assert (touched.is_known, touched.order) == (True, None)
    agent = await client.agents.get("coder")
    assert (agent.status, agent.running, agent.memory_mb, agent.cpu_percent) == ("working", 2, 64.5, 12.0)
    await registry.stop(shared, "worker-1")
    agent = await client.agents.get("coder")
    assert (agent.health, agent.running, agent.next_expected_at) == ("stopped", 0, None)


async def test_an_http_worker_is_an_agent_only_if_that_is_registered(
    client: Client, shared: Database
) -> None:
    async def registered() -> None:
        await registry.register(shared, CODER, concurrency=1, version="", host="laptop", pid=0)

    await registered()
    assert (await client.agents.list()).rows == []
    await client.agents.put("coder", pool="worker")
    await registry.touch(shared, "worker-1", idle_seconds=0, running=1)
    agent = await client.agents.get("coder")
    assert (agent.health, agent.agent_id, agent.running) == ("healthy", "worker-1", 1)
    await registered()
    assert (await client.agents.get("coder")).started_at == agent.started_at


async def test_a_claim_after_the_last_word_begins_another_life(
    client: Client, shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(over_http, "_NOTE_SECONDS", 0.0)
    await client.agents.put("coder", pool="worker")
    known = over_http.WorkerRegistry(shared, emit=list[Signal]().append)
    await known.register(CODER, name="coder", version="")
    await client.agents.terminate("coder")
    assert await known.register(CODER, name="coder", version="") == "drain"
    beats = Heartbeats(shared)
    await beats.beat("default", "coder", AgentHeartbeat(status="stopped"), life=CODER.agent_id)
    assert (await client.agents.get("coder")).health == "stopped"
    assert await known.register(CODER, name="coder", version="") is None
    agent = await client.agents.get("coder")
    assert (agent.health, agent.order) == ("healthy", None)


async def test_an_earlier_life_does_not_speak_for_the_agent(client: Client, shared: Database) -> None:
    await begin(shared)
    await begin(shared, replace(CODER, agent_id="worker-2"))
    await silent(shared, 200)
    await registry.touch(shared, "worker-1", idle_seconds=0, running=1)
    assert (await client.agents.get("coder")).health == "stale"
    await registry.stop(shared, "worker-1")
    assert (await client.agents.get("coder")).health == "stale"
    await registry.touch(shared, "worker-2", idle_seconds=0, running=1)
    assert (await client.agents.get("coder")).health == "healthy"


@pytest.mark.parametrize(
    ("seconds", "health"),
    [
        (0, "healthy"),
        (29, "healthy"),
        (31, "degraded"),
        (99, "degraded"),
        (101, "stale"),
        (299, "stale"),
        (301, "dead"),
    ],
)
async def test_health_is_the_age_of_the_last_heartbeat(
    client: Client, shared: Database, seconds: float, health: str
) -> None:
    await begin(shared)
    await silent(shared, seconds)
    assert (await client.agents.get("coder")).health == health
    assert [one.name for one in (await client.agents.list(health=health)).rows] == ["coder"]


async def test_the_log_tells_what_becomes_of_an_agent(shared: Database) -> None:
    await begin(shared)
    assert await told(shared) == ["started"]
    await silent(shared, 50)
    assert await told(shared) == ["started"], "degraded is no event"
    await silent(shared, 150)
    assert await told(shared) == ["started", "stale"]
    await registry.touch(shared, "worker-1", idle_seconds=0)
    assert await told(shared) == ["started", "stale", "recovered"]
    await silent(shared, 500)
    assert await told(shared) == ["started", "stale", "recovered", "dead"]
    await begin(shared, replace(CODER, agent_id="worker-2"))
    assert await told(shared) == ["started", "stale", "recovered", "dead", "started"]
    await registry.stop(shared, "worker-2")
    assert await told(shared) == ["started", "stale", "recovered", "dead", "started", "stopped"]
    assert await told(shared) == ["started", "stale", "recovered", "dead", "started", "stopped"]
    (row,) = await fetch(shared, "select kind, payload::text from grns.events order by seq desc limit 1")
    assert row["kind"] == "evt.agent.worker.stopped"
    assert '"agent" : "coder"' in row["payload"]


async def test_silence_takes_no_lease(shared: Database) -> None:
    await begin(shared)
    held = await claim(shared, (await submit(shared)).id, who=CODER)
    await silent(shared, 500)
    await told(shared)
    await shared.run("end_ordered", 0.0, BATCH)
    assert (await row_of(shared, held.id))["lease_id"] == held.lease_id


async def test_an_order_holds_for_the_life_that_it_was_given(client: Client, shared: Database) -> None:
    with pytest.raises(NotFoundError):
        await client.agents.terminate("coder")
    await client.agents.put("coder", pool="worker")
    with pytest.raises(ConflictError, match="absent"):
        await client.agents.terminate("coder")
    await begin(shared)
    agent = await client.agents.terminate("coder", reason="it loops", graceful=False)
    assert (agent.order, agent.order_reason) == ("stop", "it loops")
    assert (await registry.touch(shared, "worker-1", idle_seconds=0)).order == "stop"
    await begin(shared, replace(CODER, agent_id="worker-2"))
    agent = await client.agents.get("coder")
    assert (agent.order, agent.order_reason) == (None, "it loops")
    with pytest.raises(ConflictError, match="another life"):
        await client.agents.terminate("coder", life="worker-1")
    await client.agents.terminate("coder")
    assert (await client.agents.resume("coder")).order is None
    with pytest.raises(ConflictError, match="healthy"):
        await client.agents.delete("coder")
    await registry.stop(shared, "worker-2")
    await client.agents.delete("coder")
    with pytest.raises(NotFoundError):
        await client.agents.delete("coder")


async def test_tasks_of_an_agent_that_does_not_stop_run_elsewhere(client: Client, shared: Database) -> None:
    await begin(shared)
    held = await claim(shared, (await submit(shared, max_attempts=1)).id, who=CODER)
    (work,) = await client.agents.tasks("coder")
    assert (work.id, work.attempt) == (held.id, 1)
    await client.agents.terminate("coder", graceful=False)
    assert await shared.run("end_ordered", 30.0, BATCH) == [], "it has 30 s"
    await fetch(shared, "update grns.agents set ordered_at = ordered_at - interval '31 s'")
    (cut,) = await shared.run("end_ordered", 30.0, BATCH)
    assert (cut["id"], cut["agent_id"]) == (held.id, "worker-1")
    assert (await finish(shared, held, Verb.SUCCEED)).status != "succeeded", "it is fenced"
    await fetch(shared, "update grns.tasks set lease_until = now() - interval '1 s' where id = $1", held.id)
    await shared.run("reap", BATCH, None)
    row = await row_of(shared, held.id)
    assert (row["status"], row["uncounted_attempts"]) == ("queued", 1), "the attempt does not count"


async def test_a_new_life_does_not_save_one_that_was_told_to_stop(client: Client, shared: Database) -> None:
    """As where a service starts it again at once: what hangs loses its task, and the new life works."""
    later = replace(CODER, agent_id="worker-2")
    await client.agents.put("coder", pool=CODER.agent_type, max_concurrent_tasks=5)
    await begin(shared)
    held = await claim(shared, (await submit(shared)).id, who=CODER)
    await client.agents.terminate("coder", graceful=False)
    await begin(shared, later)
    other = await claim(shared, (await submit(shared)).id, who=later)
    assert (await registry.touch(shared, "worker-1", idle_seconds=0)).order == "stop"
    assert (await registry.touch(shared, "worker-2", idle_seconds=0)).order is None
    assert (await client.agents.get("coder")).order is None
    await fetch(
        shared,
        "update grns.earlier_lives set ordered_at = ordered_at - interval '31 s'",
    )
    (cut,) = await shared.run("end_ordered", 30.0, BATCH)
    assert (cut["id"], cut["agent_id"]) == (held.id, "worker-1")
    assert (await finish(shared, other, Verb.SUCCEED)).status == "succeeded"


async def order_of(database: Database, life: str) -> str | None:
    """Return what a life is told."""
    return (await registry.touch(database, life, idle_seconds=0)).order


async def test_an_earlier_life_that_speaks_again_is_not_the_latest(client: Client, shared: Database) -> None:
    """As where another API process hears of it for the first time, or its heartbeat comes late."""
    http: dict[str, Any] = {"concurrency": 1, "version": "", "host": "laptop", "pid": 0}
    earlier, later = CODER, replace(CODER, agent_id="worker-2")
    await client.agents.put("coder", pool="worker")
    for who in (earlier, later, earlier):
        await registry.register(shared, who, **http)
    assert (await client.agents.get("coder")).agent_id == "worker-2"
    beats = Heartbeats(shared)
    said = AgentHeartbeat(status="working", current_task_id="gr-1")
    assert await beats.beat("default", "coder", said, life="worker-1") == AgentOrder(None)
    agent = await client.agents.get("coder")
    assert (agent.agent_id, agent.current_task_id, agent.status) == ("worker-2", None, "idle")
    await beats.beat("default", "coder", AgentHeartbeat(status="stopped"), life="worker-1")
    assert (await client.agents.get("coder")).health == "healthy"
    await silent(shared, 500)
    await beats.beat("default", "coder", AgentHeartbeat(), life="worker-1")
    agent = await client.agents.get("coder")
    assert (agent.agent_id, agent.health) == ("worker-1", "healthy"), "the latest life is dead"


async def test_each_life_has_its_order(client: Client, shared: Database) -> None:
    lives = [replace(CODER, agent_id=f"worker-{number}") for number in range(3)]
    await begin(shared, lives[0])
    await client.agents.terminate("coder", graceful=False)
    await begin(shared, lives[1])
    await client.agents.terminate("coder")
    assert [await order_of(shared, life.agent_id) for life in lives[:2]] == ["stop", "drain"]
    await begin(shared, lives[2])
    assert [await order_of(shared, life.agent_id) for life in lives] == ["stop", "drain", None]
    await client.agents.resume("coder")
    assert [await order_of(shared, life.agent_id) for life in lives] == ["stop", "drain", None]
    await client.agents.terminate("coder", graceful=False, reason="all")
    assert [await order_of(shared, life.agent_id) for life in lives] == ["stop", "stop", "stop"]
    beats = Heartbeats(shared)
    told = await beats.beat("default", "coder", AgentHeartbeat(), life="worker-0")
    assert told == AgentOrder("stop", "all")
    await registry.stop(shared, "worker-1")
    assert [row["agent_id"] for row in await fetch(shared, "select agent_id from grns.earlier_lives")] == [
        "worker-0"
    ]
    await registry.stop(shared, "worker-2")
    await client.agents.delete("coder")
    assert await fetch(shared, "select from grns.earlier_lives") == []


async def test_two_processes_that_begin_at_once_leave_one_latest_life(
    client: Client, shared: Database
) -> None:
    """A heartbeat of the earlier life waits for the row, and sees what the later one has written."""
    await begin(shared)
    async with shared.transaction() as other:
        await other.execute("select from grns.agents where name = 'coder' for no key update")
        beats = Heartbeats(shared)
        waits = asyncio.create_task(beats.beat("default", "coder", AgentHeartbeat(), life="worker-1"))
        await asyncio.sleep(0.2)
        await other.execute(
            "update grns.agents g set ordered = grns.replace_life(g, 'worker-2'), agent_id = 'worker-2'"
        )
    assert await waits == AgentOrder(None)
    assert (await client.agents.get("coder")).agent_id == "worker-2"


async def test_a_heartbeat_does_not_wait_for_an_agent_that_is_held(client: Client, shared: Database) -> None:
    """As by a claim of another process; it holds up no other agent, and is no unknown one."""
    for name in ("held", "free"):
        await client.agents.put(name, pool="worker")
    beats = Heartbeats(shared)
    for name in ("held", "free"):
        await beats.beat("default", name, AgentHeartbeat())
    await client.agents.terminate("held", reason="enough")
    said = [NamedHeartbeat(name=name, status="blocked") for name in ("held", "free", "unknown")]
    async with shared.transaction() as other:
        await run(other, "hold_agent", "default", "held", "")
        orders = await asyncio.wait_for(beats.beat_many("default", said), 2)
    assert [(one.name, one.order) for one in orders] == [("held", "drain"), ("free", None)]
    assert [(await client.agents.get(name)).status for name in ("held", "free")] == ["idle", "blocked"]


async def test_a_renewal_does_not_wait_for_an_agent_that_is_held(client: Client, shared: Database) -> None:
    """Renewals over HTTP also note that their worker lives; a claim of another one may hold their agent."""
    await begin(shared)
    await silent(shared, 60)
    await client.agents.terminate("coder", reason="enough")
    async with shared.transaction() as other:
        await run(other, "hold_agent", "default", "coder", "")
        touched = await asyncio.wait_for(registry.touch(shared, "worker-1", idle_seconds=0), 2)
    assert touched == registry.Touched(is_known=True, order="drain")
    assert (await client.agents.get("coder")).health == "degraded"
    await registry.touch(shared, "worker-1", idle_seconds=0)
    assert (await client.agents.get("coder")).health == "healthy"


async def test_who_holds_an_agent_and_says_nothing_lets_it_go(client: Client, shared: Database) -> None:
    await client.agents.put("coder", pool="worker")
    async with shared.transaction() as other:
        await run(other, "hold_agent", "default", "coder", "")
        seconds = await other.fetchval("show idle_in_transaction_session_timeout")
    assert seconds == "5s"


async def test_a_hundred_earlier_lives_are_kept(client: Client, shared: Database) -> None:
    await client.agents.put("coder", pool="worker")
    beats = Heartbeats(shared)
    for number in range(105):
        await beats.beat("default", "coder", AgentHeartbeat(), life=f"life-{number}")
    (row,) = await fetch(shared, "select count(*) as n, min(replaced_at) as first from grns.earlier_lives")
    assert row["n"] == 100
    assert (await client.agents.get("coder")).agent_id == "life-104"


async def test_a_worker_drains_when_its_agent_is_told_to(client: Client, shared: Database) -> None:
    stopped, emitted = asyncio.Event(), list[Signal]()
    slots = Slots(2)
    watch = OrderWatch(database=shared, claimant=CODER, slots=slots, stop=stopped.set, emit=emitted.append)
    await begin(shared)
    assert await watch.tick() == 2.0
    slots.take(1)
    await client.agents.terminate("coder", reason="deploy")
    await watch.tick()
    assert (slots.is_held, stopped.is_set()) == (True, False), "a task runs still"
    await client.agents.resume("coder")
    await watch.tick()
    assert not slots.is_held
    await client.agents.terminate("coder")
    slots.give()
    await watch.tick()
    assert stopped.is_set()
    assert [type(one) for one in emitted] == [AgentOrdered, AgentOrdered]


async def test_heartbeats_of_agents_without_a_worker(client: Client, shared: Database) -> None:
    beats = Heartbeats(shared)
    with pytest.raises(NotFoundError):
        await beats.beat("default", "shell", AgentHeartbeat())
    for name in ("shell", "other"):
        await client.agents.put(name, pool="worker")
    said = AgentHeartbeat(status="working", current_task_id="gr-1", progress_percent=40, current_step="tests")
    orders = await asyncio.gather(
        beats.beat("default", "shell", said),
        beats.beat("default", "other", AgentHeartbeat(status="blocked")),
        beats.beat("default", "shell", said),
    )  # fmt: skip
    assert set(orders) == {AgentOrder(None)}
    agent = await client.agents.get("shell")
    assert (agent.health, agent.status, agent.current_task_id) == ("healthy", "working", "gr-1")
    assert (agent.progress_percent, agent.current_step) == (40, "tests")
    assert (await client.agents.get("other")).status == "blocked"
    await client.agents.terminate("shell", reason="enough")
    assert await beats.beat("default", "shell", AgentHeartbeat()) == AgentOrder("drain", "enough")
    assert await beats.beat("default", "shell", AgentHeartbeat(status="stopped")) == AgentOrder(
        "drain", "enough"
    )
    assert (await client.agents.get("shell")).health == "stopped"
    assert await beats.beat("default", "shell", AgentHeartbeat()) == AgentOrder(None, "enough"), "a new life"
    assert await beats.beat("default", "shell", AgentHeartbeat(), life="two") == AgentOrder(None, "enough")
    assert (await client.agents.get("shell")).agent_id == "two"
