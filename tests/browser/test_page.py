"""How pages behave under somebody's hands: keys, refreshing, colours, hostile data; can all use them?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect

from tests.browser.conftest import Stage
from tests.doors.test_web_hostile import HOSTILE
from tests.harness import all_in, submit, submit_many

pytestmark = pytest.mark.timeout(240)

ROOMS = [
    "/", "/issues", "/tasks", "/operations", "/operations/new?action=redrive", "/pools", "/pools/worker",
    "/workers", "/events", "/messages", "/keys", "/workspaces", "/help",
]  # fmt: skip
# Where pictures of the pages are kept, for whoever draws them anew.
PICTURES = os.environ.get("GRNS_PICTURES")
_SHIFTS = """
    () => new Promise((done) => {
        let sum = 0;
        new PerformanceObserver((list) => { for (const one of list.getEntries()) sum += one.value; })
            .observe({ type: "layout-shift", buffered: true });
        setTimeout(() => done(sum), 9000);
    })
"""


async def failed(stage: Stage, count: int) -> list[str]:
    """Let there be dead tasks."""
    ids = await submit_many(stage.database, count, task_type="fetch_page", payload={"host": "10.0.0.7"})
    await all_in(stage.database, ids, "dead", within_seconds=60)
    return ids


async def test_keys_lead_along_the_rows(page: Page, stage: Stage) -> None:
    await failed(stage, 3)
    await page.goto("/tasks?filter=state:dead")
    here = page.locator("tr.here")
    for key, place in (("j", 0), ("j", 1), ("j", 2), ("j", 2), ("k", 1)):
        await page.keyboard.press(key)
        await expect(page.locator("[data-row]").nth(place)).to_have_class("here")
    await page.keyboard.press("x")
    await expect(here.get_by_role("checkbox")).to_be_checked()
    await expect(page.locator("#selected")).to_have_text("1 selected")
    await expect(page.locator("#refresh")).to_contain_text("Not refreshing: 1 selected")
    await page.keyboard.press("/")
    await expect(page.get_by_label("Filter", exact=True)).to_be_focused()
    await page.keyboard.type("x")
    await expect(here.get_by_role("checkbox")).to_be_checked()
    await page.keyboard.press("Escape")
    await page.keyboard.press("r")
    await expect(page.get_by_text("1 task")).to_be_visible()
    await page.keyboard.press("?")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Help")


async def test_what_is_selected_stays_where_it_is(page: Page, stage: Stage) -> None:
    first = await failed(stage, 3)
    await page.goto("/tasks?filter=state:dead")
    await page.get_by_role("checkbox", name=f"Select {first[0]}").check()
    await failed(stage, 2)
    await page.wait_for_timeout(4000)  # longer than two rounds of refreshing take
    await expect(page.locator("#news")).to_be_empty()
    await page.get_by_role("checkbox", name=f"Select {first[0]}").uncheck()
    await expect(page.locator("#news")).to_contain_text("2 other tasks here by now", timeout=10_000)
    await expect(page.locator("[data-row]")).to_have_count(3)


async def test_nothing_jumps_while_things_happen(page: Page, stage: Stage) -> None:
    await failed(stage, 5)
    for path in ("/", "/tasks", "/issues"):
        await page.goto(path)
        await submit_many(stage.database, 20)
        assert await page.evaluate(_SHIFTS) < 0.02, path


async def test_a_filter_is_completed(page: Page) -> None:
    await page.goto("/tasks")
    await page.get_by_label("Filter", exact=True).press_sequentially("type:noop state:de")
    await expect(page.locator("#completions option")).to_have_attribute("value", "type:noop state:dead")


async def test_colours_and_times_are_as_somebody_wants_them(page: Page, stage: Stage) -> None:
    await submit(stage.database)
    await page.goto("/tasks")
    ground = "getComputedStyle(document.body).backgroundColor"
    assert await page.evaluate(ground) == "rgb(255, 255, 255)"
    await page.emulate_media(color_scheme="dark")
    assert await page.evaluate(ground) == "rgb(20, 24, 29)"
    await page.get_by_text("Look", exact=True).click()
    await page.get_by_role("button", name="Light", exact=True).click()
    assert await page.evaluate(ground) == "rgb(255, 255, 255)"
    await page.get_by_text("Look", exact=True).click()
    await page.get_by_role("button", name="Local", exact=True).click()
    await expect(page.locator("td time").first).to_contain_text("CE")


async def test_hostile_data_does_nothing(page: Page, stage: Stage) -> None:
    """Whatever it did would be a complaint: of the policy, of a script, of a dialog."""
    largest = {"text": "<script>alert(1)</script>\u202e" * 1000, HOSTILE: [HOSTILE] * 20}
    made = (await submit(stage.database, payload=largest, idempotency_key="<script>alert(1)</script>")).id
    for path in (f"/tasks/{made}", f"/tasks/{made}/edit", f"/tasks?filter={HOSTILE[:60]}", "/events"):
        await page.goto(path)
        await page.wait_for_timeout(500)
    await page.goto(f"/tasks/{made}")
    await expect(page.locator("#payload-json")).to_contain_text("<script>alert(1)</script>\\u202e")


async def test_without_scripts_everything_can_be_read(chromium: Browser, stage: Stage) -> None:
    ids = await failed(stage, 2)
    context = await chromium.new_context(base_url=stage.url, java_script_enabled=False)
    opened = await context.new_page()
    await opened.goto("/login")
    await opened.get_by_label("API key").fill(stage.key)
    await opened.get_by_role("button", name="Log in").click()
    for path in (*ROOMS, f"/tasks/{ids[0]}"):
        await opened.goto(path)
        await expect(opened.get_by_role("heading", level=1)).to_be_visible()
        await expect(opened.locator(".scripted").filter(visible=True)).to_have_count(0)
    await context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_all_can_use_every_page(page: Page, stage: Stage, scheme: str) -> None:
    ids = await failed(stage, 3)
    await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    await page.goto("/issues")
    issue = await page.locator("[data-open]").first.get_attribute("href", timeout=15_000)
    assert issue is not None
    for path in (*ROOMS, f"/tasks/{ids[0]}", f"/tasks/{ids[0]}/edit", issue):
        await page.goto(path)
        found = (await Axe().run(page)).response["violations"]
        assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == [], path
        if PICTURES is not None:
            name = path.partition("?")[0].strip("/").split("/")[0] or "overview"
            name += "-one" if path.count("/") > 1 else ""
            await page.screenshot(path=Path(PICTURES) / f"dashboard-{name}-{scheme}.png", full_page=False)


@pytest.mark.parametrize("width", [360, 1920])
async def test_pages_fit_narrow_and_wide_windows(page: Page, stage: Stage, width: int) -> None:
    ids = await failed(stage, 1)
    await page.set_viewport_size({"width": width, "height": 800})
    for path in (*ROOMS, f"/tasks/{ids[0]}"):
        await page.goto(path)
        over = await page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert over <= 0, path
