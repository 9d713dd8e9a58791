"""One system to be measured: a database and a broker of its own, grns' processes on them, and a client."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any

import asyncpg

import grns
from grns.dev.servers import LocalNats, LocalPostgres
from grns.postgres.database import Database
from tests.bench.process import Usage, own_usage, usage_of
from tests.support.harness import Fleet, eventually, is_relayed, manage

SLOTS = 100
PAYLOAD = {"filling": "x" * 186}  # 200 bytes of JSON
PayloadOf = Callable[[int], Mapping[str, Any]]
POOL = "tests.bench.pools:pool"
LIMIT_SECONDS = 900.0
_LOOK_SECONDS = 0.05
_PART_TASKS = 20_000
_LAST_SEQ = "select case when is_called then last_value else 0 end from grns.events_seq"
_FINISHED = "select count(*) from grns.events where seq > $1 and kind = 'evt.task.completed'"

_WORKERS = "select count(*) from grns.workers where stopped_at is null and agent_type = 'worker'"
_BARE_COMMIT = "insert into bench_commits default values"

_COMMANDS = {"worker": ("worker", "start"), "server": ("server",)}


def usual_payload(_number: int) -> Mapping[str, Any]:
    """Return the payload of all tasks of whose payload nothing else is said."""
    return PAYLOAD


class Stage:
    """What a scenario works with. Made by `Ground.stage`, which ends everything that was started on it."""

    def __init__(
        self,
        name: str,
        *,
        postgres: LocalPostgres,
        broker: LocalNats,
        database: Database,
        connection: asyncpg.Connection,
        client: grns.Client,
        fleet: Fleet,
    ) -> None:
        self.name = name
        self.broker = broker
        self.database = database
        self.connection = connection
        self.client = client
        self._postgres = postgres
        self._fleet = fleet
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    # ---------------------------------------------------------------- processes

    def start(self, role: str, *arguments: str, **environment: str) -> None:
        """Start a worker, a server, or the daemon of this name: one of each role at a time."""
        command = _COMMANDS.get(role, ("daemon", role))
        self._processes[role] = self._fleet.start(*command, *arguments, **environment)

    async def start_worker(self, slots: int = SLOTS, *, processes: int = 1, **environment: str) -> None:
        """Start a worker, of one process or of several, and wait until all of them work."""
        options = ("--concurrency", str(slots), "--processes", str(processes))
        self.start("worker", POOL, *options, **environment)

        async def are_known() -> bool:
            return int(await self.connection.fetchval(_WORKERS)) == processes

        await self.until(are_known)

    async def end(self, role: str) -> None:
        """End a process as an init system does."""
        await asyncio.to_thread(self._fleet.end, [self._processes.pop(role)])

    def kill(self, role: str) -> None:
        """End a process as nobody should: it does nothing more from here on."""
        process = self._processes.pop(role)
        process.kill()
        process.wait()

    def pid(self, role: str) -> int:
        """Return the process of a role."""
        return self._processes[role].pid

    def usage(self) -> dict[str, Usage]:
        """Return what all use, by role; the client is the process that measures."""
        self._check()
        used = {role: usage_of(process.pid) for role, process in self._processes.items()}
        servers = {"Postgres": self._postgres.pid, "nats-server": self.broker.pid}
        return used | {name: usage_of(pid) for name, pid in servers.items()} | {"client": own_usage()}

    def _check(self) -> None:
        ended = [role for role, process in self._processes.items() if process.poll() is not None]
        assert not ended, f"ended by itself: {', '.join(ended)}"

    # ---------------------------------------------------------------- tasks

    async def submit(
        self,
        count: int,
        task_type: str = "noop",
        payload_of: PayloadOf = usual_payload,
    ) -> list[str]:
        """Submit tasks in bulk and return their ids; `payload_of` is told which one of them it is."""
        ids: list[str] = []
        for start in range(0, count, _PART_TASKS):
            answers = await self.client.submit_many(
                {"task": task_type, "pool": "worker", "payload": payload_of(number)}
                for number in range(start, min(start + _PART_TASKS, count))
            )
            ids += [answer.id for answer in answers if isinstance(answer, grns.TaskHandle)]
        return ids

    async def last_seq(self) -> int:
        """Return the number of the log's last row; it costs the same however many there are."""
        return int(await self.connection.fetchval(_LAST_SEQ))

    async def finished(self, count: int, *, after_seq: int, messages: int) -> None:
        """Wait until so many tasks have been finished since a row of the log.

        That is not before so many `messages` have been written: until then only their number is looked at.
        """

        async def are_written() -> bool:
            return await self.last_seq() >= after_seq + messages

        async def are_finished() -> bool:
            return int(await self.connection.fetchval(_FINISHED, after_seq)) >= count

        await self.until(are_written)
        await self.until(are_finished)

    async def relayed(self) -> None:
        """Wait until the relay's cursor has everything that was written."""
        await self.until(lambda: is_relayed(self.database))

    async def until(self, look: Callable[[], Awaitable[bool]]) -> None:
        """Wait for what the processes bring about; fail where one of them has ended."""

        async def look_after_all() -> bool:
            self._check()
            return await look()

        await eventually(look_after_all, within_seconds=LIMIT_SECONDS, every=_LOOK_SECONDS)

    async def queue(self, count: int) -> None:
        """Submit tasks and have their commands published, by a relay that then ends."""
        self.start("relay")
        await self.submit(count)
        await self.relayed()
        await self.end("relay")

    async def pass_through(self, count: int, payload_of: PayloadOf = usual_payload) -> None:
        """Let tasks go the whole way."""
        mark = await self.last_seq()
        await self.submit(count, payload_of=payload_of)
        await self.finished(count, after_seq=mark, messages=3 * count)
        await self.relayed()

    async def bare_commit(self) -> float:
        """Insert one row and commit; return the seconds: no task can be accepted durably in less."""
        began = time.perf_counter()
        await self.connection.execute(_BARE_COMMIT)
        return time.perf_counter() - began

    # ---------------------------------------------------------------- messages

    async def stored(self, stream: str) -> tuple[float, float]:
        """Return when the first and the last message of a stream were stored, by the broker's clock."""
        state = (await manage(self.broker.url, f"STREAM.INFO.{stream}"))["state"]
        first, last = (datetime.fromisoformat(state[name]) for name in ("first_ts", "last_ts"))
        return first.timestamp(), last.timestamp()
