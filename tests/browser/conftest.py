"""One stage, one browser and one session for all tests: each makes tasks that are its own."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request

from grns.dev.servers import LocalNats, LocalPostgres
from tests.browser import stage as stages
from tests.browser.scene import Scene, played
from tests.browser.stage import Stage, log_in
from tests.conftest import new_database


@dataclass
class Watch:
    """What a page has complained of: its scripts, its policy, a dialog, a request that leads elsewhere."""

    url: str
    complaints: list[str] = field(default_factory=list)

    def over(self, context: BrowserContext) -> None:
        """Watch every page of a context."""
        context.on("console", self._note)
        context.on("weberror", lambda error: self.complaints.append(str(error.error)))
        context.on("dialog", self._refuse)
        context.on("request", self._look)

    def forgive(self, *texts: str) -> None:
        """Take back the complaints that were meant to come: all that contain one of these texts."""
        for text in texts:
            assert any(text in one for one in self.complaints), (text, self.complaints)
        self.complaints[:] = [one for one in self.complaints if not any(text in one for text in texts)]

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    async def _refuse(self, dialog: Dialog) -> None:
        self.complaints.append(f"a dialog: {dialog.message}")
        await dialog.dismiss()

    def _look(self, request: Request) -> None:
        if not request.url.startswith((f"{self.url}/", "data:")):
            self.complaints.append(f"asked {request.url}")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def stage(postgres: LocalPostgres) -> AsyncIterator[Stage]:
    """All daemons, the dashboard, and a worker of each pool."""
    with (
        tempfile.TemporaryDirectory(prefix="grns-browser-") as made,
        LocalNats(Path(made) / "nats") as broker,
    ):
        async with new_database(postgres) as url, stages.begun(Path(made), url, broker.url) as begun:
            yield begun


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def scene(stage: Stage) -> Scene:
    """Something of everything."""
    return await played(stage, share=0.1)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    """The browser."""
    async with stages.chromium() as browser:
        yield browser


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def session(chromium: Browser, stage: Stage) -> Any:
    """The cookies of somebody who has logged in."""
    context = await chromium.new_context(base_url=stage.url)
    page = await context.new_page()
    await log_in(page, stage.key)
    state = await context.storage_state()
    await context.close()
    return state


@pytest_asyncio.fixture(loop_scope="session")
async def watch(stage: Stage) -> AsyncIterator[Watch]:
    """What was complained of: at the end nothing."""
    found = Watch(stage.url)
    yield found
    assert found.complaints == []


@pytest_asyncio.fixture(loop_scope="session")
async def context(
    chromium: Browser, stage: Stage, session: Any, watch: Watch
) -> AsyncIterator[BrowserContext]:
    """A window of somebody who has logged in."""
    made = await chromium.new_context(
        base_url=stage.url,
        storage_state=session,
        viewport={"width": 1280, "height": 900},
        timezone_id="Europe/Zurich",
        locale="en-GB",
    )
    made.set_default_timeout(20_000)
    watch.over(made)
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="session")
async def page(context: BrowserContext) -> Page:
    """A page of theirs."""
    return await context.new_page()
