"""A peer's own program: what it makes its jobs with, and what its worker is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from grns.dev.servers.process import Process
from tests.bench.peers.drain import complete
from tests.bench.peers.packages import Packages
from tests.bench.peers.peer import PAYLOAD, PeerUnavailable

_FILL_SECONDS = 600.0


class Program:
    """A file of this package, run with the interpreter of the peer's packages.

    It knows two commands: `fill URL ROWS PAYLOAD …` makes jobs, `work URL …` runs them until it is ended.
    """

    def __init__(self, file: str, packages: Packages, environment: Mapping[str, str] | None = None) -> None:
        self.name = packages.name
        self._file = Path(__file__).parent / file
        self._packages = packages
        self._environment = dict(environment or {})
        self._directory: Path | None = None

    async def install(self, directory: Path) -> str:
        """Install the packages in a directory of their own under `directory`; return the peer's version."""
        place = self._place(directory)
        await self._packages.install(place)
        self._directory = place
        return self._packages.version

    async def fill(self, url: str, rows: int, *more: str) -> str:
        """Have `rows` jobs made, and return what was said meanwhile; whether they are there is to be seen."""
        process = self._process("fill", url, str(rows), PAYLOAD, *more)
        await complete(process, within_seconds=_FILL_SECONDS)
        return process.tail()

    def worker(self, url: str, *more: str) -> Process:
        """Return a worker process that has not been started."""
        return self._process("work", url, *more)

    def _place(self, directory: Path) -> Path:
        """Make the directory of the packages."""
        place = directory.absolute() / self.name
        place.mkdir(parents=True, exist_ok=True)
        return place

    def _process(self, verb: str, *arguments: str) -> Process:
        if self._directory is None:
            raise PeerUnavailable(f"{self.name} was not prepared")
        return Process(
            [*self._packages.interpreter(self._directory), str(self._file), verb, *arguments],
            log=self._directory / f"{verb}.log",
            environment=self._environment,
            directory=self._directory,
        )
