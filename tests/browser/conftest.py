"""A browser on a stack of real processes. Whatever a page complains of ends its test."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.async_api import Browser, ConsoleMessage, Dialog, Page, async_playwright

from grns.store.database import Database
from grns.store.key import create_key
from tests.doors.e2e.test_api import url_of
from tests.harness import Fleet, ready

CHROMIUM = os.environ.get("GRNS_CHROMIUM", "/usr/bin/chromium")
# As root, which CI is, chromium has no sandbox of its own.
_OPTIONS = ["--no-sandbox", "--disable-gpu", "--font-render-hinting=none"]


@dataclass
class Stage:
    """A stack with its dashboard. `mended` is the file that the pool's handlers wait for."""

    url: str
    database: Database
    key: str
    mended: Path


@pytest.fixture
async def stage(fleet: Fleet, database: Database, tmp_path: Path) -> Stage:
    """All daemons, a worker, and a key of all workspaces."""
    mended = tmp_path / "mended"
    made, _ = await create_key(database, workspace=None, name="ann", scopes=["admin"], actor="cli:ann@desk")
    server = fleet.start("server", "--api", GRNS_API_PORT="0", GRNS_OPERATION_SECONDS="0.1")
    worker = fleet.start("worker", "tests.browser.pools:pool", GRNS_TEST_MENDED=str(mended))
    await ready(database, worker)
    return Stage(await url_of(fleet, server), database, made.reveal(), mended)


@pytest.fixture
async def chromium() -> AsyncIterator[Browser]:
    """Debian's chromium."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=_OPTIONS)
        yield browser
        await browser.close()


@pytest.fixture
async def page(chromium: Browser, stage: Stage) -> AsyncIterator[Page]:
    """A page that is logged in, of which no script and no policy complains."""
    context = await chromium.new_context(
        base_url=stage.url,
        viewport={"width": 1280, "height": 900},
        timezone_id="Europe/Zurich",
        locale="en-GB",
    )
    opened = await context.new_page()
    complaints: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    async def refuse(dialog: Dialog) -> None:
        complaints.append(dialog.message)
        await dialog.dismiss()

    opened.on("console", note)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("dialog", refuse)
    opened.on(
        "request",
        lambda request: (
            None if request.url.startswith(stage.url) else complaints.append(f"asked {request.url}")
        ),
    )
    await opened.goto("/login")
    await opened.get_by_label("API key").fill(stage.key)
    await opened.get_by_role("button", name="Log in").click()
    await opened.wait_for_url("**/")
    yield opened
    await context.close()
    assert complaints == []
