"""What goes on while a failpoint is waited for: work of all kinds, and what brings somebody to a moment."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg
import nats

from grns.model import subjects
from grns.postgres.statements import statement
from tests.chaos import strangers
from tests.chaos.agents import draw_route, route_of
from tests.chaos.journal import Journal
from tests.chaos.limits import LIMITED, pause_limits, resume_limits, tenant_of
from tests.chaos.stage import Seat, Stage
from tests.chaos.steps import SIGNAL, STEPWISE
from tests.support.harness import eventually

_PER_SECOND = 15.0
_SUBMIT = """
    select grns.submit_task($1, $2, agent_type => $3, idempotency_key => $4, target_agent => $5,
        required_capabilities => $6)
"""
_SUBMIT_NEEDY = "select task_id from grns.submit_graph($1)"
_SIGNAL = "select grns.send_signal($1, $2, $3::text::jsonb)"
_ANSWER = """
    select grns.answer_question(id, digest, '{"approved": true}') from grns.questions
    where state = 'open' order by random() limit 1
"""
_NEEDY = 0.25
_KINDS = ("steady", "steady", "ledger", "doomed", "thread", LIMITED, STEPWISE)
_MANY = 8
# How long its handlers are at work, on average, in seconds; some moments come only while many are.
_USUAL, _LONG, _LONGER = 0.05, 2.5, 6.0
_BURST = 300
_ENOUGH_SECONDS = 50.0
_HELD = """
    select count(*) from grns.tasks t join grns.workers a on a.agent_id = t.owner_agent_id
    where a.pid = $1 and t.status = 'running'
"""
_KNOWN = "select count(*) from grns.workers where pid = $1"
_LAST_PARTITION = "select name from grns.log_partitions order by lower_seq desc limit 1"
_LEADER = "select owner from grns.leases where name = $1"
# The lease of which services of two seats only one works at a time.
_LEASES = {"relay": "relay", "scheduler": "follower"}
_ADMITTER = "admitter"
_PASSING = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, nats.errors.Error)


class Traffic:
    """Work of all kinds, straight into the database, and what some moments need beside it."""

    def __init__(self, stage: Stage, chance: random.Random) -> None:
        self._stage = stage
        self._chance = chance
        self._journal = Journal(stage.directory / "submits-0.jsonl")
        self._numbers = itertools.count(1)
        self.needs: dict[str, Callable[[Seat], Coroutine[Any, Any, None]]] = {
            "": self._nothing,
            "repeated commands": self._repeat,
            "malformed messages": self._malform,
            "no commands": self._silence,
            "shutdown": self._shut_down,
            "end": self._end,
            "long tasks": self._nothing,
            "bursts": self._burst,
            "dead workers": self._kill_workers,
            "the lead": self._hand_over,
            "the lead of limits": self._hand_over_limits,
            "the lead while tasks wait for room": self._hold_up_and_hand_over,
            "the lead for once": self._lead_and_end,
            "replays": self._replay,
            "lost streams": self._lose_streams,
            "missing partitions": self._drop_partition,
            "orders": self._order,
        }

    @asynccontextmanager
    async def flowing(self, needs: str, seat: Seat) -> AsyncIterator[None]:
        """Let it flow; what was held up for the moment's sake goes on afterwards."""
        lasting = {"long tasks": _LONG, "dead workers": _LONG, "shutdown": _LONGER}
        running = [
            asyncio.create_task(self._submit(lasting.get(needs, _USUAL))),
            asyncio.create_task(self.needs[needs](seat)),
        ]
        try:
            yield
        finally:
            pending = set(running)
            while pending:  # nats-py swallows a cancellation that meets it as it closes
                for task in pending:
                    task.cancel()
                _, pending = await asyncio.wait(pending, timeout=1.0)
            await asyncio.gather(*running, return_exceptions=True)
            for relay in self._stage.of("relay"):
                relay.send(signal.SIGCONT)
            if self.needs[needs] == self._hold_up_and_hand_over:
                await resume_limits(self._stage.postgres.url)

    async def _submit(self, seconds: float) -> None:
        connection = await asyncpg.connect(self._stage.postgres.url)
        latest = ""
        try:
            while True:
                wanted = self._draw(seconds)
                if latest and self._chance.random() < _NEEDY:
                    outcome = self._chance.choice(("success", "failure", "end"))
                    needs = [{"task": latest, "outcome": outcome}]
                    latest = await connection.fetchval(
                        _SUBMIT_NEEDY, json.dumps([{**wanted, "needs": needs}])
                    )
                    self._journal.note("needs", task=latest, needs={needs[0]["task"]: outcome}, required=1)
                else:
                    latest = await connection.fetchval(
                        _SUBMIT,
                        wanted["task_type"],
                        json.dumps(wanted["payload"]),
                        wanted["agent_type"],
                        wanted["idempotency_key"],
                        wanted.get("target_agent"),
                        wanted.get("required_capabilities"),
                    )
                self._journal.note("ok", key=wanted["idempotency_key"], task=latest)
                number = wanted["payload"]["number"]
                if wanted["task_type"] == STEPWISE and number % 5 == 0:
                    await connection.execute(_SIGNAL, latest, SIGNAL, str(number))
                if number % 8 == 0:
                    await connection.execute(_ANSWER)
                await asyncio.sleep(self._chance.expovariate(_PER_SECOND))
        finally:
            connection.terminate()

    def _draw(self, seconds: float) -> dict[str, Any]:
        """Return what one task is to be, and write down that it is tried."""
        number = next(self._numbers)
        kind, key = self._chance.choice(_KINDS), f"range-{number}"
        pool = self._chance.choice(("worker", "worker", "scout"))
        route = draw_route(pool, self._chance)
        self._journal.note("try", key=key, type=kind, number=number, route=route_of(route))
        return {
            "task_type": kind,
            "payload": {"number": number, "seconds": seconds, "tenant": tenant_of(number)},
            "agent_type": pool,
            "idempotency_key": key,
            **route,
        }

    async def _nothing(self, _seat: Seat) -> None:
        return

    async def _order(self, _seat: Seat) -> None:
        """Ask for tasks over the bus, for each in both ways, and for the end of some that are not there."""
        while True:
            with suppress(*_PASSING):
                client = await strangers.connect(self._stage.broker_urls)
                for _ in range(5):
                    await strangers.publish_orders(client, self._draw(0.05))
                await client.flush(timeout=2)
                await client.close()
            await asyncio.sleep(0.3)

    async def _burst(self, _seat: Seat) -> None:
        """Submit so many at once that their commands share messages, and more than workers have slots for."""
        while True:
            wanted: list[dict[str, Any]] = [
                {"task_type": "steady", "agent_type": "worker", "idempotency_key": f"range-{number}",
                 "payload": {"number": number, "seconds": _USUAL, "tenant": tenant_of(number)}}
                for number in itertools.islice(self._numbers, _BURST)
            ]  # fmt: skip
            keys = [one["idempotency_key"] for one in wanted]
            for one, key in zip(wanted, keys, strict=True):
                self._journal.note("try", key=key, type="steady", number=one["payload"]["number"])
            ids = await self._ask(f"select array({_SUBMIT_NEEDY})", json.dumps(wanted))
            for task, key in zip(ids, keys, strict=True):
                self._journal.note("ok", key=key, task=task)
            await asyncio.sleep(3.0)

    async def _repeat(self, _seat: Seat) -> None:
        while True:
            with suppress(*_PASSING):
                ids = await strangers.some_tasks(self._stage.postgres.url, 5)
                await strangers.publish_commands(self._stage.broker_urls, ids, self._chance)
            await asyncio.sleep(0.3)

    async def _malform(self, _seat: Seat) -> None:
        while True:
            with suppress(*_PASSING):
                client = await strangers.connect(self._stage.broker_urls)
                await strangers.publish_rubbish(client, self._chance)
                await client.close()
            await asyncio.sleep(0.5)

    async def _silence(self, _seat: Seat) -> None:
        """Hold up the relays: workers have to ask Postgres."""
        while True:
            for relay in self._stage.of("relay"):
                relay.send(signal.SIGSTOP)
            await asyncio.sleep(0.5)

    async def _shut_down(self, seat: Seat) -> None:
        """End it once it has enough at work that not all of that ends within its grace period of 2 s."""

        async def has_enough() -> bool:
            held = await self._ask(_HELD, seat.process.pid if seat.process else 0)
            return bool(held >= _MANY)

        await eventually(has_enough, within_seconds=_ENOUGH_SECONDS, every=0.2)
        self._ask_to_end(seat)

    async def _end(self, seat: Seat) -> None:
        """End it once it is known, with whatever it has."""

        async def is_known() -> bool:
            return bool(await self._ask(_KNOWN, seat.process.pid if seat.process else 0))

        await eventually(is_known, within_seconds=_ENOUGH_SECONDS, every=0.2)
        self._ask_to_end(seat)

    def _ask_to_end(self, seat: Seat) -> None:
        self._stage.note_hit("a worker is asked to end", seat.name)
        seat.send(signal.SIGTERM)

    async def _hand_over_limits(self, seat: Seat) -> None:
        await self._hand_over(seat, _ADMITTER)

    async def _hold_up_and_hand_over(self, seat: Seat) -> None:
        """Let tasks wait for room, so that who leads next has some to read."""
        await pause_limits(self._stage.postgres.url)
        await self._hand_over(seat, _ADMITTER)

    async def _hand_over(self, seat: Seat, lease: str = "") -> None:
        """Let any other one of its role that leads hand the lead over."""
        while True:
            await asyncio.sleep(2.0)
            owner = await self._ask(_LEADER, lease or _LEASES[seat.role]) or ""
            for other in self._stage.of(seat.role):
                if other is not seat and _leads(other, owner):
                    other.send(signal.SIGTERM)

    async def _lead_and_end(self, seat: Seat) -> None:
        """Ask it to end once it leads."""
        async with self._leading(seat):
            seat.send(signal.SIGTERM)

    async def _replay(self, seat: Seat) -> None:
        """Ask for the latest minute once more, again and again, from a relay that leads."""
        async with self._leading(seat):
            while True:
                await self._ask(
                    statement("request_replay"), None, ["^(evt|dlq)"], None, 60.0, None, 0.0, None
                )
                await asyncio.sleep(2.0)

    async def _lose_streams(self, seat: Seat) -> None:
        """Delete streams of events under a relay that leads, as an administrator can by mistake."""
        async with self._leading(seat):
            while True:
                began = time.time()
                with suppress(*_PASSING):
                    client = await strangers.connect(self._stage.broker_urls)
                    await client.jetstream(timeout=2).delete_stream(subjects.EVT_STREAM)
                    await client.close()
                self._stage.note_hit("NATS: stream deleted", subjects.EVT_STREAM, began)
                await asyncio.sleep(8.0)

    async def _drop_partition(self, _seat: Seat) -> None:
        """Take the last partition of the log away, in which there is nothing yet."""
        name = await self._ask(_LAST_PARTITION)
        await self._ask(f"drop table grns.{name}")

    @asynccontextmanager
    async def _leading(self, seat: Seat) -> AsyncIterator[None]:
        """Wait until it leads; meanwhile and afterwards, others hand the lead over."""
        handing_over = asyncio.create_task(self._hand_over(seat))

        async def is_leading() -> bool:
            return _leads(seat, await self._ask(_LEADER, _LEASES[seat.role]) or "")

        try:
            await eventually(is_leading, within_seconds=_ENOUGH_SECONDS, every=0.1)
            yield
        finally:
            handing_over.cancel()

    async def _ask(self, question: str, *arguments: object) -> Any:
        connection = await asyncpg.connect(self._stage.postgres.url)
        try:
            return await connection.fetchval(question, *arguments)
        finally:
            connection.terminate()

    async def _kill_workers(self, _seat: Seat) -> None:
        while True:
            await asyncio.sleep(3.0)
            other = next(seat for seat in self._stage.seats if seat.name == "worker-2")
            self._stage.note_hit("a worker dies for a reaper's sake", other.name)
            other.send(signal.SIGKILL)


def _leads(seat: Seat, owner: str) -> bool:
    return seat.process is not None and f"-{seat.process.pid}-" in owner
