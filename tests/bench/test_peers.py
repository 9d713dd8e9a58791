"""What we compare with is installed as it is pinned, timed by one rule, and leaves nothing behind.

The peers themselves run in `make bench` only: the suite installs nothing.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from pathlib import Path

import asyncpg
import pytest

from grns.dev.servers import LocalPostgres
from grns.dev.servers.process import Process
from tests.bench import peers
from tests.bench.peers import PEERS, PeerUnavailable, drain
from tests.bench.peers.broker import FileWatch
from tests.bench.peers.packages import NodePackages, PythonPackages
from tests.bench.peers.peer import PAYLOAD
from tests.bench.peers.postgres import JobTable, PostgresPeer, TableWatch, scratch_database
from tests.bench.peers.program import Program
from tests.support.harness import eventually

TABLE = JobTable("jobs", untaken="taken_at is null")
PYTHON = PythonPackages("peer", "1.2.3", "beside==4.5")
NODE = NodePackages("peer", "1.2.3", node="24.0.0")

# A worker that takes a while to start, and then adds a byte to its file for each of two jobs.
SLOW_STARTER = """
import pathlib, sys, time
time.sleep(0.3)
with pathlib.Path(sys.argv[1]).open("ab", buffering=0) as file:
    file.write(b".")
    time.sleep(0.5)
    file.write(b".")
time.sleep(600)
"""

# Jobs in a table, taken two at a time.
PROGRAM = """
import asyncio, sys, asyncpg

async def fill(url, rows):
    connection = await asyncpg.connect(url)
    await connection.execute("create table jobs (id bigint primary key, taken_at timestamptz)")
    await connection.execute("insert into jobs select generate_series(1, $1::bigint)", rows)

async def work(url):
    connection = await asyncpg.connect(url)
    for job in range(1, 21, 2):
        await connection.execute("update jobs set taken_at = now() where id between $1 and $2", job, job + 1)
        await asyncio.sleep(0.05)
        await connection.execute("delete from jobs where taken_at is not null")
    await asyncio.sleep(600)

match sys.argv[1:]:
    case ["fill", url, rows, payload]:
        asyncio.run(fill(url, int(rows)))
    case ["work", url]:
        asyncio.run(work(url))
"""


class Ours(PythonPackages):
    """What we have ourselves."""

    def installed(self, directory: Path) -> str:
        return self.version

    def interpreter(self, directory: Path) -> list[str]:
        return [sys.executable, "-I"]


def worker(directory: Path, script: str, *arguments: str) -> Process:
    return Process([sys.executable, "-I", "-c", script, *arguments], log=directory / "worker.log")


def ran(directory: Path) -> Path:
    file = directory / "ran"
    file.touch()
    return file


@pytest.fixture
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No program of this machine is found by its name."""
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))


async def scratch_databases(server: LocalPostgres) -> list[str]:
    connection = await asyncpg.connect(server.admin_url)
    rows = await connection.fetch("select datname from pg_database where datname like 'bench\\_%'")
    await connection.close()
    return [row["datname"] for row in rows]


async def fill(connection: asyncpg.Connection, rows: int) -> None:
    await connection.execute("create table jobs (id bigint primary key, taken_at timestamptz)")
    await connection.execute("insert into jobs select generate_series(1, $1::bigint)", rows)


def test_each_peer_has_its_name_and_its_program() -> None:
    with_broker = ["celery", "dramatiq", "taskiq-nats"]
    assert list(PEERS) == ["pgqueuer", "procrastinate", "graphile-worker", *with_broker]
    assert all(peer.name == name for name, peer in PEERS.items())
    programs = {path.name for path in Path(peers.__file__).parent.glob("*_worker.*")}
    named = set(re.findall(r'Program\("([a-z_.]+)"', Path(peers.__file__).read_text()))
    assert named == programs
    assert len(named) == len(PEERS)


def test_the_payload_is_of_two_hundred_bytes() -> None:
    assert len(PAYLOAD.encode()) == 200


def test_a_venv_is_made_and_filled_with_pinned_packages() -> None:
    place = Path("/bench/peer")
    make, install = PYTHON.steps(place)
    assert make == [sys.executable, "-I", "-m", "venv", "/bench/peer"]
    assert install[:5] == ["/bench/peer/bin/python", "-I", "-m", "pip", "install"]
    assert install[-2:] == ["peer==1.2.3", "beside==4.5"]
    assert PYTHON.interpreter(place) == install[:2], "neither our packages nor this directory are seen"


def test_npm_installs_pinned_packages_and_runs_none_of_their_scripts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm = tmp_path / "npm"
    npm.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    (step,) = NODE.steps(tmp_path / "peer")
    assert step[:2] == [str(npm), "install"]
    assert {"--ignore-scripts", "peer@1.2.3"} <= set(step)
    assert step[step.index("--prefix") + 1] == str(tmp_path / "peer")


def test_a_node_of_its_own_runs_what_npm_installed(tmp_path: Path) -> None:
    assert NODE.interpreter(tmp_path) == ["node"]
    own = tmp_path / "node_modules" / ".bin" / "node"
    own.parent.mkdir(parents=True)
    own.touch()
    assert NODE.interpreter(tmp_path) == [str(own)]


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize(
    ("name", "program"), [("graphile-worker", "npm"), ("celery", "rabbitmq-server")], ids=["npm", "broker"]
)
async def test_a_peer_says_what_it_lacks(tmp_path: Path, name: str, program: str) -> None:
    with pytest.raises(PeerUnavailable, match=f"^{program} is not installed$"):
        await PEERS[name].prepare(tmp_path)


@pytest.mark.usefixtures("nothing_installed")
async def test_what_is_installed_is_not_installed_again(tmp_path: Path) -> None:
    module = tmp_path / "node" / "node_modules" / "peer"
    module.mkdir(parents=True)
    (module / "package.json").write_text('{"version": "1.2.3"}')
    await NODE.install(tmp_path / "node")
    distribution = tmp_path / "python" / "lib" / "python3.11" / "site-packages" / "peer-1.2.3.dist-info"
    distribution.mkdir(parents=True)
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: peer\nVersion: 1.2.3\n")
    await PYTHON.install(tmp_path / "python")
    assert set(os.listdir(tmp_path / "python")) == {"lib"}, "no venv was made"


@pytest.mark.usefixtures("nothing_installed")
async def test_another_version_does_not_do(tmp_path: Path) -> None:
    module = tmp_path / "node_modules" / "peer"
    module.mkdir(parents=True)
    (module / "package.json").write_text('{"version": "1.2.2"}')
    with pytest.raises(PeerUnavailable, match="npm is not installed"):
        await NODE.install(tmp_path)


async def test_the_start_of_a_worker_does_not_count(tmp_path: Path) -> None:
    process = worker(tmp_path, SLOW_STARTER, str(ran(tmp_path)))
    began = time.perf_counter()
    rate = await drain.measure(process, FileWatch(tmp_path / "ran", rows=2), rows=2)
    seconds = time.perf_counter() - began
    assert 0.2 < 2 / rate < seconds - 0.3
    assert not process.running


async def test_a_worker_that_ends_early_is_quoted(tmp_path: Path) -> None:
    process = worker(tmp_path, "raise SystemExit('no such table')")
    with pytest.raises(PeerUnavailable, match="ended before its time\nno such table"):
        await drain.measure(process, FileWatch(ran(tmp_path), rows=2), rows=2)


async def test_a_program_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    process = Process([str(tmp_path / "nowhere")], log=tmp_path / "worker.log")
    with pytest.raises(PeerUnavailable, match=r"cannot run .*nowhere"):
        await drain.complete(process, within_seconds=1)


async def test_who_takes_too_long_is_ended(tmp_path: Path) -> None:
    process = worker(tmp_path, "import time; time.sleep(600)")
    with pytest.raises(PeerUnavailable, match=r"took over 0\.1 s"):
        await drain.complete(process, within_seconds=0.1)
    assert not process.running


async def test_a_drain_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    process = worker(tmp_path, "import time; time.sleep(600)")
    run = asyncio.create_task(drain.measure(process, FileWatch(ran(tmp_path), rows=2), rows=2))

    async def runs() -> bool:
        return process.running

    await eventually(runs)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert not process.running


async def test_a_drain_begins_with_the_first_job_taken_and_ends_with_the_last_gone(
    postgres: LocalPostgres,
) -> None:
    async with scratch_database(postgres.admin_url) as url:
        connection = await asyncpg.connect(url)
        await fill(connection, 3)
        watch = await TableWatch.on(connection, TABLE, 3)
        assert watch is not None
        assert (await watch.has_begun(), await watch.has_ended()) == (False, False)
        await connection.execute("update jobs set taken_at = now() where id = 2")
        assert (await watch.has_begun(), await watch.has_ended()) == (True, False)
        await connection.execute("delete from jobs where id in (2, 3)")
        assert (await watch.has_begun(), await watch.has_ended()) == (True, False), "one of them is left"
        await connection.execute("delete from jobs")
        assert (await watch.has_begun(), await watch.has_ended()) == (True, True)
        await connection.close()


async def test_a_job_that_was_taken_and_is_gone_already_has_begun_the_drain(postgres: LocalPostgres) -> None:
    async with scratch_database(postgres.admin_url) as url:
        connection = await asyncpg.connect(url)
        await fill(connection, 3)
        watch = await TableWatch.on(connection, TABLE, 3)
        await connection.execute("delete from jobs where id = 1")
        assert watch is not None
        assert await watch.has_begun()
        await connection.close()


async def test_a_table_without_all_jobs_is_not_drained(postgres: LocalPostgres) -> None:
    async with scratch_database(postgres.admin_url) as url:
        connection = await asyncpg.connect(url)
        assert await TableWatch.on(connection, TABLE, 3) is None, "there is none"
        await fill(connection, 2)
        assert await TableWatch.on(connection, TABLE, 3) is None
        await connection.close()


async def test_a_scratch_database_goes_whatever_happens_and_whoever_uses_it(postgres: LocalPostgres) -> None:
    strangers: list[asyncpg.Connection] = []

    async def fail() -> None:
        async with scratch_database(postgres.admin_url) as url:
            strangers.append(await asyncpg.connect(url))
            raise RuntimeError("x")

    with pytest.raises(RuntimeError, match="x"):
        await fail()
    strangers[0].terminate()
    assert not await scratch_databases(postgres)


def stand_in(directory: Path, program: str) -> PostgresPeer:
    """Return a peer that needs nothing but what we have."""
    (directory / "program.py").write_text(program)
    return PostgresPeer(Program(str(directory / "program.py"), Ours("peer", "1.2.3")), TABLE)


async def test_a_peer_drains_what_it_was_filled_with(tmp_path: Path, postgres: LocalPostgres) -> None:
    peer = stand_in(tmp_path, PROGRAM)
    assert await peer.prepare(tmp_path) == "1.2.3"
    assert 0 < await peer.drain(postgres.admin_url, 20) < 20 / 0.2
    assert not await scratch_databases(postgres)


async def test_a_peer_that_makes_no_jobs_is_quoted(tmp_path: Path, postgres: LocalPostgres) -> None:
    peer = stand_in(tmp_path, "raise SystemExit('no such option')")
    await peer.prepare(tmp_path)
    with pytest.raises(PeerUnavailable, match="peer did not make 20 jobs\nno such option"):
        await peer.drain(postgres.admin_url, 20)
    assert not await scratch_databases(postgres)


async def test_a_peer_that_was_not_prepared_says_so(postgres: LocalPostgres) -> None:
    peer = PostgresPeer(Program("pgqueuer_worker.py", PYTHON), TABLE)
    with pytest.raises(PeerUnavailable, match="peer was not prepared"):
        await peer.drain(postgres.admin_url, 10)
