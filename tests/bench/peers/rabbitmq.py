"""A RabbitMQ of our own: on ports of 127.0.0.1, with its data under a directory, ended with its user."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from grns.dev.servers.port import HOST, free_port
from grns.dev.servers.process import Process
from tests.bench.peers.drain import started, until
from tests.bench.peers.peer import PeerUnavailable
from tests.support.harness import START_SECONDS

_USER = "rabbitmq"  # whom its program becomes where root starts it
_PID_FILE = "pid"
_END_SECONDS = 15.0
_LOOK_SECONDS = 0.2


def programs() -> tuple[str, str]:
    """Return the paths of `epmd`, which Erlang needs beside each server, and of `rabbitmq-server`."""
    epmd, server = shutil.which("epmd"), shutil.which("rabbitmq-server")
    if epmd is None or server is None:
        raise PeerUnavailable(f"{'rabbitmq-server' if server is None else 'epmd'} is not installed")
    return epmd, server


@asynccontextmanager
async def broker(directory: Path) -> AsyncIterator[str]:
    """Run a broker on the new directory `directory`, and return its URL; raises PeerUnavailable."""
    epmd, server = programs()
    _make(directory)
    port, names_port = free_port(), free_port()
    names = Process([epmd, "-address", HOST, "-port", str(names_port)], log=directory.parent / "epmd.log")
    process = Process(
        [server],
        log=directory.parent / "rabbitmq.log",
        environment=_environment(directory, port=port, names_port=names_port),
    )

    async def serves() -> bool:
        return await _answers(port)

    async with started(names), started(process):
        try:
            await until(serves, process, within_seconds=START_SECONDS)
            yield f"amqp://guest:guest@{HOST}:{port}//"
        finally:
            await _end(directory / _PID_FILE)


async def _end(pid_file: Path) -> None:
    """End the server itself: what was started is a shell that ends without it."""
    try:
        pid = int(await asyncio.to_thread(pid_file.read_text))
    except (OSError, ValueError):
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _END_SECONDS
        while time.monotonic() < deadline:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                return
            await asyncio.sleep(_LOOK_SECONDS)


def _environment(directory: Path, *, port: int, names_port: int) -> dict[str, str]:
    """Return what keeps a server within its directory and on this machine."""
    return {
        "HOME": str(directory),
        "ERL_EPMD_ADDRESS": HOST,
        "ERL_EPMD_PORT": str(names_port),
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": HOST,
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_MNESIA_BASE": str(directory),
        "RABBITMQ_LOG_BASE": str(directory),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_PID_FILE": str(directory / _PID_FILE),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
    }


def _make(directory: Path) -> None:
    """Make the directory, within reach of the user that the server becomes, where there is one."""
    directory.mkdir()
    if os.geteuid() == 0:
        with suppress(LookupError):
            shutil.chown(directory, _USER)
            directory.parent.chmod(0o711)


async def _answers(port: int) -> bool:
    """Tell whether somebody speaks AMQP on this port."""
    try:
        reader, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return False
    try:
        writer.write(b"AMQP\x00\x00\x09\x01")
        return bool(await reader.read(1))
    except OSError:
        return False
    finally:
        writer.close()
