"""Where it was measured, and with which versions."""

from __future__ import annotations

import asyncio
import os
import platform
from importlib.metadata import version
from pathlib import Path

import asyncpg

from grns.dev.servers.identity import nats_server

_LIBRARIES = ("grns", "nats-py", "asyncpg", "uvloop", "pydantic", "orjson")
_GIGABYTE = 1024**3


async def machine(connection: asyncpg.Connection) -> dict[str, str]:
    """Return what a reader has to know to compare, by name."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIGABYTE
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "processor": await asyncio.to_thread(_processor),
        "memory": f"{memory:.0f} GB",
        "kernel": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "PostgreSQL": str(await connection.fetchval("show server_version")),
        "fsync": str(await connection.fetchval("show fsync")),
        "nats-server": await _nats_version(),
        **{name: version(name) for name in _LIBRARIES},
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


async def _nats_version() -> str:
    process = await asyncio.create_subprocess_exec(
        str(nats_server()), "--version", stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    return said.decode().strip().removeprefix("nats-server: v")
