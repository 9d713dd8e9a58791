"""`grns doctor` on real servers: what it says of them, of what is missing, and its exit codes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from grns.bootstrap import tools
from grns.bootstrap.app import App
from grns.cli import run
from grns.dev.servers import LocalNats
from grns.diagnose.doctor.finding import Severity
from grns.diagnose.doctor.snapshot import Snapshot
from grns.model import subjects
from grns.nats import JetStream
from grns.nats.provision import expected_durable, expected_streams
from grns.postgres.database import Database
from grns.worker import registry as agent
from tests.support.harness import manage, settings_for, submit
from tests.support.store import WORKER, claim, empty, fetch, lapse

NOWHERE = "nats://127.0.0.1:1"


async def examined(database_url: str, nats_url: str = NOWHERE, **said: Any) -> Snapshot:
    """Return what a doctor reads."""
    said = {"nats_startup_seconds": 0.2 if nats_url == NOWHERE else 5.0, **said}
    app = App(settings_for(database_url, nats_url, **said))
    database, transport = app.database("doctor", size=2), app.transport("doctor")
    try:
        return await tools.doctor(app, database, transport).read()
    finally:
        await transport.close()
        await database.close()


@pytest.fixture
async def provisioned(broker: LocalNats) -> LocalNats:
    """A broker that has its streams."""
    transport = JetStream(settings_for("postgresql://127.0.0.1:1/none", broker.url), name="test")
    await transport.connect()
    await transport.provision()
    await transport.close()
    return broker


async def test_it_reads_all_that_there_is(shared: Database, provisioned: LocalNats) -> None:
    await agent.register(shared, WORKER, concurrency=4, version="9.9")
    await submit(shared, "odd")
    read = await examined(shared.url, provisioned.url)
    assert dict(read.troubles) == {}
    assert read.postgres is not None
    assert read.postgres.version_number >= 150_000
    assert read.schema is not None
    assert read.schema.found == read.schema.needed
    assert read.log is not None
    assert read.log.ahead >= 3
    assert read.log.rows_left > 1_000_000
    assert read.pulse is not None
    assert not read.pulse.relay_has_leader
    assert read.pulse.lag_seconds > 0
    assert read.pulse.log_high > 0
    assert read.workers_by_pool is not None
    assert [(crew.agent_type, crew.workers, crew.slots, crew.versions) for crew in read.workers_by_pool] == [
        ("worker", 1, 4, ["9.9"])
    ]
    assert read.unserved is not None
    assert [(one.agent_type, one.task_type, one.count) for one in read.unserved] == [("worker", "odd", 1)]
    assert read.broker is not None
    assert read.broker.version.startswith("2.")
    assert [stream.name for stream in read.broker.streams] == ["GRNS_CMD", "GRNS_EVT", "GRNS_DLQ"]
    assert read.broker.streams[0].duplicate_window_seconds == 300.0
    assert [clock.name for clock in read.clocks] == ["Postgres", "NATS"]
    assert all(abs(clock.ahead_seconds) < 1 for clock in read.clocks), "they are all on this machine"


async def test_the_pulse_is_that_of_the_daemons(shared: Database) -> None:
    read = await examined(shared.url)
    assert read.pulse is not None
    assert (read.pulse.reaped_seconds_ago, read.pulse.janitor_seconds_ago) == (None, None)
    held = await claim(shared, (await submit(shared)).id)
    await lapse(shared, held.id)
    await fetch(
        shared,
        "update grns.reaper_state set last_tick_at = now() - interval '9 s',"
        " reap_until = now() - interval '1 s'",
    )
    await fetch(
        shared, "update grns.leases set owner = 'r', until = now() + interval '1 min' where name = 'relay'"
    )
    await fetch(shared, "update grns.relay_cursor set low = (select last_value from grns.events_seq)")
    await fetch(shared, "update grns.server set seen_at = now() - interval '5 s'")
    read = await examined(shared.url)
    assert read.pulse is not None
    pulse = read.pulse
    assert (pulse.relay_has_leader, pulse.relay_owner, pulse.lag_seconds) == (True, "r", 0.0)
    assert pulse.uncounted_seconds > 0
    assert 9 <= (pulse.reaped_seconds_ago or 0) < 60
    assert pulse.is_reaper_late
    assert 1 <= pulse.lapsed_seconds < 60
    assert 5 <= (pulse.janitor_seconds_ago or 0) < 60


async def test_durables_are_read_with_their_bounds(shared: Database, provisioned: LocalNats) -> None:
    lane = subjects.priority_subject("default", "worker", 2)
    config = expected_durable(lane, settings_for(shared.url)) | {"max_ack_pending": 7, "ack_wait": 3 * 10**9}
    request = {"stream_name": "GRNS_CMD", "config": config, "action": "create"}
    await manage(provisioned.url, f"CONSUMER.CREATE.GRNS_CMD.{config['name']}", request)
    read = await examined(shared.url, provisioned.url)
    assert read.broker is not None
    (durable,) = read.broker.streams[0].durables
    assert (durable.max_ack_pending, durable.ack_wait_seconds, durable.max_waiting) == (7, 3.0, 8192)
    assert durable.is_ours
    assert any("max_ack_pending" in sentence for sentence in durable.drift)


async def test_without_postgres_the_broker_is_looked_at_all_the_same(provisioned: LocalNats) -> None:
    read = await examined("postgresql://127.0.0.1:1/nobody", provisioned.url)
    assert list(read.troubles) == ["postgres"]
    assert read.broker is not None
    assert [clock.name for clock in read.clocks] == ["NATS"]


# ---------------------------------------------------------------- the command


@dataclass(frozen=True)
class Answer:
    """What one command left behind."""

    code: int
    out: str
    err: str

    @property
    def found(self) -> dict[str, dict[str, Any]]:
        """What it found, the worst of each check."""
        findings = json.loads(self.out)["findings"]
        findings.sort(key=lambda one: Severity(one["severity"]).rank)
        return {one["check"]: one for one in findings}


Call = Callable[..., Answer]


@pytest.fixture
def grns(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """Run the doctor on servers that are named."""

    def call(database_url: str, nats_url: str, *arguments: str) -> Answer:
        monkeypatch.setenv("GRNS_DATABASE_URL", database_url)
        monkeypatch.setenv("GRNS_NATS_URL", nats_url)
        monkeypatch.setenv("GRNS_NATS_STARTUP_SECONDS", "0.3" if nats_url == NOWHERE else "5")
        capfd.readouterr()
        code = run(["doctor", *arguments])
        return Answer(code, *capfd.readouterr())

    return call


def let(url: str, work: Callable[[Database], Awaitable[Any]]) -> None:
    """Do something in a database."""

    async def do() -> None:
        database = Database(url, name="test", size=2)
        async with database.opened():
            await work(database)

    asyncio.run(do())


def test_a_bare_broker_and_no_daemons(grns: Call, shared_url: str, broker: LocalNats) -> None:
    let(shared_url, empty)
    told = grns(shared_url, broker.url)
    assert told.code == 1
    errors = [line for line in told.out.splitlines() if line.startswith("error")]
    assert errors == [
        f"error    streams: the stream {name} does not exist" for name in ("GRNS_CMD", "GRNS_EVT", "GRNS_DLQ")
    ]
    assert "         to do: grns admin broker apply" in told.out
    assert "reaper: no reaper is running" in told.out
    assert "checks passed (grns 0.1.0, python" in told.err
    found = grns(shared_url, broker.url, "-o", "json").found
    assert found["postgres"]["severity"] == "ok"
    assert (found["relay"]["severity"], found["janitor"]["severity"]) != ("ok", "ok")


def test_a_broker_that_was_changed_by_hand(grns: Call, shared_url: str, broker: LocalNats) -> None:
    settings = settings_for(shared_url, broker.url)
    for config in expected_streams(settings):
        odd = {"duplicate_window": 2 * 10**9} if config["name"] == "GRNS_EVT" else {}
        asyncio.run(manage(broker.url, f"STREAM.CREATE.{config['name']}", config | odd))
    told = grns(shared_url, broker.url, "-o", "json")
    assert told.code == 1
    assert told.found["dedupe_window"]["sentence"].startswith("GRNS_EVT deduplicates messages for only 2 s")
    assert told.found["streams"]["severity"] == "warning"
    assert "duplicate_window is 2000000000" in told.found["streams"]["sentence"]


def test_what_is_not_there_has_an_exit_code_of_its_own(
    grns: Call, shared_url: str, broker: LocalNats
) -> None:
    away = grns(shared_url, NOWHERE, "-o", "json")
    assert away.code == 5
    assert away.found["broker"]["severity"] == "error"
    assert away.found["postgres"]["severity"] == "ok"
    gone = grns("postgresql://127.0.0.1:1/nobody", NOWHERE)
    assert gone.code == 5
    assert "error    postgres: Postgres cannot be reached" in gone.out


def test_a_schema_that_is_missing(grns: Call, shared_url: str, broker: LocalNats) -> None:
    bare = shared_url.rsplit("/", 1)[0] + "/postgres"
    told = grns(bare, NOWHERE, "-o", "json")
    assert told.code == 1, "that, and not only that the broker is away"
    assert told.found["schema"]["what_to_do"] == "grns admin db upgrade"
    assert "partitions" not in told.found


def test_secrets_are_not_told(grns: Call, broker: LocalNats) -> None:
    told = grns("postgresql://ann:canary-7f3a@127.0.0.1:1/x", NOWHERE.replace("//", "//bob:canary-7f3a@"))
    assert told.code == 5
    assert "canary-7f3a" not in told.out + told.err


def test_warnings_may_count(grns: Call, shared_url: str, broker: LocalNats) -> None:
    for config in expected_streams(settings_for(shared_url, broker.url)):
        asyncio.run(manage(broker.url, f"STREAM.CREATE.{config['name']}", config))
    let(shared_url, empty)
    told = grns(shared_url, broker.url)
    assert told.code == 0, told.out
    assert "warning  stats" in told.out
    assert grns(shared_url, broker.url, "--strict").code == 1
    assert "ok       postgres" in grns(shared_url, broker.url, "--all").out
