"""Waiting rooms, on real servers: woken by the broker, fed by Postgres without it, and never a storm."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from grns.access.principals import BOOTSTRAP
from grns.bootstrap import api as doors
from grns.bootstrap.app import App
from grns.dev.servers import LocalNats
from grns.gateway import claims as agent_claims
from grns.gateway.claims import AssignedTask, HttpClaims, WaitingWorker
from grns.maintenance.reaper import reap
from grns.model import subjects
from grns.model.outcome import Verb
from grns.nats import JetStream
from grns.nats.messages import Message
from grns.postgres.database import Database, run
from grns.settings import load
from grns.tasks.agents import Agents
from grns.telemetry.task_signals import AttemptStarted, RejectedMessageStored, TaskCrashed, TaskNotClaimed
from grns.worker.claims import Claimant
from tests.support.harness import LIMIT_SECONDS, eventually, manage, submit, submit_many
from tests.support.operations import SignalRecorder
from tests.support.relays import relaying
from tests.support.store import fetch, finish, kinds_of, lapse, row_of

pytestmark = [pytest.mark.usefixtures("in_environment"), pytest.mark.timeout(120)]

NEVER = 3600.0


class Stage:
    """Rooms for agents, on the test's own servers."""

    def __init__(
        self, claims: HttpClaims, database: Database, transport: JetStream, emitted: SignalRecorder
    ) -> None:
        self.claims = claims
        self.database = database
        self.transport = transport
        self.emitted = emitted
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def ask(
        self, *types: str, wait_seconds: float = 60.0, name: str = "one", agent: str | None = None
    ) -> asyncio.Task[AssignedTask | None]:
        """Begin to wait for a task."""
        handled = dict.fromkeys(types or ("noop",))
        life = f"worker-{name}" if agent is None else f"http-worker-{agent}"
        who = Claimant(life, "default", "worker", handled, 60.0, agent, is_counted=agent is not None)
        seeking = WaitingWorker(who, name, "1", BOOTSTRAP, wait_seconds)
        return asyncio.create_task(self.claims.next_task(seeking, self._gone))

    async def is_listening(self) -> bool:
        """Tell whether the room's lanes are open, and it has looked what there was before."""
        room = self.claims._queues.get(("default", "worker"))
        if room is None or room._is_broker_failing() or room._poller._is_behind:
            return False
        return room._look_at > time.monotonic()

    @property
    def sources(self) -> list[str]:
        """Where what was claimed has come from."""
        return [signal.source for signal in self.emitted.of(AttemptStarted)]


@asynccontextmanager
async def rooms(database: Database, **settings: Any) -> AsyncIterator[Stage]:
    """Open rooms that look into Postgres only where the broker fails, unless the settings say otherwise."""
    emitted = SignalRecorder()
    quiet = {"poll_after_seconds": NEVER, "poll_max_seconds": NEVER, "poll_busy_age_seconds": NEVER}
    app = App(load(**(quiet | settings)), (emitted,))
    async with app.connections("rooms", is_patient=True) as (own, transport):
        claims = doors.context(app, own, transport).agent_claims
        yield Stage(claims, own, transport, emitted)
        await claims.close()
    assert not emitted.of(TaskCrashed)


async def got(asking: asyncio.Task[AssignedTask | None]) -> AssignedTask:
    """Return what somebody has got."""
    handed = await asyncio.wait_for(asking, LIMIT_SECONDS)
    assert handed is not None
    return handed


async def lane(broker: LocalNats, priority: int = 2) -> tuple[int, int]:
    """Return how many commands of a lane wait, and how many are held by somebody."""
    durable = subjects.durable(subjects.priority_subject("default", "worker", priority))
    info = await manage(broker.url, f"CONSUMER.INFO.GRNS_CMD.{durable}")
    return info["num_pending"], info["num_ack_pending"]


async def test_who_waits_is_woken_by_the_broker(database: Database, broker: LocalNats) -> None:
    async with relaying(), rooms(database) as stage:
        asking = stage.ask()
        await eventually(stage.is_listening)
        for priority in subjects.PRIORITIES:
            task_id = (await submit(database, priority=priority)).id
            assert (await got(asking)).claim.id == task_id
            asking = stage.ask()
        asking.cancel()

        async def is_empty() -> bool:
            return [await lane(broker, priority) for priority in subjects.PRIORITIES] == [(0, 0)] * 4

        await eventually(is_empty)
        assert stage.sources == ["priority"] * 4


async def test_what_waits_already_is_found_at_once(database: Database, broker: LocalNats) -> None:
    ids = await submit_many(database, 5)
    async with rooms(database) as stage:  # without a relay, nobody tells of them
        found = [(await got(stage.ask(name=str(n)))).claim.id for n in range(5)]
    assert sorted(found) == sorted(ids)


async def test_commands_that_share_messages_are_all_taken(database: Database, broker: LocalNats) -> None:
    """A message that comes again begins with commands of tasks that run: those behind them are offered."""
    async with relaying(), rooms(database) as stage:
        first = stage.ask()
        await eventually(stage.is_listening)
        ids = await submit_many(database, 80)
        claims = [(await got(first)).claim.id]
        claims += [(await got(stage.ask(name=str(number)))).claim.id for number in range(79)]
    assert sorted(claims) == sorted(ids)
    assert set(stage.sources) == {"priority"}


async def test_each_task_goes_to_an_agent_that_does_it(database: Database, broker: LocalNats) -> None:
    async with relaying(), rooms(database) as stage:
        one, other = stage.ask("a", name="one"), stage.ask("b", name="other")
        await eventually(stage.is_listening)
        await submit(database, "b")
        assert (await got(other)).token.agent_id == "worker-other"
        await submit(database, "a")
        assert (await got(one)).token.agent_id == "worker-one"
        assert stage.sources == ["priority", "priority"]


async def test_what_nobody_here_does_is_found_by_who_comes_and_does(
    database: Database, broker: LocalNats
) -> None:
    async with relaying(), rooms(database) as stage:
        other = stage.ask("b")
        await eventually(stage.is_listening)
        task_id = (await submit(database, "c")).id

        async def is_passed_over() -> bool:
            return [signal.reason for signal in stage.emitted.of(TaskNotClaimed)] == ["no_handler"]

        await eventually(is_passed_over)
        assert (await row_of(database, task_id))["attempt"] == 0
        assert (await got(stage.ask("c", name="two"))).claim.id == task_id
        await submit(database, "b")
        await got(other)


async def test_a_command_that_is_none_is_kept_and_nobody_waits_the_longer(
    database: Database, broker: LocalNats
) -> None:
    async with relaying(), rooms(database) as stage:
        asking = stage.ask()
        await eventually(stage.is_listening)
        subject = subjects.priority_subject("default", "worker", 2)
        await stage.transport.publish(Message(subject, b"{", "rubbish", {}))

        async def is_refused() -> bool:
            return bool(stage.emitted.of(RejectedMessageStored))

        await eventually(is_refused)
        await submit(database)
        await got(asking)
    (letter,) = await fetch(database, "select body, reason from grns.dead_letters")
    assert (bytes(letter["body"]), letter["reason"]) == (b"{", "bad_json")


async def test_what_comes_while_nobody_waits_stays_where_it_is(database: Database, broker: LocalNats) -> None:
    async with relaying(), rooms(database) as stage:
        first = stage.ask()
        await eventually(stage.is_listening)
        await submit(database)
        await got(first)
        ids = await submit_many(database, 3)

        async def are_there() -> bool:
            return sum(await lane(broker)) == 3

        await eventually(are_there)
        found = [(await got(stage.ask())).claim.id for _ in ids]
        assert sorted(found) == sorted(ids)
        assert stage.sources == ["priority"] * 4


async def test_without_the_broker_tasks_come_from_postgres(database: Database, broker: LocalNats) -> None:
    async with rooms(database) as stage:
        asking = stage.ask()
        await eventually(stage.is_listening)
        broker.stop()
        task_id = (await submit(database)).id
        assert (await got(asking)).claim.id == task_id
        assert stage.sources == ["poll"]


async def test_an_agent_that_never_came_back_is_replaced(database: Database, broker: LocalNats) -> None:
    """As a worker that was killed: its lease runs out, and another one is woken."""
    task_id = (await submit(database)).id
    async with relaying(), rooms(database) as stage:
        dead = await got(stage.ask(name="dead"))
        other = stage.ask(name="other")
        await eventually(stage.is_listening)
        await lapse(database, task_id)
        assert len(await reap(database, 10, None)) == 1
        handed = await got(other)
        assert (handed.claim.id, handed.claim.attempt) == (task_id, dead.claim.attempt + 1)
    kinds = [kind for kind in await kinds_of(database, task_id) if kind.startswith("evt.")]
    assert kinds == ["evt.task.queued", "evt.task.claimed", "evt.task.lease_expired", "evt.task.claimed"]


async def test_however_many_wait_one_looks_for_all(
    database: Database, broker: LocalNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Counter[str] = Counter()

    async def counted(connection: Any, name: str, *arguments: Any) -> Any:
        asked[name] += 1
        return await run(connection, name, *arguments)

    monkeypatch.setattr("grns.worker.claims.run", counted)
    often = {"poll_after_seconds": 0.1, "poll_max_seconds": 0.1}
    async with rooms(database, **often) as stage:
        waiting = [stage.ask(name=f"a{n}") for n in range(80)]
        await eventually(stage.is_listening)
        asked.clear()
        began_at = time.monotonic()

        async def has_looked() -> bool:
            return asked["claim_next"] >= 8

        await eventually(has_looked)
        # Each looking for itself would be eighty for each of them.
        assert asked["claim_next"] <= 10 + (time.monotonic() - began_at) / 0.01
        assert asked.keys() == {"claim_next"}
        pool = stage.database._pool
        assert pool is not None

        async def are_all_idle() -> bool:
            return bool(pool.get_size() == pool.get_idle_size())

        await eventually(are_all_idle)
        assert not any(asking.done() for asking in waiting)
        stage.claims.stop()
        assert await asyncio.gather(*waiting) == [None] * 80


async def put(stage: Stage, name: str, most: int = 1) -> None:
    """Register an agent."""
    await Agents(stage.database, "default", "test").put(name, pool="worker", max_concurrent_tasks=most)


async def next_of(asking: set[asyncio.Task[AssignedTask | None]]) -> AssignedTask:
    """Return what the first of some has got, and let the others ask on."""
    (first,), others = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED, timeout=LIMIT_SECONDS)
    asking &= others
    return await got(first)


async def test_who_has_no_room_holds_up_nobody(database: Database, broker: LocalNats) -> None:
    async with relaying(), rooms(database) as stage:
        await put(stage, "dora")
        full = {stage.ask(agent="dora") for _ in range(3)}
        await eventually(stage.is_listening)
        await submit(database)
        first = await next_of(full)
        other = stage.ask(name="other")
        began_at = time.monotonic()
        await submit(database)
        assert (await got(other)).token.agent_id == "worker-other"
        assert time.monotonic() - began_at < 0.9, "the command came back"
        assert len(full) == 2
        await finish(database, first.claim, Verb.SUCCEED)
        made = await submit(database)
        assert (await next_of(full)).claim.id == made.id
        for waiting in full:
            waiting.cancel()


async def test_who_is_told_to_end_holds_up_nobody(database: Database, broker: LocalNats) -> None:
    async with relaying(), rooms(database) as stage:
        await put(stage, "dora")
        told = stage.ask(agent="dora")
        await eventually(stage.is_listening)
        await Agents(database, "default", "test").terminate("dora", graceful=False)
        for number in range(3):
            began_at = time.monotonic()
            other = stage.ask(name=f"other-{number}")
            await submit(database)
            assert (await got(other)).token.agent_id == f"worker-other-{number}"
            assert time.monotonic() - began_at < 0.9
        assert not told.done()
        told.cancel()


async def test_an_agent_that_waits_looks_once(
    database: Database, broker: LocalNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And again when it hears of a task that only some agents may run; the others do not."""
    asked: Counter[str] = Counter()

    async def counted(connection: Any, name: str, *arguments: Any) -> Any:
        asked[name] += 1
        return await run(connection, name, *arguments)

    monkeypatch.setattr("grns.worker.claims.run", counted)
    async with relaying(), rooms(database) as stage:
        for number in range(20):
            await put(stage, f"a{number}")
        waiting = [stage.ask(agent=f"a{number}") for number in range(20)]
        await eventually(stage.is_listening)

        async def have_looked() -> bool:
            return asked["claim_next"] >= 20

        await eventually(have_looked)
        before = asked["claim_next"]
        assert before <= 40, "each once as it came, and once with all for what was there"
        made = await submit(database, target_agent="a7")
        assert (await got(waiting[7])).claim.id == made.id
        assert asked["claim_next"] == before + 1


async def test_what_no_command_tells_of_is_drained_at_once(database: Database, broker: LocalNats) -> None:
    """Also while an agent waits that has no room."""
    ids = await submit_many(database, 300)
    done: list[str] = []
    async with rooms(database, poll_after_seconds=2.0, poll_max_seconds=30.0) as stage:
        await put(stage, "dora")

        async def work(name: str, **who: str) -> None:
            while len(done) < len(ids):
                assigned = await stage.ask(wait_seconds=5.0, name=name, **who)
                if assigned is not None:
                    done.append(assigned.claim.id)
                    if "agent" not in who:
                        await finish(database, assigned.claim, Verb.SUCCEED)

        async def is_drained() -> bool:
            return len(done) == len(ids)

        began_at = time.monotonic()
        working = [asyncio.create_task(work("full", agent="dora")) for _ in range(5)]
        working += [asyncio.create_task(work(f"w{number}")) for number in range(10)]
        await eventually(is_drained)
        seconds = time.monotonic() - began_at
        stage.claims.stop()
        await asyncio.gather(*working)
    assert sorted(done) == sorted(ids)
    assert seconds < 2, f"{len(ids) / seconds:.0f}/s"


async def test_a_room_is_closed_when_nobody_waits_any_more_and_opened_again(
    database: Database, broker: LocalNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_claims, "_ROOM_SECONDS", 0.05)
    async with relaying(), rooms(database) as stage:
        for _ in range(2):
            asking = stage.ask()
            await eventually(stage.is_listening)
            await submit(database)
            await got(asking)

            async def is_closed() -> bool:
                return not stage.claims._queues and not stage.claims._closing

            await eventually(is_closed)
