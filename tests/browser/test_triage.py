"""What somebody on call does: find out why so many are dead, mend it, and see them through."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import Stage
from tests.harness import all_in, submit, submit_many

pytestmark = pytest.mark.timeout(240)

COUNT = 150


async def test_an_issue_is_found_tried_with_a_canary_redriven_and_resolved(page: Page, stage: Stage) -> None:
    ids = await submit_many(stage.database, COUNT, task_type="fetch_page", payload={"host": "10.0.0.7"})
    await all_in(stage.database, ids, "dead", within_seconds=60)
    await page.get_by_role("navigation", name="Main").get_by_role("link", name="Issues").click()
    row = page.get_by_role("row").filter(has_text="ConnectionRefusedError")
    await expect(row).to_contain_text(str(COUNT), timeout=15_000)
    await row.get_by_role("link").first.click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("ConnectionRefusedError")
    await expect(page.locator("pre").first).to_contain_text("fetch_page")

    await page.keyboard.press("r")
    await expect(page.get_by_text(f"{COUNT} tasks")).to_be_visible()
    await page.get_by_label(re.compile("A canary first")).check()
    await page.get_by_label(re.compile("Reason")).fill("the route is back")
    await page.get_by_label(re.compile("These are many")).fill(str(COUNT))
    await page.get_by_role("button", name="Begin").click()
    # It was not mended yet: the canary fails, and nothing else is moved.
    await expect(page.locator("#progress .state")).to_have_text("paused", timeout=30_000)
    await expect(page.locator("#progress")).to_contain_text("1")

    stage.mended.touch()
    await page.get_by_role("button", name="Go on").click()
    await expect(page.locator("#progress .state")).to_have_text("done", timeout=60_000)
    await all_in(stage.database, ids, within_seconds=60)
    await page.get_by_role("navigation", name="Main").get_by_role("link", name="Issues").click()
    await page.get_by_role("link", name=re.compile("ConnectionRefusedError")).first.click()
    await expect(page.get_by_text("None is dead or failed of it any more.")).to_be_visible(timeout=15_000)
    await page.get_by_label("State").select_option("resolved")
    await page.get_by_role("button", name="Keep it").click()
    await expect(page.get_by_role("status").first).to_contain_text("was kept")
    await expect(page.locator("#numbers")).to_contain_text("resolved")


async def test_a_pool_is_paused_what_comes_waits_and_goes_on(page: Page, stage: Stage) -> None:
    await page.goto("/pools/worker")
    await page.get_by_label(re.compile("Reason")).fill("deploy")
    await page.get_by_role("button", name="Pause", exact=True).last.click()
    await expect(page.locator("#pauses")).to_contain_text("deploy")
    made = (await submit(stage.database)).id
    await page.goto(f"/tasks/{made}")
    await expect(page.locator("#head .state")).to_have_text("queued")
    await page.goto("/pools/worker")
    await page.get_by_role("button", name="Resume").click()
    await all_in(stage.database, [made], within_seconds=30)


async def test_events_are_told_as_they_come(page: Page, stage: Stage) -> None:
    await page.goto("/events?kind=evt.task.completed")
    await expect(page.locator("[data-tail-state]")).to_have_text("Following")
    first = (await submit(stage.database)).id
    await expect(page.get_by_role("link", name=first)).to_be_visible(timeout=15_000)
    await page.get_by_role("button", name="Pause", exact=True).first.click()
    second = (await submit(stage.database)).id
    await expect(page.locator("[data-tail-state]")).to_contain_text("1 waiting", timeout=15_000)
    await expect(page.get_by_role("link", name=second)).to_have_count(0)
    await page.get_by_role("button", name="Go on").first.click()
    await expect(page.get_by_role("link", name=second)).to_be_visible()
    await page.get_by_role("link", name=second).click()
    await expect(page.locator("#head .state")).to_have_text("succeeded")
