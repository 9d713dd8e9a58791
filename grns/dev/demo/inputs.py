"""Input of the demo: Python files with their digests, and messages that grns must reject."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import sysconfig
import uuid
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import nats
from nats.js.errors import NoStreamResponseError

from workers.digest import Digest, digest

_EXECUTE = "cmd.task.execute.v1"
_CHUNK, _PROCESSES = 25, 2
_RETRY_SECONDS = 0.1


def roots() -> list[Path]:
    """Return the directories that contain the files."""
    return [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")]


def files(count: int) -> list[Path]:
    """Return `count` files, spread over the standard library; installed packages fill up a small library."""
    library, packages = roots()
    paths = _python_files(library, without="site-packages")
    if len(paths) < count:
        paths += _python_files(packages)
    count = min(count, len(paths))
    return [paths[index * len(paths) // count] for index in range(count)]


def _python_files(root: Path, *, without: str | None = None) -> list[Path]:
    paths = []
    for directory, children, names in os.walk(root):
        if without in children:
            children.remove(without)
        paths += [Path(directory, name) for name in names if name.endswith(".py")]
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())


@asynccontextmanager
async def expected_digests(paths: list[Path]) -> AsyncIterator[asyncio.Task[dict[str, Digest]]]:
    """Compute every digest without grns, in separate processes."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(_PROCESSES, context, _ignore_interrupts) as processes:
        task = asyncio.create_task(_compute(processes, [str(path) for path in paths]))
        try:
            yield task
        finally:
            task.cancel()
            processes.shutdown(wait=False, cancel_futures=True)


async def _compute(processes: ProcessPoolExecutor, paths: list[str]) -> dict[str, Digest]:
    loop = asyncio.get_running_loop()
    chunks = [paths[start : start + _CHUNK] for start in range(0, len(paths), _CHUNK)]
    parts = await asyncio.gather(*(loop.run_in_executor(processes, _digests, chunk) for chunk in chunks))
    return dict(pair for part in parts for pair in part)


def _digests(paths: list[str]) -> list[tuple[str, Digest]]:
    return [(path, digest(Path(path).read_bytes())) for path in paths]


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the demo receives Ctrl-C and ends these processes


async def publish_invalid(url: str) -> list[bytes]:
    """Publish a malformed message and a command for an unknown task, as a foreign program would.

    Returns:
        The two bodies. They are published once the stream exists.
    """
    unknown = {
        "schema_version": "v1",
        "message_id": str(uuid.uuid4()),
        "trace_id": uuid.uuid4().hex,
        "causation_id": None,
        "kind": "cmd.task.execute",
        "emitted_at": datetime.now(UTC).isoformat(),
        "payload": {"task_id": "gr-unknown-task", "target_agent_type": "digest"},
    }
    malformed = b'{"schema_version": "v1", "kind": "cmd.task.execute", "payload": {"task_id": "gr-'
    bodies = [malformed, json.dumps(unknown).encode()]
    client = await nats.connect(url, name="a foreign system")
    try:
        for body in bodies:
            while True:
                try:
                    await client.jetstream().publish(_EXECUTE, body)
                    break
                except NoStreamResponseError:
                    await asyncio.sleep(_RETRY_SECONDS)
    finally:
        await client.close()
    return bodies
