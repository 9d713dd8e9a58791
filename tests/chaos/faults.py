"""What can go wrong, each with its healing: a function that does it, and returns what undoes it."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import asyncpg
from nats.aio.client import Client

from grns.postgres.statements import statement
from tests.chaos import strangers
from tests.chaos.agents import AGENTS
from tests.chaos.harm import EVERYBODY, ORDER
from tests.chaos.proxy import Proxy
from tests.chaos.stage import LEASE_SECONDS, Seat, Stage, send_all
from tests.chaos.strangers import NothingDone

Heal = Callable[[], Awaitable[None]]
_WORKERS = ("worker", "scout")
_DAEMONS = (
    "relay", "command-server", "reaper", "scheduler", "stats", "janitor", "operations",
    "webhooks",
)  # fmt: skip
_RESTARTED = b'"heartbeat_restarted"'
_LOOK_SECONDS, _LONGEST_START_LOOKS = 0.1, 150
_HITTABLE = (*_WORKERS, *_DAEMONS, "submitter", "api")


@dataclass
class Hit:
    """A fault as it was done: whom it hit (the name of a seat, or everybody), what undoes it, and when.

    `tasks` are those whose rows it hit.
    """

    whom: str
    heal: Heal | None = None
    seconds: float = 0.0
    tasks: Sequence[str] = ()


Inject = Callable[[Stage, random.Random], Awaitable[Hit]]


@dataclass(frozen=True)
class Fault:
    """One kind of fault, and how often it is drawn."""

    name: str
    inject: Inject
    weight: float = 2
    brokers: tuple[int, ...] = (1, 3)

    @property
    def needs_disks(self) -> bool:
        """Say whether it can be done only where servers have disks of their own."""
        return self.name.startswith("power: ")

    @property
    def server(self) -> str | None:
        """The server whose process it hits: of these, one at a time, or it could not be started again."""
        words = ("restarted", "away", "frozen", "killed", "wiped", "set back")
        where, _, what = self.name.partition(": ")
        if self.needs_disks:
            return where
        return where if where in ("Postgres", "NATS") and what.startswith(words) else None


def _some(stage: Stage, chance: random.Random, *roles: str) -> Seat:
    seats = stage.of(*roles)
    if not seats:
        raise NothingDone
    return chance.choice(seats)


def _alive(stage: Stage, chance: random.Random, *roles: str) -> Seat:
    seat = _some(stage, chance, *roles)
    if not seat.is_alive:
        raise NothingDone
    return seat


def _signal(number: signal.Signals, *roles: str, times: int = 1) -> Inject:
    """Send a signal to somebody's process, perhaps again soon after."""

    async def inject(stage: Stage, chance: random.Random) -> Hit:
        seat = _alive(stage, chance, *roles)
        seat.send(number)
        for _ in range(times - 1):
            await asyncio.sleep(chance.uniform(0.0, 0.5))
            seat.send(number)
        return Hit(seat.name)

    return inject


def _freeze(*roles: str, leases: float) -> Inject:
    """Stop a process, for up to so many leases; a worker with its heartbeat process or without."""

    async def inject(stage: Stage, chance: random.Random) -> Hit:
        seat = _alive(stage, chance, *roles)
        stopped = seat.process
        children = seat.children() if chance.random() < 0.7 else []
        seat.send(signal.SIGSTOP)
        send_all(children, signal.SIGSTOP)

        async def thaw() -> None:
            send_all(children, signal.SIGCONT)
            if stopped is not None and stopped.poll() is None:
                stopped.send_signal(signal.SIGCONT)

        return Hit(seat.name, thaw, chance.uniform(0.2, leases * LEASE_SECONDS))

    return inject


async def _kill_heartbeat(stage: Stage, chance: random.Random) -> Hit:
    seat = _alive(stage, chance, *_WORKERS)
    children = seat.children()
    if not children:
        raise NothingDone
    process, restarts = seat.process, stage.log_of(seat).count(_RESTARTED)
    send_all(children, signal.SIGKILL)

    async def until_restarted() -> None:
        """Wait for the next one: how long its start takes is up to the machine."""
        for _ in range(_LONGEST_START_LOOKS):
            if seat.process is not process or stage.log_of(seat).count(_RESTARTED) != restarts:
                return
            await asyncio.sleep(_LOOK_SECONDS)

    return Hit(seat.name, until_restarted)


def _order(what: str) -> Inject:
    """Tell an agent to end, as an operator does: its seat is started again, as a life that is not meant."""

    async def inject(stage: Stage, chance: random.Random) -> Hit:
        agent = chance.choice(AGENTS)
        seat = next((seat for seat in stage.seats if seat.name == agent.seat), None)
        if seat is None:
            raise NothingDone
        connection = await asyncpg.connect(stage.postgres.url, timeout=2)
        try:
            await connection.execute(
                statement("order_agent"), "default", agent.name, what, "storm", "drawn so", None, timeout=2
            )
        finally:
            connection.terminate()
        return Hit(seat.name)

    return inject


_FAILPOINTS = {
    _WORKERS: (
        "worker.before_claim",
        "worker.claimed_not_acked",
        "worker.hint_claimed",
        "worker.after_claim",
        "worker.handler_ended",
        "worker.finished",
        "claim.answered",
        "finish.asked",
        "finish.answered",
    ),
    ("relay",): (
        "relay.read",
        "relay.published",
        "relay.wave_sent",
        "relay.acknowledged",
        "relay.not_persisted",
    ),
    ("reaper",): ("reap.asked", "reap.answered"),
    ("scheduler",): ("promote.answered",),
    ("stats",): ("stats.read", "count_log.asked", "count_log.answered"),
    ("command-server",): ("mark_messages.answered", "commands.executed", "commands.not_answered"),
    ("submitter",): ("submit_tasks.answered", "submit_tasks.asked"),
}


async def _arm(stage: Stage, chance: random.Random) -> Hit:
    """Start somebody again with a failpoint that strikes now and then, for a while."""
    roles = chance.choice(list(_FAILPOINTS))
    seat = _some(stage, chance, *roles)
    point = chance.choice(_FAILPOINTS[roles])
    actions = ["kill", "stop", "sleep(0.3)"]
    if point.endswith((".asked", ".answered")):
        actions += ["drop", "drop"]
    elif point == "worker.before_claim":
        actions.append("raise")
    action = chance.choice(actions)
    seat.extra = {"GRNS_FAILPOINTS": f"{point}={action}@0.03"}
    seat.send(signal.SIGKILL)

    async def disarm() -> None:
        seat.extra = {}
        seat.send(signal.SIGCONT)
        seat.send(signal.SIGKILL)

    return Hit(seat.name, disarm, chance.uniform(2.0, 5.0))


# ---------------------------------------------------------------- the network


def _network(which: str, how: Callable[[Proxy, random.Random], None], seconds: float) -> Inject:
    """Let somebody's network to Postgres or to the brokers be bad for a while, if it is used."""

    async def inject(stage: Stage, chance: random.Random) -> Hit:
        seat = _some(stage, chance, *_HITTABLE)
        networks = seat.brokers if which == "nats" else [seat.postgres] if seat.postgres else []
        if not any(network.is_used for network in networks):
            raise NothingDone
        for network in networks:
            how(network, chance)

        async def heal() -> None:
            for network in networks:
                network.heal()

        return Hit(seat.name, heal, chance.uniform(0.2, seconds))

    return inject


def _cut(network: Proxy, _chance: random.Random) -> None:
    network.cut()


def _refuse(network: Proxy, _chance: random.Random) -> None:
    network.is_refusing = True
    network.cut()


def _slow(network: Proxy, chance: random.Random) -> None:
    network.latency_seconds = chance.uniform(0.05, 0.5)


def _silent(network: Proxy, chance: random.Random) -> None:
    to_server, to_client = chance.choice(((True, True), (True, False), (False, True)))
    network.silence(to_server=to_server, to_client=to_client)


# ---------------------------------------------------------------- Postgres


async def _restart_postgres(stage: Stage, chance: random.Random) -> Hit:
    if chance.random() < 0.5:
        await asyncio.to_thread(stage.postgres.kill)
    else:
        await asyncio.to_thread(stage.postgres.stop)
    return Hit(EVERYBODY, lambda: asyncio.to_thread(stage.start_postgres), chance.choice((0.0, 1.0, 2.0)))


async def _outage_of_postgres(stage: Stage, chance: random.Random) -> Hit:
    await asyncio.to_thread(stage.postgres.stop)
    seconds = chance.uniform(1.0, 1.5) * LEASE_SECONDS
    return Hit(EVERYBODY, lambda: asyncio.to_thread(stage.start_postgres), seconds)


def _cut_power(*places: int) -> Inject:
    """Cut the power of Postgres' disk (0), of the broker's (1), or of both."""

    async def inject(stage: Stage, chance: random.Random) -> Hit:
        if not stage.disks:
            raise NothingDone
        for place in places:
            stage.disks[place].cut()
        await asyncio.sleep(chance.uniform(0.0, 0.5))  # what is answered now is answered without a disk
        if 0 in places:
            await asyncio.to_thread(stage.kill_postgres)
        if 1 in places:
            await asyncio.to_thread(stage.brokers[0].kill)

        async def heal() -> None:
            for place in places:
                await asyncio.to_thread(stage.disks[place].restore)
            if 1 in places:
                await asyncio.to_thread(stage.brokers[0].start)
            if 0 in places:
                await asyncio.to_thread(stage.start_postgres)

        return Hit(EVERYBODY, heal, chance.choice((0.0, 1.0, 3.0)))

    return inject


async def _freeze_postgres(stage: Stage, chance: random.Random) -> Hit:
    stage.freeze_postgres()

    async def thaw() -> None:
        stage.freeze_postgres(signal.SIGCONT)

    return Hit(EVERYBODY, thaw, chance.uniform(0.2, LEASE_SECONDS))


async def _terminate(stage: Stage, _chance: random.Random) -> Hit:
    connection = await asyncpg.connect(stage.postgres.url, timeout=2)
    try:
        await connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where pid <> pg_backend_pid() and backend_type = 'client backend'",
            timeout=2,
        )
    finally:
        connection.terminate()
    return Hit(EVERYBODY)


async def _stranger(stage: Stage, chance: random.Random) -> Hit:
    """Hold a transaction open that has written, and has some rows locked."""
    locked, end = await strangers.open_transaction(stage.postgres.url)
    return Hit("nobody", end, chance.uniform(1.0, 10.0), locked)


# ---------------------------------------------------------------- the broker


def _broker(work: Callable[[Stage, random.Random], Awaitable[Heal | None]], seconds: float) -> Inject:
    async def inject(stage: Stage, chance: random.Random) -> Hit:
        return Hit("nobody", await work(stage, chance), chance.uniform(0.0, seconds))

    return inject


async def _kill_broker(stage: Stage, chance: random.Random) -> Heal:
    broker = chance.choice(stage.brokers)
    await asyncio.to_thread(broker.kill if chance.random() < 0.7 else broker.stop)
    return lambda: asyncio.to_thread(broker.start)


async def _freeze_broker(stage: Stage, chance: random.Random) -> Heal:
    broker = chance.choice(stage.brokers)
    broker.freeze()

    async def thaw() -> None:
        broker.thaw()

    return thaw


async def _wipe_broker(stage: Stage, chance: random.Random) -> None:
    await asyncio.to_thread(chance.choice(stage.brokers).wipe)


async def _set_broker_back(stage: Stage, chance: random.Random) -> None:
    """Let the broker come back as it was a moment ago, as after a power cut: streams have lost their ends."""
    (broker,) = stage.brokers
    aside = stage.directory / "set-back"

    def take_copy() -> None:
        broker.stop()
        shutil.rmtree(aside, ignore_errors=True)
        shutil.copytree(broker.store, aside)
        broker.start()

    def put_back() -> None:
        broker.kill()
        shutil.rmtree(broker.store)
        shutil.move(aside, broker.store)
        broker.start()

    await asyncio.to_thread(take_copy)
    await asyncio.sleep(chance.uniform(0.2, 2.0))
    await asyncio.to_thread(put_back)


def _at_broker(work: Callable[[Client, Stage, random.Random], Awaitable[str | None]]) -> Inject:
    """Do something with a plain client, if the broker is there; it may say which stream was hit."""

    async def inject(stage: Stage, chance: random.Random) -> Hit:
        client = await strangers.connect(stage.broker_urls)
        try:
            async with asyncio.timeout(3):
                hit = await work(client, stage, chance)
        finally:
            await client.close()
        return Hit(hit or "nobody")

    return inject


async def _publish_rubbish(client: Client, _stage: Stage, chance: random.Random) -> None:
    await strangers.publish_rubbish(client, chance)


async def _duplicate(stage: Stage, chance: random.Random) -> Hit:
    """Publish commands once more, for tasks in whatever state, as a liar or a slow network would."""
    ids = await strangers.some_tasks(stage.postgres.url, 20)
    await strangers.publish_commands(stage.broker_urls, ids, chance)
    return Hit("nobody")


# After each of these a stretch of the log is sent again: where one comes before the last was dealt with,
# these stretches add up, and in the end there is nothing else on the bus.
_SELDOM = 0.4

FAULTS = (
    Fault("worker: SIGKILL", _signal(signal.SIGKILL, *_WORKERS), 3),
    Fault("worker: SIGTERM", _signal(signal.SIGTERM, *_WORKERS), 3),
    Fault("worker: SIGTERM twice", _signal(signal.SIGTERM, *_WORKERS, times=2), 1),
    Fault("worker: SIGINT", _signal(signal.SIGINT, *_WORKERS), 1),
    Fault("worker: frozen", _freeze(*_WORKERS, leases=2.0), 3),
    Fault("heartbeat process: SIGKILL", _kill_heartbeat, 2),
    Fault("daemon: SIGKILL", _signal(signal.SIGKILL, *_DAEMONS), 3),
    Fault("daemon: SIGTERM", _signal(signal.SIGTERM, *_DAEMONS), 2),
    Fault("daemon: frozen", _freeze(*_DAEMONS, leases=2.0), 3),
    Fault("API: SIGKILL", _signal(signal.SIGKILL, "api")),
    Fault("API: SIGTERM", _signal(signal.SIGTERM, "api"), 1),
    Fault("API: frozen", _freeze("api", leases=1.0), 1),
    Fault("HTTP worker: SIGKILL", _signal(signal.SIGKILL, "http-worker"), 1),
    Fault("HTTP worker: SIGTERM", _signal(signal.SIGTERM, "http-worker"), 1),
    Fault("HTTP worker: frozen", _freeze("http-worker", leases=2.0), 1),
    Fault(ORDER, _order("stop"), 1),
    Fault("agent: told to drain", _order("drain"), 1),
    Fault("submitter: SIGKILL", _signal(signal.SIGKILL, "submitter"), 1),
    Fault("reader of mail: SIGKILL", _signal(signal.SIGKILL, "reader"), 1),
    Fault("failpoint armed", _arm, 3),
    Fault("network to Postgres: cut", _network("postgres", _cut, 0.3), 6),
    Fault("network to Postgres: refused", _network("postgres", _refuse, 3.0), 3),
    Fault("network to Postgres: slow", _network("postgres", _slow, 4.0), 3),
    Fault("network to Postgres: silent", _network("postgres", _silent, LEASE_SECONDS), 4),
    Fault("network to NATS: cut", _network("nats", _cut, 0.3), 6),
    Fault("network to NATS: refused", _network("nats", _refuse, 3.0), 3),
    Fault("network to NATS: slow", _network("nats", _slow, 4.0), 3),
    Fault("network to NATS: silent", _network("nats", _silent, LEASE_SECONDS), 4),
    Fault("Postgres: restarted", _restart_postgres, 2),
    Fault("Postgres: away for more than a lease", _outage_of_postgres, 1),
    Fault("power: cut for Postgres", _cut_power(0), 1, brokers=(1,)),
    Fault("power: cut for the broker", _cut_power(1), 2, brokers=(1,)),
    Fault("power: cut for both", _cut_power(0, 1), 1, brokers=(1,)),
    Fault("Postgres: frozen", _freeze_postgres, 2),
    Fault("Postgres: backends terminated", _terminate, 4),
    Fault("Postgres: a stranger's transaction", _stranger, 3),
    Fault("NATS: killed or stopped", _broker(_kill_broker, 4.0), 3),
    Fault("NATS: frozen", _broker(_freeze_broker, 6.0), 2),
    Fault("NATS: wiped", _broker(_wipe_broker, 0.0), _SELDOM),
    Fault("NATS: away for long", _broker(_kill_broker, 20.0), 1),
    Fault("NATS: set back", _broker(_set_broker_back, 0.0), _SELDOM, brokers=(1,)),
    Fault("NATS: another leader", _at_broker(strangers.step_down), 6, brokers=(3,)),
    Fault("NATS: stream purged", _at_broker(strangers.purge), 3),
    Fault("NATS: stream deleted", _at_broker(strangers.delete_stream), _SELDOM),
    Fault("NATS: commands deleted", _at_broker(strangers.delete_commands), 2),
    Fault("NATS: durable deleted", _at_broker(strangers.delete_durable), 3),
    Fault("NATS: durable paused", _at_broker(strangers.pause_durable), 2),
    Fault("NATS: commands again", _duplicate, 6),
    Fault("NATS: malformed messages", _at_broker(_publish_rubbish), 4),
)
