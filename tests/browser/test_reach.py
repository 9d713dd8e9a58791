"""Whom the pages reach: without scripts, with a screen reader, in a narrow window, light and dark."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect

from tests.browser.conftest import Watch
from tests.browser.scene import Scene
from tests.browser.stage import Stage

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(240)]

_TAGS = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}
_OVER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


async def test_without_scripts_everything_can_be_read(
    chromium: Browser, stage: Stage, scene: Scene, session: Any, watch: Watch
) -> None:
    context = await chromium.new_context(base_url=stage.url, java_script_enabled=False, storage_state=session)
    watch.over(context)
    opened = await context.new_page()
    for path in scene.pages.values():
        await opened.goto(path)
        await expect(opened.get_by_role("heading", level=1)).to_be_visible()
        await expect(opened.locator(".scripted").filter(visible=True)).to_have_count(0)
    await context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_all_can_use_every_page(page: Page, scene: Scene, scheme: str) -> None:
    await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    wrong = []
    for name, path in scene.pages.items():
        await page.goto(path)
        found = (await Axe().run(page, options=_TAGS)).response["violations"]
        wrong += [
            (name, one["id"], node["html"][:200])
            for one in found
            if one["impact"] in ("serious", "critical")
            for node in one["nodes"][:3]
        ]
    assert wrong == []


@pytest.mark.parametrize("width", [360, 1920])
async def test_pages_fit_narrow_and_wide_windows(page: Page, scene: Scene, width: int) -> None:
    await page.set_viewport_size({"width": width, "height": 800})
    over = {}
    for name, path in scene.pages.items():
        await page.goto(path)
        if (pixels := await page.evaluate(_OVER)) > 0:
            over[name] = pixels
    assert over == {}
