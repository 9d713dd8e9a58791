"""One trial for each kind of fault: it strikes once, and returns for how long that was felt.

All times are taken from outside, from the tables or the journals; a trial that does not see what has to
happen fails, and says what it saw instead.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg

from tests.chaos import journal
from tests.chaos.stage import Seat, Stage, send_all
from tests.support.harness import eventually

LEASE_SECONDS = 5.0
_HEARTBEAT_SECONDS = LEASE_SECONDS / 3
_AT_ONCE = 4  # two for each worker, so that the victim has some
_SETTLED_SECONDS = 40.0
_REAPER_WATCH_SECONDS = 6.0
# A blink, a while, and more than a lease: clients back off the further the longer it takes.
_OUTAGES = ((0.3, 1.5), (1.5, LEASE_SECONDS), (LEASE_SECONDS, 6.0))
_SUBMIT = "select grns.submit_task('hold', $1, 'worker')"
# For each task: how its first attempt came to its end, and for how long nobody had claimed it then.
_TAKEN_AWAY = """
    select e.task_id, e.kind, extract(epoch from c.created_at - e.created_at)::float8 as seconds
    from grns.events e
    join lateral (
        select n.created_at from grns.events n
        where n.task_id = e.task_id and n.kind = 'evt.task.claimed' and n.version > e.version
        order by n.version limit 1
    ) c on true
    where e.task_id = any($1) and e.version = (
        select min(f.version) from grns.events f
        where f.task_id = e.task_id and f.kind like 'evt.%' and f.version > (
            select min(g.version) from grns.events g
            where g.task_id = e.task_id and g.kind = 'evt.task.claimed'
        )
    ) and e.kind like 'evt.%'
"""
_CLAIMED_AFTER = """
    select extract(epoch from min(e.created_at))::float8 as at from grns.events e
    where e.task_id = $1 and e.kind = 'evt.task.claimed' and e.created_at > to_timestamp($2)
"""
_SINCE = """
    select e.task_id, e.kind from grns.events e
    where e.task_id = any($1) and e.created_at > to_timestamp($2)
        and e.kind in ('evt.task.claimed', 'evt.task.completed')
"""
_HAVE_ENDED = "select bool_and(finished_at is not null) from grns.tasks where id = any($1)"
_LEADER = "select epoch, owner from grns.leases where name = 'relay'"
_UNTICKED = "select extract(epoch from clock_timestamp() - last_tick_at)::float8 from grns.reaper_state"


class TrialFailed(Exception):
    """Something else has happened than what had to."""


class Field:
    """A stage with connections of our own, and the steps that trials are made of."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._left: list[str] = []

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[asyncpg.Connection]:
        """Connect, as soon as Postgres is there."""
        while True:
            try:
                connection = await asyncpg.connect(self.stage.postgres.url, timeout=2)
            except (OSError, asyncpg.PostgresError, TimeoutError):
                await asyncio.sleep(0.01)
            else:
                break
        try:
            yield connection
        finally:
            connection.terminate()

    async def submit(self, count: int, seconds: float) -> list[str]:
        """Hand in tasks whose first attempt takes so long; later ones end at once."""
        payload = json.dumps({"seconds": seconds})
        async with self.connection() as connection:
            return [await connection.fetchval(_SUBMIT, payload) for _ in range(count)]

    async def victim(self, ids: list[str]) -> tuple[Seat, list[str]]:
        """Wait until all run; returns the seat that runs the most of them, and those."""
        owners: dict[str, int] = {}

        async def are_running() -> bool:
            async with self.connection() as connection:
                rows = await connection.fetch(
                    "select t.id, a.pid from grns.tasks t"
                    " join grns.workers a on a.agent_id = t.owner_agent_id where t.id = any($1)",
                    ids,
                )
            owners.update((row["id"], row["pid"]) for row in rows)
            return len(rows) == len(ids)

        await eventually(are_running, within_seconds=_SETTLED_SECONDS)
        pids = list(owners.values())
        pid = max(set(pids), key=pids.count)
        seat = next((seat for seat in self.stage.seats if seat.process and seat.process.pid == pid), None)
        if seat is None:
            raise TrialFailed(f"process {pid} has tasks, and is none of ours")
        return seat, [one for one, owner in owners.items() if owner == pid]

    async def ended(self, ids: list[str]) -> None:
        """Wait until all have ended."""

        async def have_ended() -> bool:
            async with self.connection() as connection:
                return bool(await connection.fetchval(_HAVE_ENDED, ids))

        await eventually(have_ended, within_seconds=_SETTLED_SECONDS)

    async def claimed_after(self, task_id: str, moment: float) -> float:
        """Wait until a task is claimed after a moment; returns the seconds between."""
        found: list[Any] = []

        async def is_claimed() -> bool:
            async with self.connection() as connection:
                found[:] = [await connection.fetchval(_CLAIMED_AFTER, task_id, moment)]
            return found[0] is not None

        await eventually(is_claimed, within_seconds=_SETTLED_SECONDS, every=0.1)
        return float(found[0]) - moment

    async def give_up(self, ids: list[str]) -> None:
        """Ask for the end of what still holds on; `settled` waits for it."""
        async with self.connection() as connection:
            await connection.execute(
                "update grns.tasks set cancel_requested_at = now(), cancel_reason = 'the trial is over'"
                " where id = any($1) and status = 'running'",
                ids,
            )
        self._left += ids

    async def settled(self) -> None:
        """Wait until all that was given up has ended."""
        left, self._left = self._left, []
        if left:
            await self.ended(left)

    async def staffed(self) -> None:
        """Wait until all workers are known: else only the victim itself could take its work again."""

        async def are_known() -> bool:
            pids = [seat.process.pid for seat in self.stage.of("worker") if seat.process]
            async with self.connection() as connection:
                known = await connection.fetchval(
                    "select count(*) from grns.workers where pid = any($1) and stopped_at is null", pids
                )
            return bool(known == len(pids))

        await eventually(are_known, within_seconds=_SETTLED_SECONDS, every=0.1)

    async def served(self, *roles: str) -> None:
        """Wait until the processes of these roles say that they have started."""

        async def have_started() -> bool:
            return all(self._has_started(seat) for seat in self.stage.of(*roles))

        await eventually(have_started, within_seconds=_SETTLED_SECONDS, every=0.1)

    def _has_started(self, seat: Seat) -> bool:
        began = sum(
            note["what"] == "start" and note["seat"] == seat.name
            for note in journal.read(self.stage.directory, "stage.jsonl")
        )
        log = (self.stage.directory / f"{seat.name}.log").read_text()
        return seat.is_alive and log.count('"service_started"') >= began


Felt = dict[str, list[float]]
FELT = ""  # what a trial is named by; other keys say which part of it was measured beside


async def kill_worker(field: Field) -> Felt:
    """SIGKILL of a worker: from the kill until its tasks are claimed again."""
    await field.staffed()
    ids = await field.submit(_AT_ONCE, 60.0)
    victim, lost = await field.victim(ids)
    await asyncio.sleep(random.uniform(0, _HEARTBEAT_SECONDS))  # anywhere between two renewals
    killed_at = time.time()
    victim.send(signal.SIGKILL)
    seconds = [await field.claimed_after(one, killed_at) for one in lost]
    await field.give_up(ids)
    return {FELT: seconds}


async def stop_worker(field: Field) -> Felt:
    """SIGTERM of a worker: from the release of its tasks until they are claimed again."""
    await field.staffed()
    ids = await field.submit(_AT_ONCE, 60.0)
    victim, given_back = await field.victim(ids)
    stopped_at = time.time()
    victim.send(signal.SIGTERM)
    for one in given_back:
        await field.claimed_after(one, stopped_at)
    await field.give_up(ids)
    async with field.connection() as connection:
        return {FELT: await since_release(connection, given_back)}


async def since_release(connection: asyncpg.Connection, ids: list[str]) -> list[float]:
    """Return, for tasks claimed anew, the seconds since each was released; fails where one was not."""
    rows = {row["task_id"]: row for row in await connection.fetch(_TAKEN_AWAY, ids)}
    for one in ids:
        kind = rows[one]["kind"] if one in rows else "nothing of the kind"
        if kind != "evt.task.released":
            raise TrialFailed(f"{one} was not released at its worker's end, but: {kind}")
    return [rows[one]["seconds"] for one in ids]


async def restart_postgres(field: Field) -> Felt:
    """Postgres away for a while: from when it is ready until a worker has committed something.

    That is a result that was held meanwhile, or a claim; both times are told where there are both.
    """
    server = field.stage.postgres
    ids = await field.submit(_AT_ONCE, random.uniform(0.5, 2.0))
    await field.victim(ids)
    await asyncio.to_thread(random.choice((server.stop, server.kill)))
    gone_at = time.time()
    await asyncio.sleep(random.uniform(*random.choice(_OUTAGES)))
    starting = asyncio.create_task(asyncio.to_thread(server.start))
    async with field.connection() as connection:
        ready_at, by_journals = time.monotonic(), time.time()
        ids.append(await connection.fetchval(_SUBMIT, json.dumps({"seconds": 0})))
        seen: dict[tuple[str, str], float] = {}

        async def have_ended() -> bool:
            for row in await connection.fetch(_SINCE, ids, gone_at):
                seen.setdefault((row["kind"], row["task_id"]), time.monotonic() - ready_at)
            return bool(await connection.fetchval(_HAVE_ENDED, ids))

        await eventually(have_ended, within_seconds=_SETTLED_SECONDS, every=0.01)
    await starting
    held = {
        note["task"]
        for note in journal.read(field.stage.directory, "effects-*.jsonl")
        if note["what"] == "end" and note["task"] in ids and note["at"] < by_journals
    }
    claims = [at for (kind, _), at in seen.items() if kind == "evt.task.claimed"]
    results = [at for (kind, one), at in seen.items() if kind == "evt.task.completed" and one in held]
    first_of_each = {"claim": claims, "result held meanwhile": results}
    return {
        FELT: [min(claims + results)],
        **{what: [min(times)] for what, times in first_of_each.items() if times},
    }


async def lose_broker(field: Field) -> Felt:
    """NATS gone: from the submit until a worker has found the task in Postgres."""
    (broker,) = field.stage.brokers
    await asyncio.to_thread(broker.kill)
    seconds = []
    for _ in range(2):
        await asyncio.sleep(random.uniform(0.0, 1.0))  # anywhere between two polls
        submitted_at = time.time()
        (task_id,) = await field.submit(1, 0.0)
        seconds.append(await field.claimed_after(task_id, submitted_at))
    await asyncio.to_thread(broker.start)
    return {FELT: seconds}


async def kill_relay(field: Field) -> Felt:
    """The leading relay killed: until another one leads."""
    await field.served("relay")
    async with field.connection() as connection:

        async def leads_one() -> tuple[int, Seat] | None:
            epoch, owner = await connection.fetchrow(_LEADER) or (0, "")
            for seat in field.stage.of("relay"):
                if seat.process and f"-{seat.process.pid}-" in (owner or ""):
                    return epoch, seat
            return None

        led = await eventually(leads_one, within_seconds=_SETTLED_SECONDS)
        assert led is not None
        epoch, leader = led
        killed_at = time.monotonic()
        leader.send(signal.SIGKILL)

        async def leads_another() -> bool:
            row = await connection.fetchrow(_LEADER)
            return row is not None and bool(row["epoch"] > epoch)

        await eventually(leads_another, within_seconds=_SETTLED_SECONDS, every=0.01)
        return {FELT: [time.monotonic() - killed_at]}


async def kill_reaper(field: Field) -> Felt:
    """A reaper killed: the longest time in which no reaper ticks."""
    await field.served("reaper")
    async with field.connection() as connection:
        random.choice(field.stage.of("reaper")).send(signal.SIGKILL)
        gaps = []
        deadline = time.monotonic() + _REAPER_WATCH_SECONDS
        while time.monotonic() < deadline:
            gaps.append(await connection.fetchval(_UNTICKED))
            await asyncio.sleep(0.02)
    return {FELT: [max(gaps)]}


async def wake_worker(field: Field) -> Felt:
    """A frozen worker that wakes after it was given up: until it has cancelled its handlers."""
    await field.staffed()
    ids = await field.submit(_AT_ONCE, 60.0)
    victim, lost = await field.victim(ids)
    frozen_at = time.time()
    children = victim.children()
    victim.send(signal.SIGSTOP)
    send_all(children, signal.SIGSTOP)
    for one in lost:
        await field.claimed_after(one, frozen_at)
    woken_at = time.time()
    send_all(children, signal.SIGCONT)
    victim.send(signal.SIGCONT)
    cancelled: dict[str, float] = {}

    async def are_cancelled() -> bool:
        for note in journal.read(field.stage.directory, "effects-*.jsonl"):
            if note["what"] == "cancelled" and note["task"] in lost and note["attempt"] == 1:
                cancelled[note["task"]] = note["at"] - woken_at
        return len(cancelled) == len(lost)

    await eventually(are_cancelled, within_seconds=_SETTLED_SECONDS, every=0.2)
    await field.give_up(ids)
    return {FELT: list(cancelled.values())}


@dataclass(frozen=True)
class Trial:
    """One kind of fault: what is measured, how, and what it may take at most, in seconds."""

    name: str
    strike: Callable[[Field], Awaitable[Felt]]
    bound: float


TRIALS = (
    Trial("worker SIGKILL -> claimed again", kill_worker, 6.5),
    Trial("worker SIGTERM: released -> claimed again", stop_worker, 1.0),
    Trial("Postgres ready again -> first commit", restart_postgres, 2.0),
    Trial("NATS gone: submitted -> claimed", lose_broker, 2.5),
    Trial("relay killed -> another leads", kill_relay, 3.0),
    Trial("reaper killed: longest time without one", kill_reaper, 3.0),
    Trial("frozen worker wakes -> handlers cancelled", wake_worker, _HEARTBEAT_SECONDS + 1.0),
)
