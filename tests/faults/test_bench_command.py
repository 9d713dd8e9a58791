"""`grns admin bench` on real servers: it measures, touches no data of the user, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from grns.cli.bench import show
from grns.dev.bench import workspace
from grns.dev.bench.plan import Distance, Figures, Plan, Result
from grns.dev.servers import LocalNats
from grns.model import subjects
from grns.model.duration import Percentiles
from grns.nats import JetStream
from grns.nats.messages import Message
from grns.postgres.database import Database
from tests.support.harness import (
    ROOT,
    START_SECONDS,
    as_role,
    eventually,
    is_alive,
    manage,
    settings_for,
    submit_many,
)

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

END_SECONDS = 90.0
# More than it can do before it is interrupted.
MANY = "30000"
_MARK = "GRNS_TEST_MARK"


class Run:
    """One `grns admin bench`, with all the processes that it starts."""

    def __init__(self, directory: Path, environment: dict[str, str], *options: str) -> None:
        self._mark = uuid.uuid4().hex
        self._out, self._err = directory / f"{self._mark}.out", directory / f"{self._mark}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "grns", "admin", "bench", *options],
                env=os.environ
                | environment
                | {_MARK: self._mark, "PYTHONPATH": str(ROOT), "TMPDIR": str(directory)},
                cwd=directory,
                stdout=out,
                stderr=err,
            )

    @property
    def out(self) -> str:
        """What it has written for whoever asked."""
        return self._out.read_text()

    @property
    def err(self) -> str:
        """What it has said beside that."""
        return self._err.read_text()

    @property
    def pids(self) -> set[int]:
        """Its own process and all that descend from it, also those that have lost their parent."""
        wanted = f"{_MARK}={self._mark}".encode()
        found = set()
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if wanted in path.read_bytes().split(b"\0"):
                    found.add(int(path.parent.name))
            except OSError:  # it has ended meanwhile, or is not ours
                continue
        return {pid for pid in found if is_alive(pid)}

    async def end(self) -> int:
        """Wait until it has ended by itself, and return its exit code."""

        async def has_ended() -> bool:
            return self.process.poll() is not None

        await eventually(has_ended, within_seconds=END_SECONDS, every=0.1)
        return self.process.returncode

    async def gone(self) -> None:
        """Wait until no process of it is left."""

        async def are_gone() -> bool:
            return not self.pids

        await eventually(are_gone)


Start = Callable[..., Run]


@pytest.fixture
def start(tmp_path: Path, database_url: str, broker: LocalNats, admin: asyncpg.Connection) -> Iterator[Start]:
    """Start `grns admin bench` with options, on the servers of the test; keywords are further variables."""
    runs: list[Run] = []

    def begin(*options: str, **variables: str) -> Run:
        environment = {"GRNS_DATABASE_URL": database_url, "GRNS_NATS_URL": broker.url} | variables
        runs.append(Run(tmp_path, environment, *options))
        return runs[-1]

    yield begin
    for run in runs:
        for pid in run.pids:
            os.kill(pid, signal.SIGKILL)
        run.process.wait()


@pytest.fixture
async def admin(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """A superuser's connection; the scratch databases that a test has left go with it."""
    connection = await asyncpg.connect(database_url)
    yield connection
    for name in await scratch_databases(connection):
        await connection.execute(f'drop database "{name}" with (force)')
    await connection.close()


async def scratch_databases(admin: asyncpg.Connection) -> list[str]:
    """Return the names of all databases that benchmarks have made."""
    rows = await admin.fetch("select datname from pg_database where datname like 'grns\\_bench\\_%'")
    return [row["datname"] for row in rows]


async def streams(broker: LocalNats) -> list[str]:
    """Return the names of all streams."""
    return sorted((await manage(broker.url, "STREAM.NAMES"))["streams"] or [])


def directories(tmp_path: Path) -> list[str]:
    """Return the names of the directories that benchmarks have made."""
    return [path.name for path in tmp_path.glob("grns_bench_*")]


async def nothing_is_left(admin: asyncpg.Connection, broker: LocalNats, tmp_path: Path) -> None:
    """Check that there is nothing of any benchmark."""
    assert await scratch_databases(admin) == []
    assert [name for name in await streams(broker) if "grns_bench_" in name] == []
    assert directories(tmp_path) == []


async def at_work(run: Run, admin: asyncpg.Connection, database_url: str) -> str:
    """Wait until a worker runs tasks, and return the name of the place in which it does."""

    async def look() -> str | None:
        assert run.process.poll() is None, run.err
        for name in await scratch_databases(admin):
            try:
                inside = await asyncpg.connect(database_url.rsplit("/", 1)[0] + f"/{name}")
            except asyncpg.PostgresError:
                continue
            try:
                if await inside.fetchval("select exists (select from grns.tasks where attempt > 0)"):
                    return name
            except asyncpg.PostgresError:  # there is no schema yet
                continue
            finally:
                await inside.close()
        return None

    name = await eventually(look, within_seconds=START_SECONDS, every=0.2)
    assert name is not None
    return name


async def users_own(database: Database, broker: LocalNats) -> dict[str, Any]:
    """Return all there is of the user's own: rows, log, streams."""
    async with database.connection() as connection:
        tables = {
            table: await connection.fetch(f"select t::text from grns.{table} t order by 1")
            for table in ("tasks", "events", "workers", "dead_letters", "relay_cursor", "server")
        }
    states = {}
    for name in (subjects.CMD_STREAM, subjects.EVT_STREAM, subjects.DLQ_STREAM):
        info = await manage(broker.url, f"STREAM.INFO.{name}")
        states[name] = (info["config"], info["state"])
    return {"tables": {name: [row["t"] for row in rows] for name, rows in tables.items()}, "streams": states}


async def test_it_measures_and_neither_touches_nor_leaves_anything(
    start: Start,
    admin: asyncpg.Connection,
    database: Database,
    database_url: str,
    broker: LocalNats,
    tmp_path: Path,
) -> None:
    await submit_many(database, 3, agent_type="bench")  # a worker of the benchmark would take these
    transport = JetStream(settings_for(database_url, broker.url), name="test")
    await transport.connect()
    await transport.provision()
    await transport.publish(Message(subjects.message("evt.task.queued"), b"{}", str(uuid.uuid4()), {}))
    await transport.close()
    before = await users_own(database, broker)

    run = start("--tasks", "500", "--concurrency", "20", "-o", "json", GRNS_METRICS_PORT="1")
    assert await run.end() == 0, run.err
    await run.gone()
    found = json.loads(run.out)
    assert (found["tasks"], found["concurrency"], found["payload_bytes"]) == (500, 20, 200)
    measured = {name for name in found if name.endswith(("_per_second", "_ms"))}
    assert len(measured) == 10
    assert all(found[name] > 0 for name in measured), found
    assert found["submit_to_start_p50_ms"] <= found["submit_to_start_p99_ms"]
    assert found["nats"] == f"127.0.0.1:{broker.port}"
    assert "Traceback" not in run.err
    assert "is left behind" not in run.err

    await nothing_is_left(admin, broker, tmp_path)
    assert await users_own(database, broker) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_interrupted_it_removes_everything(
    start: Start,
    admin: asyncpg.Connection,
    database_url: str,
    broker: LocalNats,
    tmp_path: Path,
    number: signal.Signals,
) -> None:
    run = start("--tasks", MANY)
    name = await at_work(run, admin, database_url)
    assert f"working in {name}" in run.err
    assert {f"{name}_GRNS_CMD", f"{name}_GRNS_EVT", f"{name}_GRNS_DLQ"} <= set(await streams(broker))
    assert len(run.pids) >= 4, "itself, the daemons, a worker and its heartbeat process"
    run.process.send_signal(number)
    assert await run.end() == 130, run.err
    await run.gone()
    assert run.out == ""
    assert "Traceback" not in run.err
    await nothing_is_left(admin, broker, tmp_path)


async def test_interrupted_while_it_removes_it_goes_on_with_that(
    admin: asyncpg.Connection,
    database_url: str,
    broker: LocalNats,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def work() -> None:
        settings = settings_for(database_url, broker.url)
        async with workspace.temporary(
            settings, Plan(tasks=100, concurrency=1, payload_bytes=16), print
        ) as made:
            name = made.directory.name
            assert (await scratch_databases(admin), directories(tmp_path)) == ([name], [name])
            assert len(await streams(broker)) == 4
            asyncio.get_running_loop().call_soon(task.cancel)

    task = asyncio.create_task(work())
    with pytest.raises(asyncio.CancelledError):
        await task
    await nothing_is_left(admin, broker, tmp_path)


async def test_what_a_killed_run_leaves_the_next_one_removes(
    start: Start, admin: asyncpg.Connection, database_url: str, broker: LocalNats, tmp_path: Path
) -> None:
    killed = start("--tasks", MANY)
    name = await at_work(killed, admin, database_url)
    killed.process.kill()
    await killed.gone()
    assert await scratch_databases(admin) == [name]
    assert await streams(broker) == [f"{name}_GRNS_{end}" for end in ("CMD", "DLQ", "EVT", "OUT")]
    assert directories(tmp_path) == [name]

    async def has_no_session() -> bool:
        """A statement goes on for a while though its client was killed."""
        sessions = "select count(*) from pg_stat_activity where datname = $1"
        return int(await admin.fetchval(sessions, name)) == 0

    await eventually(has_no_session, within_seconds=60.0)
    run = start("--tasks", "100")
    assert await run.end() == 0, run.err
    assert f"removed {name}, left by a killed run" in run.err
    assert "100 tasks that do nothing, of 200 bytes; one worker with 100 slots" in run.out
    await nothing_is_left(admin, broker, tmp_path)


async def test_what_it_cannot_remove_it_names_and_the_next_one_removes(
    start: Start, admin: asyncpg.Connection, database_url: str, broker: LocalNats, tmp_path: Path
) -> None:
    lonely = start("--tasks", MANY)
    name = await at_work(lonely, admin, database_url)
    await asyncio.to_thread(broker.kill)
    assert await lonely.end() == 5, lonely.err
    assert f"{name} is left behind, and the next `grns admin bench` here removes it" in lonely.err
    assert "Traceback" not in lonely.err
    await lonely.gone()
    assert await scratch_databases(admin) == [name]

    await asyncio.to_thread(broker.start)
    run = start("--tasks", "100")
    assert await run.end() == 0, run.err
    assert f"removed {name}" in run.err
    await nothing_is_left(admin, broker, tmp_path)


async def test_it_says_what_a_role_lacks_and_makes_nothing(
    start: Start, admin: asyncpg.Connection, database_url: str, broker: LocalNats, tmp_path: Path
) -> None:
    await admin.execute("create role bench_poor login password 'poor'")
    try:
        run = start(GRNS_DATABASE_URL=as_role(database_url, "bench_poor", "poor"))
        assert await run.end() == 5
    finally:
        await admin.execute("drop role bench_poor")
    assert "the role bench_poor may not create databases" in run.err
    assert "try: psql -c 'alter role bench_poor createdb'" in run.err
    await nothing_is_left(admin, broker, tmp_path)


@pytest.mark.parametrize(
    ("options", "variables", "code", "says"),
    [
        ([], {"GRNS_NATS_URL": "nats://127.0.0.1:1"}, 5, "no broker answered"),
        ([], {"GRNS_DATABASE_URL": "postgresql://grns@127.0.0.1:1/x"}, 5, "is GRNS_DATABASE_URL right"),
        (["--payload-bytes", "300000"], {}, 2, "262144"),
        (["--tasks", "0"], {}, 2, "is not in the range"),
    ],
    ids=["no broker", "no database", "a large payload", "no tasks"],
)
async def test_it_makes_nothing_where_it_cannot_begin(
    start: Start,
    admin: asyncpg.Connection,
    broker: LocalNats,
    tmp_path: Path,
    options: list[str],
    variables: dict[str, str],
    code: int,
    says: str,
) -> None:
    run = start(*options, **variables)
    assert await run.end() == code, run.err
    assert says in run.err
    assert "Traceback" not in run.err
    await nothing_is_left(admin, broker, tmp_path)


def test_people_are_told_what_limits_them(capsys: pytest.CaptureFixture[str]) -> None:
    show(
        Result(
            Plan(tasks=10_000, concurrency=100, payload_bytes=200),
            Distance(postgres=0.0004, commit=0.0041, nats=0.0001, stored=0.00025),
            Figures(
                in_bulk=31_234.4,
                one_by_one=231.0,
                drain=9876.0,
                whole_way=5432.1,
                start=Percentiles(0.009, 0.0211),
            ),
        )
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "10,000 tasks that do nothing, of 200 bytes; one worker with 100 slots"
    figures = dict(line.split("  ", 1) for line in lines[1:11])
    assert {name: figure.strip() for name, figure in figures.items()} == {
        "submit, in bulk": "31,234 tasks/s",
        "submit, one by one": "231 tasks/s",
        "drain: claimed, run, finished": "9,876 tasks/s",
        "whole way: submitted, run, every event published": "5,432 tasks/s",
        "submit → handler's start, idle, p50": "9.0 ms",
        "submit → handler's start, idle, p99": "21.1 ms",
        "Postgres: there and back": "0.40 ms",
        "Postgres: one commit": "4.1 ms",
        "NATS: there and back": "0.10 ms",
        "NATS: one message stored": "0.25 ms",
    }
    assert lines[11].startswith("one commit takes 4.1 ms here, 0.40 ms of that the way to Postgres")
    assert "makes 244 a second at most" in lines[11]
    assert lines[12].startswith("one message takes 0.25 ms to be stored, 0.10 ms of that the way to NATS")


def test_the_payload_has_the_size_that_was_asked_for() -> None:
    for size in (16, 200, 5000):
        payload = Plan(tasks=100, concurrency=1, payload_bytes=size).payload
        assert len(json.dumps(payload, separators=(",", ":"))) == size
