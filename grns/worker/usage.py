"""How much memory and CPU a process uses."""

from __future__ import annotations

import os
import time
from pathlib import Path

_MIB = 1024 * 1024


class ProcessUsage:
    """Reads what a process uses, where the system has `/proc`."""

    def __init__(self, pid: int) -> None:
        self._directory = Path("/proc") / str(pid)
        self._seconds = self._cpu_seconds()
        self._read_at = time.monotonic()

    def read(self) -> tuple[float | None, float | None]:
        """Return its memory in MiB, and its CPU in percent of a core since the last call; None: unknown."""
        before, read_before = self._seconds, self._read_at
        self._seconds, self._read_at = self._cpu_seconds(), time.monotonic()
        if self._seconds is None or before is None or self._read_at == read_before:
            return self._memory_mb(), None
        return self._memory_mb(), max(0.0, 100 * (self._seconds - before) / (self._read_at - read_before))

    def _memory_mb(self) -> float | None:
        try:
            pages = int((self._directory / "statm").read_text().split()[1])
        except (OSError, IndexError, ValueError):
            return None
        return pages * os.sysconf("SC_PAGE_SIZE") / _MIB

    def _cpu_seconds(self) -> float | None:
        try:
            # The name of the program is in parentheses, and may contain spaces.
            fields = (self._directory / "stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except (OSError, IndexError, ValueError):
            return None
