"""Fixtures of the tests of the command line: servers, and a caller of commands."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import nats
import pytest

from grns.cli import run
from grns.dev.servers import LocalNats, LocalPostgres
from tests.support.harness import START_SECONDS, Fleet, eventually
from tests.support.store import new_database

CANARY = "canary-7f3a"


SOURCE = Path(json.__file__)


UNKNOWN = "gr-nobodyknowsthis"


@dataclass(frozen=True)
class CliServers:
    """Servers with daemons and a worker of `workers.digest`, for all tests of this module."""

    postgres: LocalPostgres
    database_url: str
    nats_url: str

    def make_database(self, name: str, *, like: str = "template1") -> str:
        """Create a database and return its URL."""

        async def create() -> None:
            connection = await asyncpg.connect(self.postgres.admin_url)
            await connection.execute(f"create database {name} template {like}")
            await connection.close()

        asyncio.run(create())
        return self.postgres.admin_url.rsplit("/", 1)[0] + "/" + name


@pytest.fixture(scope="module")
def cli_servers(
    postgres: LocalPostgres, directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CliServers]:
    with LocalNats(directory / "nats-of-the-command-line") as broker:
        cli_servers = CliServers(postgres, "", broker.url)
        url = cli_servers.make_database(f"cli_{uuid4().hex}", like="grns_template")
        environment = {
            "GRNS_DATABASE_URL": url,
            "GRNS_NATS_URL": broker.url,
            "GRNS_LOG_FORMAT": "json",
        }
        fleet = Fleet(tmp_path_factory.mktemp("cli"), environment)
        fleet.start("server")
        fleet.start("worker", "start", "workers.digest:pool")
        # A test may publish without JetStream's answer: what comes before its stream is nobody's.
        asyncio.run(_has_streams(broker.url))
        yield CliServers(postgres, url, broker.url)
        fleet.end()


async def _has_streams(url: str) -> None:
    """Wait until the server has made its streams."""
    client = await nats.connect(url)

    async def names() -> bool:
        return {"GRNS_CMD", "GRNS_EVT", "GRNS_DLQ"} <= {
            one.config.name for one in await stream.streams_info()
        }

    stream = client.jetstream()
    await eventually(names, within_seconds=START_SECONDS)
    await client.close()


@dataclass(frozen=True)
class Answer:
    """What one command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it wrote for programs."""
        return json.loads(self.out)

    @property
    def sentence(self) -> str:
        """Its error: one line of text, or of JSON from a daemon."""
        lines = [line.removeprefix("grns: ") for line in self.err.splitlines() if line.startswith("grns: ")]
        told = [json.loads(line) for line in self.err.splitlines() if line.startswith("{")]
        lines += [line["error"] for line in told if line["event"] == "service_failed"]
        assert len(lines) == 1, self.err
        return lines[0]

    @property
    def hint(self) -> str:
        """The next command that it names."""
        return next((line.removeprefix("  try: ") for line in self.err.splitlines() if "  try: " in line), "")


Call = Callable[..., Answer]


@pytest.fixture
def unconfigured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Call]:
    """Run commands in an empty directory, where no setting names a server."""
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("GRNS_")]:
        del os.environ[name]
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Answer:
        capsys.readouterr()
        kept = dict(os.environ)
        code = run(arguments)
        os.environ.clear()  # flags are handed on as environment
        os.environ.update(kept)
        answer = Answer(code, *capsys.readouterr())
        everything = answer.out + answer.err
        assert "Traceback" not in answer.err
        assert "bug in grns" not in everything, everything
        assert CANARY not in everything
        return answer

    yield call
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def url(postgres: LocalPostgres) -> str:
    """A migrated database of the test's own; it goes with its server."""
    return asyncio.run(new_database(postgres))


@pytest.fixture
def cli(url: str, unconfigured: Call) -> Call:
    """Run commands on the test's own database, without a broker."""
    os.environ["GRNS_DATABASE_URL"] = url
    os.environ["GRNS_NATS_URL"] = "nats://127.0.0.1:1"
    return unconfigured


@pytest.fixture
def grns(cli_servers: CliServers, unconfigured: Call) -> Call:
    """Run commands on those servers."""
    os.environ["GRNS_DATABASE_URL"] = cli_servers.database_url
    os.environ["GRNS_NATS_URL"] = cli_servers.nats_url
    return unconfigured


def digest(path: Path | str = SOURCE) -> list[str]:
    """Return what submits the digest of a file."""
    payload = json.dumps({"path": str(path)})
    return ["task", "submit", "digest_file", "--pool", "digest", "--payload", payload]
