"""The material: Python files of this installation, and what their digests must be."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sysconfig
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

from workers.digest import Digest, digest

_CHUNK = 25
_PROCESSES = 2


def roots() -> list[Path]:
    """Return the directories below which the files are."""
    return [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")]


def files(count: int) -> list[Path]:
    """Return so many files, from everywhere in the standard library.

    Where a distribution has left its tests out, other installed packages fill up.
    """
    library, packages = roots()
    found = _python_files(library)
    if len(found) < count:
        found += _python_files(packages, is_library=False)
    count = min(count, len(found))
    return [found[place * len(found) // count] for place in range(count)]


@asynccontextmanager
async def expectations(paths: list[Path]) -> AsyncIterator[asyncio.Task[dict[str, Digest]]]:
    """Compute every digest directly, in processes beside those of grns."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(_PROCESSES, context, _begin) as processes:
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


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the demo, which ends us


def _python_files(root: Path, *, is_library: bool = True) -> list[Path]:
    found = []
    for directory, children, names in os.walk(root):
        if is_library and "site-packages" in children:
            children.remove("site-packages")
        found += [Path(directory, name) for name in names if name.endswith(".py")]
    return sorted(path for path in found if path.is_file() and not path.is_symlink())
