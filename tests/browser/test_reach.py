"""Whom the pages reach: without scripts, with a screen reader, in a narrow window, light and dark."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, Page, expect

from tests.browser.conftest import Watch
from tests.browser.scene import Scene
from tests.browser.stage import Stage

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(240)]

_ALL = {"resultTypes": ["violations"]}
_OF_COLOURS = _ALL | {"runOnly": ["color-contrast", "link-in-text-block"]}
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


async def test_all_can_use_every_page(context: BrowserContext, scene: Scene) -> None:
    """Nothing serious is wrong, as far as a program can tell; in the dark only colours are other ones."""
    waiting, wrong = list(scene.pages.items()), list[tuple[str, str, str]]()

    async def look() -> None:
        page = await context.new_page()
        while waiting:
            name, path = waiting.pop(0)
            for scheme, rules in (("light", _ALL), ("dark", _OF_COLOURS)):
                await page.emulate_media(color_scheme="light" if scheme == "light" else "dark")
                if scheme == "light":
                    await page.goto(path)
                found = (await Axe().run(page, options=rules)).response["violations"]
                wrong.extend(
                    (f"{name} {scheme}", one["id"], node["html"][:200])
                    for one in found
                    if one["impact"] in ("serious", "critical")
                    for node in one["nodes"][:3]
                )

    await asyncio.gather(look(), look())
    assert wrong == []


async def test_all_can_use_what_says_that_something_is_wrong(
    page: Page, chromium: Browser, stage: Stage, watch: Watch
) -> None:
    """And the page on which one logs in; wide and narrow."""
    stranger = await chromium.new_context(base_url=stage.url)
    watch.over(stranger)
    login = await stranger.new_page()
    await login.goto("/login")
    await page.goto("/keys")
    await page.get_by_label("Name", exact=True).fill("of nothing")
    await page.get_by_role("button", name="Create", exact=True).click()
    await expect(page.get_by_role("alert")).to_be_visible()
    lost = await page.context.new_page()
    await lost.goto("/tasks/tsk-0123456789abcdefghjkmnpqrs")
    watch.forgive("400", "404")
    for shown in (login, page, lost):
        await shown.set_viewport_size({"width": 360, "height": 800})
        found = (await Axe().run(shown, options=_ALL)).response["violations"]
        assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
        assert await shown.evaluate(_OVER) <= 0
    await stranger.close()


async def test_what_not_all_can_use_is_noticed(page: Page) -> None:
    await page.goto("/help")
    await page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    await page.evaluate("document.querySelector('h1').classList.add('state', 'pale')")
    await page.evaluate("document.adoptedStyleSheets = [new CSSStyleSheet()]")
    await page.evaluate("document.adoptedStyleSheets[0].replaceSync('.pale { color: #eee !important }')")
    found = (await Axe().run(page, options=_ALL)).response["violations"]
    assert {"button-name", "color-contrast"} <= {one["id"] for one in found}


async def test_pages_fit_into_windows(page: Page, scene: Scene) -> None:
    over = {}
    for name, path in scene.pages.items():
        await page.goto(path)
        for width in (360, 768, 1920):
            await page.set_viewport_size({"width": width, "height": 800})
            if (pixels := await page.evaluate(_OVER)) > 0:
                over[name, width] = pixels
    assert over == {}


async def test_main_menu_is_one_line_in_a_window_of_1200_pixels(page: Page, stage: Stage) -> None:
    await page.set_viewport_size({"width": 1200, "height": 800})
    await page.goto("/")
    tops = await page.eval_on_selector_all(
        "nav[aria-label=Main] li", "items => items.map(item => item.getBoundingClientRect().top)"
    )
    assert len(tops) > 10
    assert len(set(tops)) == 1
