"""What processes use: CPU time and memory, as Linux tells it in /proc."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.dev.test_servers import family

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_MEGABYTE = 1024**2
_BLANK: Mapping[str, int] = {}


@dataclass(frozen=True)
class Usage:
    """CPU seconds since the start, and bytes of memory now; what processes share is counted once."""

    cpu_seconds: float
    rss_bytes: int

    @property
    def rss_megabytes(self) -> float:
        """The memory in MB."""
        return self.rss_bytes / _MEGABYTE


def usage_of(pid: int) -> Usage:
    """Return what a process uses with all that descends from it; those that have ended count, too."""
    return _usage(family(pid), has_children=True)


def own_usage() -> Usage:
    """Return what this process uses, without those that it has started."""
    return _usage({os.getpid()}, has_children=False)


def _usage(pids: set[int], *, has_children: bool) -> Usage:
    sizes = [_sizes(pid) for pid in pids]
    private = sum(size.get("RssAnon", 0) + size.get("RssFile", 0) for size in sizes)
    shared = max((size.get("RssShmem", 0) for size in sizes), default=0)
    return Usage(sum(_cpu_seconds(pid, has_children=has_children) for pid in pids), private + shared)


def _cpu_seconds(pid: int, *, has_children: bool) -> float:
    """Return its own time, perhaps with that of children which have ended: a parent inherits it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended meanwhile
        return 0.0
    user, system, childrens_user, childrens_system = (int(field) for field in fields[11:15])
    ticks = user + system + (childrens_user + childrens_system if has_children else 0)
    return ticks / _TICKS_PER_SECOND


def _sizes(pid: int) -> Mapping[str, int]:
    """Return the kinds of resident memory in bytes; nothing of a process that has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return _BLANK
    named = (line.partition(":") for line in lines if line.startswith("Rss"))
    return {name: int(value.split()[0]) * 1024 for name, _, value in named}
