"""A stack of real processes with its dashboard, and a browser on it: for the tests, and for the pictures."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.async_api import Browser, Page, async_playwright

from grns.access.keys import create_key
from grns.postgres.database import Database
from tests.process.test_api import url_of
from tests.support.harness import ROOT, Fleet, ready

CHROMIUM = os.environ.get("GRNS_CHROMIUM", "/usr/bin/chromium")
POOLS = ("crawler", "writer", "courier")
_OPTIONS = [
    "--no-sandbox",  # as root, which CI is, chromium has none of its own
    "--disable-gpu",
    "--font-render-hinting=none",
    # Nothing but our pages is asked for anything.
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@dataclass(frozen=True)
class Stage:
    """A stack with its dashboard. A file in `mended` mends the host of its name; `key` may do everything."""

    url: str
    broker_url: str
    database: Database
    key: str
    mended: Path

    def mend(self, host: str) -> None:
        """Have a host answer from now on."""
        (self.mended / host).touch()


@asynccontextmanager
async def begun(directory: Path, database_url: str, broker_url: str) -> AsyncIterator[Stage]:
    """Run all daemons, the API with the dashboard, and a worker of each pool; all of it ends with this."""
    mended = directory / "mended"
    mended.mkdir()
    environment = {
        "GRNS_DATABASE_URL": database_url,
        "GRNS_NATS_URL": broker_url,
        "GRNS_LOG_FORMAT": "json",
        "GRNS_SHUTDOWN_GRACE_SECONDS": "0",
        "GRNS_TEST_MENDED": str(mended),
        "PYTHONPATH": str(ROOT),
    }
    fleet = Fleet(directory, environment)
    database = Database(database_url, name="test", size=8)
    await database.connect()
    try:
        made, _ = await create_key(
            database, workspace=None, name="ann", scopes=["admin"], actor="cli:ann@desk"
        )
        server = fleet.start("server", "--api", GRNS_API_PORT="0")
        workers = [
            fleet.start("worker", "start", f"tests.browser.pools:{pool}", "--concurrency", "6")
            for pool in POOLS
        ]
        url = await url_of(fleet, server)
        await ready(database, *workers)
        yield Stage(url, broker_url, database, made.reveal(), mended)
    finally:
        fleet.end()
        await database.close()


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Run Debian's chromium, or the one that `GRNS_CHROMIUM` names."""
    assert shutil.which(CHROMIUM), (
        f"no browser at {CHROMIUM}: .ci/install-chromium, or name one in GRNS_CHROMIUM"
    )
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=_OPTIONS)
        yield browser
        await browser.close()


async def log_in(page: Page, key: str) -> None:
    """Show a key."""
    await page.goto("/login")
    await page.get_by_label("API key").fill(key)
    await page.get_by_role("button", name="Log in").click()
