"""Peers whose jobs wait in a broker of their own: Celery, Dramatiq, taskiq."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from grns.dev.servers import LocalNats
from tests.bench.peers import rabbitmq
from tests.bench.peers.drain import measure
from tests.bench.peers.peer import PeerUnavailable
from tests.bench.peers.program import Program


class FileWatch:
    """Sees how far workers are in a file that each job makes longer by one byte."""

    def __init__(self, file: Path, *, rows: int) -> None:
        self._file = file
        self._rows = rows

    @classmethod
    def on(cls, file: Path, *, rows: int) -> FileWatch | None:
        """Return a watch on the file, or None where there is none: it is made when all jobs are."""
        return cls(file, rows=rows) if file.exists() else None

    async def has_begun(self) -> bool:
        """Tell whether a job has run."""
        return self._file.stat().st_size > 0

    async def has_ended(self) -> bool:
        """Tell whether as many jobs have run as there were."""
        return self._file.stat().st_size >= self._rows


# Runs a broker on a new directory, and gives its URL.
Broker = Callable[[Path], AbstractAsyncContextManager[str]]


@asynccontextmanager
async def nats(directory: Path) -> AsyncIterator[str]:
    """Run the nats-server that grns runs on."""
    broker = LocalNats(directory)
    await asyncio.to_thread(broker.start)
    try:
        yield broker.url
    finally:
        await asyncio.to_thread(broker.stop)


class BrokerPeer:
    """A peer whose jobs wait in a broker; its worker says in a file what it has run."""

    def __init__(self, program: Program, broker: Broker) -> None:
        self.name = program.name
        self._program = program
        self._broker = broker

    async def prepare(self, directory: Path) -> str:
        """Install the peer, and return its version; raises PeerUnavailable without a broker."""
        if self._broker is rabbitmq.broker:
            rabbitmq.programs()
        return await self._program.install(directory)

    async def drain(self, postgres_url: str, rows: int) -> float:
        """Let one worker run `rows` jobs that do nothing, and return jobs/s; Postgres has no part in it."""
        with tempfile.TemporaryDirectory(prefix="grns-bench-") as name:
            ran = Path(name, "ran")
            async with self._broker(Path(name, "broker")) as url:
                said = await self._program.fill(url, rows, str(ran))
                watch = FileWatch.on(ran, rows=rows)
                if watch is None:
                    raise PeerUnavailable(f"{self.name} did not make {rows} jobs\n{said}".rstrip())
                return await measure(self._program.worker(url, str(ran)), watch, rows)
