"""Servers for tests: one Postgres per run, a database per test, a broker in milliseconds."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import hypothesis
import pytest
import structlog
import uvloop

from grns.dev.servers import LocalNats, LocalPostgres
from grns.dev.servers.cluster import PASSWORDS
from grns.postgres import migrate
from grns.postgres.database import Database
from tests.support.harness import Fleet

pytest_plugins = ["tests.support.store", "tests.support.api", "tests.support.web", "tests.support.cli"]

# The same examples each time, however busy the machine is.
hypothesis.settings.register_profile(
    "grns", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("grns")

# Files in memory: a database has hundreds, and a disk takes several times as long to create them.
_MEMORY = Path("/dev/shm")
if "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > 4 << 30:
    os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)

_TEMPLATE = "grns_template"
_TESTS = Path(__file__).parent
_NIGHTLY = {"browser", "faults", "foreign", "site"}
# What takes long: other examples of what shorter tests look at, and what changes seldom.
_LONG = {
    "interleavings/test_model.py",
    "process/test_client.py",
    "process/test_drift.py",
    "process/test_embed.py",
    "process/test_foreign_client.py",
    "process/test_init.py",
    "process/test_otlp.py",
    "process/test_payload_secrets.py",
    "process/test_pytest_plugin.py",
    "web/test_hostile.py",
    "workflows/test_random_graphs.py",
}
_PROCESS = {"dev", "process"}
_SERVERS = {"bench", "chaos", "nats"}  # some of their tests start a server without a fixture


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run each test on asyncio's own loop; uvloop is for those that name their loops."""
    marker = item.get_closest_marker("asyncio")
    if marker is None or "loop_factories" not in marker.kwargs:
        return {"asyncio": asyncio.new_event_loop}
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its tier: `unit` (no server), `integration`, `process` (starts grns), `nightly`."""
    for item in items:
        path = item.path.relative_to(_TESTS)
        folder = path.parts[0]
        fixtures = set(getattr(item, "fixturenames", ()))
        if folder in _NIGHTLY or path.as_posix() in _LONG:
            item.add_marker("nightly")
        elif folder in _PROCESS or "fleet" in fixtures:
            item.add_marker("process")
        else:
            has_server = folder in _SERVERS or fixtures & {"directory", "broker"}
            item.add_marker("integration" if has_server else "unit")


@pytest.fixture(autouse=True)
def _own_environment() -> Iterator[None]:
    """Take back what a command has handed on as environment: the next test must not hear of it."""
    before = {name: value for name, value in os.environ.items() if name.startswith("GRNS_")}
    yield
    for name in [name for name in os.environ if name.startswith("GRNS_")]:
        if before.get(name) != os.environ[name]:
            del os.environ[name]
    os.environ.update(before)


@pytest.fixture(autouse=True)
def _own_log() -> Iterator[None]:
    """Take back where a command has its log written: that file is closed when the next test logs."""
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def directory() -> Iterator[Path]:
    """A directory that the user `nobody` can reach too: as root, Postgres runs as that one."""
    path = Path(tempfile.mkdtemp(prefix="grns-tests-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres(directory: Path) -> Iterator[LocalPostgres]:
    """One server for the run; `GRNS_TEST_POSTGRES` names another version's bin directory."""
    named = os.environ.get("GRNS_TEST_POSTGRES")
    with LocalPostgres(directory / "postgres", bin_directory=Path(named) if named else None) as server:
        asyncio.run(prepare(server))
        yield server


async def prepare(server: LocalPostgres) -> None:
    """Create the template of the tests' databases, and make passwords cheap to check."""
    connection = await asyncpg.connect(server.admin_url)
    await connection.execute(f"create database {_TEMPLATE}")
    if connection.get_server_version().major >= 16:
        await connection.execute("set scram_iterations = 1")
        passwords = json.loads((server.data / "cluster" / PASSWORDS).read_text())
        for role, password in passwords.items():
            await connection.execute(f"alter role {role} password '{password}'")
    await connection.close()
    await migrate.upgrade(_url(server, _TEMPLATE))


@asynccontextmanager
async def new_database(postgres: LocalPostgres) -> AsyncIterator[str]:
    """Have a migrated database of one's own; yields its URL."""
    name = f"test_{uuid.uuid4().hex}"
    connection = await asyncpg.connect(postgres.admin_url)
    try:
        await connection.execute(f"create database {name} template {_TEMPLATE}")
        yield _url(postgres, name)
        await connection.execute(f"drop database {name} with (force)")
    finally:
        await connection.close()


@pytest.fixture
async def database_url(postgres: LocalPostgres) -> AsyncIterator[str]:
    """A migrated database of the test's own."""
    async with new_database(postgres) as url:
        yield url


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """Connections to the test's own database."""
    database = Database(database_url, name="test", size=8)
    await database.connect()
    yield database
    await database.close()


@pytest.fixture
def broker(directory: Path) -> Iterator[LocalNats]:
    """A broker of the test's own."""
    with LocalNats(directory / f"nats-{uuid.uuid4().hex}") as server:
        yield server


@pytest.fixture
def in_environment(database_url: str, broker: LocalNats, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what reads the environment find the test's own servers."""
    monkeypatch.setenv("GRNS_DATABASE_URL", database_url)
    monkeypatch.setenv("GRNS_NATS_URL", broker.url)


@pytest.fixture
def fleet(tmp_path: Path, database_url: str, broker: LocalNats) -> Iterator[Fleet]:
    """Processes of grns on the test's own servers."""
    environment = {
        "GRNS_DATABASE_URL": database_url,
        "GRNS_NATS_URL": broker.url,
        "GRNS_LOG_FORMAT": "json",
        "PYTHONPATH": str(Path(__file__).parent.parent),
    }
    fleet = Fleet(tmp_path, environment)
    yield fleet
    fleet.end()


@pytest.fixture
def journal(tmp_path: Path) -> Callable[[], list[str]]:
    """What handlers wrote into the file that `GRNS_TEST_JOURNAL` names."""
    path = tmp_path / "journal"
    path.touch()
    os.environ["GRNS_TEST_JOURNAL"] = str(path)
    return lambda: path.read_text().splitlines()


def _url(server: LocalPostgres, name: str) -> str:
    return server.admin_url.rsplit("/", 1)[0] + "/" + name
