"""Type checkers on the examples: mypy and pyright pass, and infer payloads and results."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.site.page import written
from tests.support.harness import ROOT

pytestmark = pytest.mark.timeout(180)

PAGES = ["frameworks.md", "migrate-celery.md", "testing.md", "tutorial.md"]
CHECKERS = {
    "mypy": ["mypy", "--strict", "--no-error-summary", "--allow-untyped-defs", "--allow-incomplete-defs"],
    "pyright": ["basedpyright", "--level", "error", "--pythonpath", sys.executable],
}
# What is inferred, and what is refused: `# error` marks the lines.
INFERRED = """
import asyncio
from typing import assert_type

import grns
from grns import sync
from pydantic import BaseModel


class Page(BaseModel):
    url: str


class Size(BaseModel):
    bytes: int


pool = grns.Pool("shop")


@pool.task
async def measure(page: Page) -> Size:
    return Size(bytes=len(page.url))


@pool.task(max_attempts=2)
def measure_in_a_thread(page: Page, ctx: grns.Context) -> Size:
    return Size(bytes=ctx.attempt)


async def main(client: grns.Client) -> None:
    handle = await client.submit(measure, Page(url="x"), delay=1)
    assert_type(handle, grns.TaskHandle[Size])
    assert_type(await handle.result(timeout=1), Size)
    assert_type(await (await measure_in_a_thread.submit(client, Page(url="x"))).result(), Size)
    await client.submit(measure, Size(bytes=1))  # error
    await client.submit("measure", {"url": "x"})  # error


def synchronous(client: sync.Client) -> None:
    assert_type(client.submit(measure, Page(url="x")).result(), Size)
    assert_type(measure.submit(client, Page(url="x")), sync.TaskHandle[Size])
    client.submit(measure, Size(bytes=1))  # error


async def on_dead(event: grns.Event[grns.events.TaskDead], connection: object) -> None:
    assert_type(event.payload, grns.events.TaskDead)


asyncio.run(main)  # error
"""


def checked(checker: str, directory: Path) -> list[str]:
    """Return the complaints of a type checker about a directory."""
    (directory / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    program, *options = CHECKERS[checker]
    ran = subprocess.run(
        [str(Path(sys.executable).with_name(program)), *options, "."],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    return [line for line in ran.stdout.splitlines() if re.search(r"\berror\b", line)]


@pytest.mark.parametrize("checker", CHECKERS)
@pytest.mark.parametrize("page", PAGES)
def test_examples_pass(tmp_path: Path, page: str, checker: str) -> None:
    for path in written(page, tmp_path):
        if "django" in path.read_text():
            path.unlink()  # it has no types of its own
    assert checked(checker, tmp_path) == []


@pytest.mark.parametrize("checker", CHECKERS)
def test_payloads_and_results_are_inferred(tmp_path: Path, checker: str) -> None:
    (tmp_path / "shop.py").write_text(INFERRED)
    wrong = {int(re.search(r"shop\.py:(\d+)", line)[1]) for line in checked(checker, tmp_path)}  # type: ignore[index]
    marked = {place for place, line in enumerate(INFERRED.splitlines(), 1) if line.endswith("# error")}
    assert wrong == marked


def test_package_says_that_it_is_typed() -> None:
    assert (ROOT / "grns" / "py.typed").exists()
