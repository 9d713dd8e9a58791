"""Pages with a test module: it passes, fixtures with servers included."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.site.page import written

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize(("page", "module", "tests"), [
    ("testing.md", "test_bazaar.py", 5), ("migrate-celery.md", "test_shop.py", 6),
    ("migrate-celery.md", "test_canvas.py", 1),
])  # fmt: skip
def test_the_test_module_of_the_page_passes(tmp_path: Path, page: str, module: str, tests: int) -> None:
    written(page, tmp_path)
    run = _run_pytest(tmp_path, module)
    assert f"{tests} passed" in run.stdout, run.stdout + run.stderr


_WAITING = '''
import asyncio

import grns

pool = grns.Pool("waiting")


@pool.task(max_attempts=3)
async def twice(ctx: grns.Context) -> int:
    if ctx.attempt == 1:
        raise grns.Retry("once more", after=0.1)
    return ctx.attempt


async def test_the_daemons_of_the_fixture_work(grns_client, grns_worker):
    """A retry needs the scheduler, an event the relay."""
    await grns_worker(pool)
    ended = []

    async def note(event, connection):
        ended.append(event.task_id)

    await grns_client.subscribe("ended", note, kinds=["evt.task.completed"])
    handle = await grns_client.submit(twice, delay=0.2)
    assert await handle.result(timeout=20) == 2
    async with asyncio.timeout(10):
        while ended != [handle.id]:
            await asyncio.sleep(0.05)
'''


_BROKEN = """
from contextlib import asynccontextmanager

import grns
import pytest


@asynccontextmanager
async def lifespan(pool):
    raise RuntimeError("no such host")
    yield


async def test_a_broken_lifespan_is_raised(grns_worker):
    with pytest.raises(RuntimeError, match="no such host"):
        await grns_worker(grns.Pool("broken", lifespan=lifespan))
"""


def test_a_worker_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text(_BROKEN)
    run = _run_pytest(tmp_path, "test_broken.py")
    assert "1 passed" in run.stdout, run.stdout + run.stderr


def test_retries_and_delays_happen_with_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_waiting.py").write_text(_WAITING)
    run = _run_pytest(tmp_path, "test_waiting.py")
    assert "1 passed" in run.stdout, run.stdout + run.stderr


def _run_pytest(directory: Path, module: str) -> subprocess.CompletedProcess[str]:
    pytest_options = ["-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", module]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *pytest_options],
        cwd=directory,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        check=False,
    )
