"""Processes of grns, started for a while and ended together."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from grns.dev.servers.process import Process
from grns.errors import GrnsError

_STOP_SECONDS = 15.0
_LOG_CHARACTERS = 2000


class ProcessGroup:
    """Starts them, sees whether all are there, and ends them; the log of each is in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._members: dict[str, Process] = {}

    def start(self, name: str, *arguments: str, environment: Mapping[str, str]) -> Process:
        """Start `grns <arguments>` under a name of its own; it ends with this process, however that ends."""
        process = Process(
            [sys.executable, "-m", "grns", *arguments],
            log=self._directory / f"{name}.log",
            environment=dict(environment),
        )
        self._members[name] = process
        process.start()
        return process

    def kill(self, process: Process) -> None:
        """End one with SIGKILL: it gets no chance to say anything, and is not missed."""
        self._members = {name: member for name, member in self._members.items() if member is not process}
        process.kill()

    def check(self) -> None:
        """Raise an error where one has ended that nobody has killed."""
        for name, process in self._members.items():
            if not process.running:
                raise GrnsError(f"the process {name} has ended by itself")

    def logs(self) -> dict[str, str]:
        """Return the end of what each process has written."""
        return {
            path.stem: path.read_text(encoding="utf-8", errors="replace")[-_LOG_CHARACTERS:]
            for path in sorted(self._directory.glob("*.log"))
        }

    def end(self) -> None:
        """Ask all to end, and kill those that do not in time."""
        with ThreadPoolExecutor(len(self._members) or 1) as threads:
            list(threads.map(_end, self._members.values()))


def _end(process: Process) -> None:
    process.stop(signal.SIGTERM, timeout_seconds=_STOP_SECONDS)
