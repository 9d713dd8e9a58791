"""Everybody and everything together: servers, the networks to them, and the processes that use them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg

from grns.dev.servers import LocalNats, LocalPostgres
from grns.errors import LocalServerError
from grns.model.seal import MasterKey
from grns.postgres import migrate
from tests.chaos.agents import BY_SEAT, put_agents
from tests.chaos.disk import Disk
from tests.chaos.journal import Journal
from tests.chaos.post import CREW
from tests.chaos.proxy import Proxy
from tests.chaos.services import Services
from tests.chaos.subscriber import TABLE
from tests.dev.test_servers import family
from tests.support import clocks
from tests.support.cluster import cluster
from tests.support.harness import eventually
from tests.support.orphans import die_with_parent

LEASE_SECONDS = 6.0
# What its log has to tell where a lease was lost and no fault explains it.
_TALKATIVE = {
    "log_lock_waits": "on",
    "deadlock_timeout": "500ms",
    "log_min_duration_statement": "700ms",
    "log_parameter_max_length": "0",
    "log_line_prefix": "%m [%p] %a ",
}
_ROOT = Path(__file__).parent.parent.parent
_RESTART_SECONDS = 0.3
_END_SECONDS = 20.0
_READY_SECONDS = 60.0
_MOST_STARTS = 5
_HEAR_SECONDS = 300.0
_LEDGER = (
    "create table chaos_ledger (task_id text, attempt integer, number bigint, at timestamptz default now())"
)


@dataclass
class Seat:
    """A place where one process runs, and again where it ends: its command, and networks of its own."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    postgres: Proxy | None = None
    brokers: list[Proxy] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None
    extra: dict[str, str] = field(default_factory=dict)
    is_kept: bool = True  # started again where it ends

    @property
    def role(self) -> str:
        """The name without its number."""
        return self.name.rpartition("-")[0]

    @property
    def is_alive(self) -> bool:
        """Say whether its process runs, frozen or not."""
        return self.process is not None and self.process.poll() is None

    @property
    def networks(self) -> list[Proxy]:
        """The networks to both servers."""
        return [*self.brokers, *([self.postgres] if self.postgres else [])]

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process alone, if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def children(self) -> list[int]:
        """Return what descends from the process: a worker's heartbeat process."""
        return sorted(pid for pid in self.family() if self.process is not None and pid != self.process.pid)

    def family(self) -> set[int]:
        """Return the process with what descends from it."""
        return family(self.process.pid) if self.process is not None and self.is_alive else set()


class Stage:
    """Servers and seats. Whatever ends is started again, as an init system would."""

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 1,
        rate: float = 100.0,
        lease_seconds: float = LEASE_SECONDS,
        has_wrong_clocks: bool = True,
        log_level: str = "warning",
        has_services: bool = False,
        has_disks: bool = False,
    ) -> None:
        self.directory = directory
        self.services = Services(directory) if has_services else None
        self.journal = Journal(directory / "stage.jsonl")
        self.postgres = LocalPostgres(directory / "postgres", settings=_TALKATIVE)
        self.brokers = cluster(directory, brokers) if brokers > 1 else [LocalNats(directory / "nats-1")]
        self.disks = [Disk(directory / "postgres"), Disk(directory / "nats-1")] if has_disks else []
        self.seats = [
            Seat(name, command, environment) for name, command, environment in _cast(rate, self.services)
        ]
        if has_disks:
            self.seats.append(Seat("subscriber-1", ["tests.chaos.subscriber"], {}))
        for seat in self.seats:
            if has_wrong_clocks and seat.name in _OFFSETS:
                seat.environment = {**seat.environment, **clocks.wrong(_OFFSETS[seat.name])}
        self._backends: set[int] = set()
        self._settings = {
            "GRNS_LEASE_SECONDS": str(lease_seconds),
            "GRNS_LOG_LEVEL": log_level,
            **_SETTINGS,
            "GRNS_KEYS_FILE": str(_keys(directory)),
            **(self.services.settings if self.services else {}),
        }
        self._keeping: asyncio.Task[None] | None = None
        self._observer: subprocess.Popen[bytes] | None = None

    async def start(self, *preparations: Callable[[str], Awaitable[None]]) -> None:
        """Start all; nothing is submitted before workers and `preparations` (of a database URL) are there."""
        for disk in self.disks:
            disk.begin()
        await asyncio.to_thread(self.postgres.start)
        await asyncio.gather(*(asyncio.to_thread(broker.start) for broker in self.brokers))
        await migrate.upgrade(self.postgres.url)
        connection = await asyncpg.connect(self.postgres.url)
        await connection.execute(_LEDGER)
        await connection.execute(TABLE)
        await connection.close()
        await put_agents(self.postgres.url)
        if self.services is not None:
            self._settings |= await self.services.start(self.postgres.url)
        self._observer = self._spawn(
            [sys.executable, "-m", "tests.chaos.observer", self.broker_urls],
            {},
            "observer",
        )
        for seat in self.seats:
            seat.postgres = Proxy(self.postgres.port)
            seat.brokers = [Proxy(broker.port) for broker in self.brokers]
            for network in seat.networks:
                await network.start()
            if seat.role not in ("submitter", "operator"):
                self.begin(seat)
        await self._ready()
        for prepare in preparations:
            await prepare(self.postgres.url)
        for seat in self.of("submitter", "operator"):
            self.begin(seat)
        self._keeping = asyncio.create_task(self._keep())

    @property
    def broker_urls(self) -> str:
        """The URLs of the brokers themselves, past all proxies, with commas between."""
        return ",".join(broker.url for broker in self.brokers)

    def heard(self, stream: str) -> tuple[str, int] | None:
        """Return how far the observer has heard a stream: which one it is, and the number of a message."""
        place = self.directory / f"heard-{stream}.json"
        if not place.exists():
            return None
        said = json.loads(place.read_text())
        return said["life"], said["seq"]

    async def _ready(self) -> None:
        """Wait until all workers are known."""
        connection = await asyncpg.connect(self.postgres.url)
        wanted = len(self.of("worker", "scout"))

        async def are_known() -> bool:
            return bool(await connection.fetchval("select count(*) from grns.workers") >= wanted)

        await eventually(are_known, within_seconds=_READY_SECONDS)
        await connection.close()

    def begin(self, seat: Seat) -> subprocess.Popen[bytes]:
        """Start a seat's process."""
        if seat.postgres is None:
            raise RuntimeError("the stage has not been started")
        environment = {
            "GRNS_DATABASE_URL": self.postgres.url.replace(
                f":{self.postgres.port}/", f":{seat.postgres.port}/"
            ),
            "GRNS_NATS_URL": ",".join(
                broker.url.replace(f":{broker.port}", f":{network.port}")
                for broker, network in zip(self.brokers, seat.brokers, strict=True)
            ),
            "GRNS_NATS_REPLICAS": str(len(self.brokers)),
            **self._settings,
            **seat.environment,
            **seat.extra,
        }
        seat.process = self._spawn([sys.executable, "-m", *seat.command], environment, seat.name)
        self.journal.note("start", seat=seat.name, pid=seat.process.pid, extra=seat.extra)
        return seat.process

    def note_hit(
        self, fault: str, whom: str, began: float | None = None, *, tasks: Sequence[str] = ()
    ) -> None:
        """Write down that somebody, or the rows of some tasks, were hit, from a time until now."""
        now = time.time()
        self.journal.note("hit", fault=fault, whom=whom, tasks=tasks, until=now, **{"from": began or now})

    async def again(self, seat: Seat, failpoints: str = "") -> subprocess.Popen[bytes]:
        """Start a seat's process anew, this once with failpoints."""
        seat.is_kept = False
        seat.send(signal.SIGKILL)
        if seat.process is not None:
            await asyncio.to_thread(seat.process.wait)
        seat.extra = {"GRNS_FAILPOINTS": failpoints} if failpoints else {}
        process = self.begin(seat)
        seat.extra = {}
        seat.is_kept = True
        return process

    def of(self, *roles: str) -> list[Seat]:
        """Return the seats of some roles."""
        return [seat for seat in self.seats if seat.role in roles]

    async def heal(self) -> None:
        """Let everything be well: servers run, networks are good, nobody is frozen or has failpoints."""
        await asyncio.to_thread(self._heal_servers)
        for seat in self.seats:
            for network in seat.networks:
                network.heal()
            send_all(seat.children(), signal.SIGCONT)
            seat.send(signal.SIGCONT)
            if seat.extra:
                seat.extra = {}
                seat.send(signal.SIGKILL)

    def freeze_postgres(self, number: signal.Signals = signal.SIGSTOP) -> None:
        """Suspend Postgres with its backends, or (SIGCONT) let them go on, also where it has died since."""
        if self.postgres.running:
            self._backends |= family(self.postgres.pid)
        send_all(sorted(self._backends), number)
        if number == signal.SIGCONT:
            self._backends.clear()

    def kill_postgres(self) -> None:
        """Kill Postgres and its backends."""
        backends = family(self.postgres.pid) if self.postgres.running else set()
        self.postgres.kill()
        send_all(sorted(backends), signal.SIGKILL)

    def start_postgres(self) -> None:
        """Start Postgres, however long the machine is too busy for it."""
        for _ in range(_MOST_STARTS):
            with suppress(LocalServerError):
                self.postgres.start()
                return
        self.postgres.start()

    def _heal_servers(self) -> None:
        self.freeze_postgres(signal.SIGCONT)
        self.start_postgres()
        for broker in self.brokers:
            broker.thaw()
            broker.start()

    async def dismiss(self, *roles: str) -> None:
        """End the processes of some roles, for good."""
        chosen = self.of(*roles) if roles else self.seats
        self.seats = [seat for seat in self.seats if seat not in chosen]
        for seat in chosen:
            seat.send(signal.SIGCONT)
            seat.send(signal.SIGTERM)
        for seat in chosen:
            if seat.process is not None:
                await asyncio.to_thread(_end, seat.process)
            for network in seat.networks:
                await network.stop()

    async def hear_out(self) -> None:
        """Let the observer read to the end of what the broker has, and end."""
        if self._observer is not None:
            self._observer.send_signal(signal.SIGTERM)
            await asyncio.to_thread(self._observer.wait, _HEAR_SECONDS)

    async def end(self) -> None:
        """End everything that was started."""
        if self._keeping is not None:
            self._keeping.cancel()
        await self.dismiss()
        if self._observer is not None and self._observer.poll() is None:
            self._observer.kill()
            self._observer.wait()
        await asyncio.to_thread(self._heal_servers)
        for server in (self.postgres, *self.brokers):
            await asyncio.to_thread(server.stop)
        for disk in self.disks:
            await asyncio.to_thread(disk.end)
        if self.services is not None:
            await self.services.stop()
        clocks.tidy()

    def log_of(self, seat: Seat) -> bytes:
        """Return what the processes of a seat have logged."""
        return (self.directory / f"{seat.name}.log").read_bytes()

    async def _keep(self) -> None:
        """Start again what has ended."""
        while True:
            await asyncio.sleep(_RESTART_SECONDS)
            for seat in list(self.seats):
                if seat.is_kept and not seat.is_alive:
                    code = seat.process.returncode if seat.process else None
                    self.journal.note("ended", seat=seat.name, code=code)
                    self.begin(seat)

    def _spawn(
        self, command: Sequence[str], environment: Mapping[str, str], name: str
    ) -> subprocess.Popen[bytes]:
        with (self.directory / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=_ROOT,
                env={
                    **{key: value for key, value in os.environ.items() if _is_ours(key)},
                    "PYTHONPATH": str(_ROOT),
                    "GRNS_CHAOS_DIRECTORY": str(self.directory),
                    **environment,
                },
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )


def _is_ours(variable: str) -> bool:
    return not variable.startswith("GRNS_") or variable.startswith("GRNS_CHAOS_")


def send_all(pids: Sequence[int], number: signal.Signals) -> None:
    """Send a signal to processes, as far as they are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _keys(directory: Path) -> Path:
    """Write the key that seals passwords, unless it is there, and return its file."""
    if not (file := directory / "keys").exists():
        file.write_text(MasterKey.new("storm").line() + "\n")
        file.chmod(0o600)
    return file


_SETTINGS = {
    "GRNS_BLOB_GRACE_SECONDS": "300",
    "GRNS_SHUTDOWN_GRACE_SECONDS": "2",
    "GRNS_POLL_BUSY_AGE_SECONDS": "10",
    "GRNS_JANITOR_INTERVAL_SECONDS": "2",
    # Streams are lost every minute here: more than what nobody has read yet need not come again each time.
    "GRNS_RELAY_REPLAY_SECONDS": "120",
    "GRNS_LOG_FORMAT": "json",
    "GRNS_AGENT_GRACE_SECONDS": "3",
}


# Whose clocks are how wrong, where some are.
# The next leader may put events together that the one before sent apart, and the other way round.
_EXTRA = {"relay-2": {"GRNS_RELAY_EVENTS_PER_MESSAGE": "16"}}
_OFFSETS = {
    "worker-2": "+2h", "relay-2": "-1y", "reaper-2": "+1y", "scheduler-2": "-2h", "janitor-1": "+1y",
    "stats-1": "-1y",
}  # fmt: skip


# A connection for each task, as a script has it, costs more than the task.
_SHARES = {"client": 0.75, "sql": 0.05, "request": 0.05, "graph": 0.15}


def _cast(rate: float, services: Services | None) -> list[tuple[str, list[str], dict[str, str]]]:
    """Return who is on the stage: name, module with arguments, environment."""
    pool, slots = "tests.chaos.pools:pool", max(20, round(rate / 2))
    cast = [
        (
            name,
            ["grns", "worker", "start", pool, "--concurrency", str(slots), "--agent", BY_SEAT[name].name],
            {"GRNS_CHAOS_AGENT_TYPE": BY_SEAT[name].pool, "GRNS_CHAOS_AGENT": BY_SEAT[name].name},
        )
        for name in ("worker-1", "worker-2", "scout-1")
    ]
    cast.append(("command-server-1", ["grns", "daemon", "command-server"], {}))
    for role in ("relay", "reaper", "scheduler"):
        cast += [(f"{role}-{number}", ["grns", "daemon", role], {}) for number in (1, 2)]
    cast = [(name, command, environment | _EXTRA.get(name, {})) for name, command, environment in cast]
    cast += [(f"{role}-1", ["grns", "daemon", role], {}) for role in ("stats", "janitor")]
    if services is not None:
        cast += services.cast(rate)
    for number, way in enumerate(_SHARES, 1) if rate else ():
        share = str(rate * _SHARES[way])
        command = ["tests.chaos.grapher", share] if way == "graph" else ["tests.chaos.submitter", way, share]
        cast.append((f"submitter-{number}", command, {}))
    if rate:
        cast.append(("submitter-8", ["tests.chaos.mail_sender", str(rate / 30)], {}))
    for number in (1, 2):
        names = [name for name in CREW if CREW.index(name) % 2 == number - 1]
        cast.append((f"reader-{number}", ["tests.chaos.mail_reader", *names], {}))
    return cast
