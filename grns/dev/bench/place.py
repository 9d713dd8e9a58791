"""A place of its own on the user's servers: a database, streams and a directory, all of one name."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from grns.bootstrap.app import App
from grns.dev.bench.plan import Plan
from grns.errors import GrnsError
from grns.model import server_url
from grns.nats import JetStream
from grns.postgres import migrate, scratch
from grns.postgres.database import Database
from grns.settings import Settings

Say = Callable[[str], None]

_GRACE_SECONDS = 2.0
# No message is larger, and a task has one command and three events.
_MESSAGE_BYTES, _COMMANDS, _EVENTS = 1024, 1, 3
_SPARE_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BenchDatabase:
    """Where a benchmark works: settings that lead nowhere else, and a directory for logs."""

    settings: Settings
    directory: Path


@asynccontextmanager
async def made(settings: Settings, plan: Plan, say: Say) -> AsyncIterator[BenchDatabase]:
    """Make a place on the servers of `settings`, and remove it however the work in it ends.

    What a run that was killed has left behind is removed first. Nothing is made unless both servers answer.
    """
    name = scratch.new_name()
    url = settings.require_database_url()
    ours = _settings(settings, plan, name)
    async with scratch.announced(url, name) as server, _broker(ours) as broker:
        for left in await scratch.left_over(server):
            if await _remove(server, settings, left, say):
                say(f"removed {left}, which a run that was killed had left behind")
        try:
            await scratch.make(server, name)
            await migrate.upgrade(ours.require_database_url())
            await broker.provision()
            yield BenchDatabase(ours, _make_directory(name))
        finally:
            await _undisturbed(_remove(server, settings, name, say))


async def _undisturbed(work: Coroutine[Any, Any, object]) -> None:
    """Do the work to its end, also where we are cancelled meanwhile; a second time ends it."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


async def _remove(server: Database, settings: Settings, name: str, say: Say) -> bool:
    """Remove what there is of a place; False where that failed, which is told.

    The database goes last: as long as it is there, somebody comes for the rest.
    """
    shutil.rmtree(_directory(name), ignore_errors=True)
    try:
        async with _broker(settings.model_copy(update={"nats_namespace": name})) as broker:
            await broker.remove()
        await scratch.drop(server, name)
    except GrnsError as error:
        say(f"{name} is left behind, and the next `grns admin bench` here removes it: {error}")
        return False
    return True


@asynccontextmanager
async def _broker(settings: Settings) -> AsyncIterator[JetStream]:
    transport = App(settings).transport("bench")
    await transport.connect()
    try:
        yield transport
    finally:
        await transport.close()


def _settings(settings: Settings, plan: Plan, name: str) -> Settings:
    """Return the user's settings, but for where they lead, and for what would be in the way."""
    url = server_url.with_database(settings.require_database_url(), name)
    credentials = settings.nats_credentials_file
    room = _MESSAGE_BYTES * plan.all_tasks
    return settings.model_copy(
        update={
            "database_url": SecretStr(url),
            "nats_credentials_file": credentials and credentials.absolute(),  # processes run elsewhere
            "nats_namespace": name,
            "nats_manage": "apply",
            # What a stream may take is set aside for it, and the user's own streams need theirs.
            "nats_cmd_max_bytes": _SPARE_BYTES + _COMMANDS * room,
            "nats_evt_max_bytes": _SPARE_BYTES + _EVENTS * room,
            "nats_dlq_max_bytes": _SPARE_BYTES,
            "concurrency": plan.concurrency,
            "shutdown_grace_seconds": _GRACE_SECONDS,
            "metrics_port": None,
            "log_level": "warning",
        }
    )


def _make_directory(name: str) -> Path:
    directory = _directory(name)
    directory.mkdir(mode=0o700)
    return directory


def _directory(name: str) -> Path:
    return Path(tempfile.gettempdir(), name)
