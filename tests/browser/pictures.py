"""Pictures of the dashboard for the docs: `python -m tests.browser.pictures docs/pictures`."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.async_api import Browser

from grns.dev.servers import LocalNats, LocalPostgres
from tests.browser import stage as stages
from tests.browser.scene import Scene, played
from tests.browser.stage import Stage, log_in
from tests.conftest import new_database, prepare

SHOWN = (
    "overview",
    "issues",
    "issue",
    "tasks",
    "task",
    "operation-new",
    "operation-paused",
    "pools",
    "events",
)
_SIZE = (1280, 800)
_COLOURS = 128
_MOST_BYTES = 150_000


async def draw(target: Path) -> None:
    """Play a scene, and draw its main pages, light and dark."""
    with tempfile.TemporaryDirectory(prefix="grns-pictures-") as made:
        directory = Path(made)
        os.chmod(made, 0o755)  # noqa: S103 - the user `nobody` has to reach it
        with LocalPostgres(directory / "postgres") as postgres, LocalNats(directory / "nats") as broker:
            await prepare(postgres)
            async with new_database(postgres) as url, stages.begun(directory, url, broker.url) as stage:
                scene = await played(stage)
                async with stages.chromium() as browser:
                    for scheme in ("light", "dark"):
                        await _draw(browser, stage, scene, target, scheme)


async def _draw(browser: Browser, stage: Stage, scene: Scene, target: Path, scheme: str) -> None:
    context = await browser.new_context(
        base_url=stage.url,
        viewport={"width": _SIZE[0], "height": _SIZE[1]},
        color_scheme="dark" if scheme == "dark" else "light",
        locale="en-GB",
    )
    page = await context.new_page()
    await log_in(page, stage.key)
    for name in SHOWN:
        await page.goto(scene.pages[name])
        await page.evaluate("document.fonts.ready")
        _keep(await page.screenshot(), target / f"dashboard-{name}-{scheme}.png")
    await context.close()


def _keep(content: bytes, path: Path) -> None:
    """Keep a picture with as few colours as it needs."""
    few = Image.open(io.BytesIO(content)).convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    assert path.stat().st_size <= _MOST_BYTES, f"{path.name} has {path.stat().st_size} bytes"


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    asyncio.run(draw(target))
