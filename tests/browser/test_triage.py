"""What somebody on call does: find out why so many are dead, mend it, and see them through."""

from __future__ import annotations

import re

import httpx2
import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import Watch
from tests.browser.scene import submit_each
from tests.browser.stage import Stage, log_in
from tests.support.harness import all_in

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(240)]

COUNT = 150


async def failed(stage: Stage, host: str, count: int) -> list[str]:
    """Let there be dead tasks of a host that nobody has mended yet."""
    pages = [
        {"task_type": "fetch_page", "agent_type": "crawler", "payload": {"url": f"https://{host}/{n}"}}
        for n in range(count)
    ]
    ids = await submit_each(stage, pages)
    await all_in(stage.database, ids, "dead", within_seconds=60)
    return ids


async def mailed(stage: Stage) -> str:
    """Submit a task that succeeds, unless its pool is paused."""
    (made,) = await submit_each(
        stage,
        [{"task_type": "translate", "agent_type": "writer", "payload": {"document": "a", "into": "de"}}],
    )
    return made


async def main_link(page: Page, name: str) -> None:
    """Go where the menu leads."""
    await page.get_by_role("navigation", name="Main").get_by_role("link", name=name).click()


async def test_who_has_a_key_comes_in_and_leaves(page: Page, stage: Stage, watch: Watch) -> None:
    await page.context.clear_cookies()
    await page.goto("/issues?state=all")
    await expect(page).to_have_url(re.compile("/login"))
    await page.get_by_label("API key").fill(f"{stage.key[:-4]}0000")
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_role("alert")).to_contain_text("not known")
    watch.forgive("403")
    await page.get_by_label("API key").fill(stage.key)
    await page.get_by_role("button", name="Log in").click()
    await expect(page).to_have_url(f"{stage.url}/issues?state=all")
    await page.get_by_role("button", name="Log out").click()
    await page.goto("/tasks")
    await expect(page.get_by_label("API key")).to_be_visible()
    await log_in(page, stage.key)
    await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")


async def test_an_issue_is_found_tried_with_a_canary_redriven_and_resolved(page: Page, stage: Stage) -> None:
    ids = await failed(stage, "canary.internal", COUNT)
    await page.goto("/")
    await main_link(page, "Issues")
    row = page.get_by_role("row").filter(has_text="canary.internal")
    # The counter may have been in the midst of it: then the page brings the number up to date.
    await expect(row.get_by_role("cell").first).to_have_text(str(COUNT), timeout=15_000)
    await row.get_by_role("link").first.click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("ConnectionRefusedError")
    await expect(page.locator("pre").first).to_contain_text("fetch_page")

    await page.keyboard.press("r")
    await expect(page.get_by_text(f"{COUNT} tasks")).to_be_visible()
    await page.get_by_label(re.compile("canary", re.IGNORECASE)).check()
    await page.get_by_label(re.compile("Reason")).fill("the route is back")
    await page.get_by_label(re.compile("write the number")).fill(str(COUNT))
    await page.get_by_role("button", name="Start", exact=True).click()
    # The cause persists: the canary fails, and no other task is moved.
    await expect(page.locator("#progress .state")).to_have_text("paused", timeout=30_000)
    await expect(
        page.locator("#progress").get_by_text("moved", exact=True).locator("xpath=../dd")
    ).to_have_text("1")
    rest = [one for one in ids if (await status(stage, one)) == "dead"]
    assert len(rest) == COUNT

    stage.mend("canary.internal")
    await page.get_by_role("button", name="Resume", exact=True).click()
    await expect(page.locator("#progress .state")).to_have_text("done", timeout=60_000)
    # All but the canary, which was moved already, and has failed.
    await page.get_by_role("link", name="Start it again").click()
    await expect(page.get_by_text("1 task", exact=True)).to_be_visible()
    await page.get_by_role("button", name="Start", exact=True).click()
    await all_in(stage.database, ids, within_seconds=60)
    await main_link(page, "Issues")
    await page.get_by_role("link", name=re.compile("canary.internal")).first.click()
    await expect(page.get_by_text("No task of this issue is dead or failed now.", exact=True)).to_be_visible(
        timeout=15_000
    )
    await page.get_by_role("button", name="Mark as resolved").click()
    await expect(page.get_by_role("status").first).to_contain_text("was changed")
    await expect(page.locator("#numbers")).to_contain_text("resolved")


async def status(stage: Stage, task_id: str) -> str:
    """Return where a task is."""
    async with stage.database.connection() as connection:
        return str(await connection.fetchval("select status from grns.tasks where id = $1", task_id))


async def test_what_a_task_streams_is_shown_as_it_comes(page: Page, stage: Stage) -> None:
    (made,) = await submit_each(
        stage, [{"task_type": "tell", "agent_type": "writer", "payload": {"hero": "a cat"}}]
    )
    await page.goto(f"/tasks/{made}")
    output = page.locator("#output pre")
    await expect(output).to_have_text('tool_call: {"hero":"a cat"}\nAn outline.', timeout=15_000)
    await expect(page.locator("#output").get_by_role("status")).to_have_text("waiting, attempt 1")
    await expect(page.get_by_role("rowheader", name="outline")).to_be_visible(timeout=15_000)
    await signal(stage, made, "go")
    # What a failed attempt has streamed goes; what was streamed before the wait stays.
    await expect(output).to_contain_text("An outline. Attempt 2: Once upon", timeout=15_000)
    await expect(page.locator("#output").get_by_role("status")).to_have_text(
        "dead: no more comes", timeout=15_000
    )
    await expect(page.locator("#attempts .suspended").first).to_be_visible()
    last = re.compile(r"An outline\. Attempt [34]: Once upon a <b>time</b>")
    await expect(output).to_have_text(last)
    await expect(output).not_to_contain_text("Attempt 2")
    await page.reload()
    await expect(output).to_have_text(last, timeout=15_000)


async def signal(stage: Stage, task_id: str, name: str) -> None:
    """Send a signal to a task."""
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {stage.key}"}) as client:
        answer = await client.post(f"{stage.url}/api/v1/tasks/{task_id}/signals", json={"name": name})
        assert answer.status_code == 200, answer.text


async def test_some_are_selected_and_redriven(page: Page, stage: Stage) -> None:
    ids = await failed(stage, "bulk.internal", 4)
    stage.mend("bulk.internal")
    await page.goto(f"/tasks?filter=status:dead id:{','.join(ids)}")
    for one in ids[:2]:
        await page.get_by_role("checkbox", name=f"Select {one}").check()
    await expect(page.locator("#selected")).to_have_text("2 selected")
    await page.get_by_role("checkbox", name="Select all on this page").check()
    await expect(page.locator("#selected")).to_have_text("4 selected")
    await page.get_by_role("checkbox", name=f"Select {ids[3]}").uncheck()
    await page.get_by_role("button", name="Redrive").click()
    await expect(page.get_by_text("3 tasks")).to_be_visible()
    await page.get_by_role("button", name="Start", exact=True).click()
    await expect(page.locator("#progress .state")).to_have_text("done", timeout=30_000)
    await all_in(stage.database, ids[:3], within_seconds=60)
    assert await status(stage, ids[3]) == "dead"


async def test_a_pool_is_paused_what_comes_waits_and_goes_on(page: Page, stage: Stage) -> None:
    await page.goto("/pools/writer")
    await page.get_by_label(re.compile("Reason")).fill("deploy")
    await page.locator("main").get_by_role("button", name="Pause", exact=True).click()
    await expect(page.locator("#pauses")).to_contain_text("deploy")
    made = await mailed(stage)
    await page.goto(f"/tasks/{made}")
    await expect(page.locator("#head .state")).to_have_text("queued")
    await expect(page.locator("#why")).to_contain_text("paused")
    await page.goto("/pools/writer")
    await page.get_by_role("button", name="Resume", exact=True).click()
    await expect(page.locator("#pauses")).not_to_contain_text("deploy")
    await all_in(stage.database, [made], within_seconds=30)


async def test_events_are_told_as_they_come(page: Page, stage: Stage) -> None:
    await page.goto("/events?kind=evt.task.completed")
    await expect(page.locator("[data-tail-state]")).to_have_text("Following")
    first = await mailed(stage)
    await expect(page.get_by_role("link", name=first)).to_be_visible(timeout=15_000)
    await page.locator("[data-tail-pause]").click()
    second = await mailed(stage)
    await expect(page.locator("[data-tail-state]")).to_contain_text("1 waiting", timeout=15_000)
    await expect(page.get_by_role("link", name=second)).to_have_count(0)
    await page.locator("[data-tail-pause]").click()
    await expect(page.get_by_role("link", name=second)).to_be_visible()
    await page.get_by_role("link", name=second).click()
    await expect(page.locator("#head .state")).to_have_text("succeeded")
