"""How pages behave under somebody's hands: keys, refreshing, colours, times, hostile data."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
from playwright.async_api import BrowserContext, Page, Request, expect

from grns.model import json as strict_json
from grns.settings import load
from tests.browser.conftest import Watch
from tests.browser.stage import Stage
from tests.browser.test_triage import failed, mailed
from tests.support.harness import eventually, submit
from tests.web.test_hostile import HOSTILE

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(240)]

# What has jumped meanwhile, and how often the page has brought itself up to date.
_LOOK = """
    () => {
        window.shifts = 0;
        window.swaps = 0;
        window.asked = 0;
        const note = (list) => { for (const one of list.getEntries()) window.shifts += one.value; };
        new PerformanceObserver(note).observe({ type: "layout-shift", buffered: true });
        document.addEventListener("htmx:after:swap", () => { window.swaps += 1; });
        document.addEventListener("htmx:before:request", () => { window.asked += 1; });
    }
"""
_GROUND = "getComputedStyle(document.body).backgroundColor"
LIGHT, DARK = "rgb(255, 255, 255)", "rgb(20, 24, 29)"


async def test_keys_lead_along_the_rows(page: Page, stage: Stage) -> None:
    ids = await failed(stage, "keys.internal", 3)
    await page.goto(f"/tasks?filter=id:{','.join(ids)}")
    for key, place in (("j", 0), ("j", 1), ("j", 2), ("j", 2), ("k", 1)):
        await page.keyboard.press(key)
        await expect(page.locator("[data-row]").nth(place)).to_have_class("here")
    here = page.locator("tr.here")
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
    await expect(page.get_by_text("1 task", exact=True)).to_be_visible()
    await page.keyboard.press("?")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Help")
    await page.goto(f"/tasks?filter=id:{','.join(ids)}")
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("|".join(ids)))


async def test_what_is_selected_stays_where_it_is(page: Page, stage: Stage) -> None:
    first = await failed(stage, "stays.internal", 3)
    wanted = await issue_of(stage, first[0])
    await page.goto(f"/tasks?filter=status:dead fingerprint:{wanted}")
    await page.evaluate(_LOOK)
    await page.get_by_role("checkbox", name=f"Select {first[0]}").check()
    asked: list[Request] = []
    page.on("request", lambda request: asked.append(request))
    await failed(stage, "stays.internal", 2)
    await reaches(page, "asked", 1)
    assert asked == [], "it would have, and did not"
    await page.get_by_role("checkbox", name=f"Select {first[0]}").uncheck()
    await expect(page.locator("#news")).to_contain_text("2 other tasks match now", timeout=10_000)
    await expect(page.locator("[data-row]")).to_have_count(3)


async def reaches(page: Page, name: str, count: float) -> None:
    """Wait until a page has counted so many; its policy forbids playwright's own way of waiting."""

    async def look() -> bool:
        return bool(await page.evaluate(f"window.{name}") >= count)

    await eventually(look)


async def issue_of(stage: Stage, task_id: str) -> str:
    """Return the fingerprint of a task's failure."""
    async with stage.database.connection() as connection:
        return str(await connection.fetchval("select fingerprint from grns.tasks where id = $1", task_id))


async def test_nothing_jumps_while_things_happen(context: BrowserContext, stage: Stage) -> None:
    await failed(stage, "jumps.internal", 5)

    async def look(path: str) -> float:
        opened = await context.new_page()
        await opened.goto(path)
        await opened.evaluate(_LOOK)
        await reaches(opened, "swaps", 1)
        await failed(stage, f"{path.strip('/')}-jumps.internal", 8)
        await reaches(opened, "swaps", 1 + await opened.evaluate("window.swaps"))
        return float(await opened.evaluate("window.shifts"))

    paths = ("/", "/tasks", "/issues", "/pools")
    shifts = await asyncio.gather(*(look(path) for path in paths))
    assert [(path, shift) for path, shift in zip(paths, shifts, strict=True) if shift > 0.02] == []


async def test_what_jumps_is_noticed(page: Page) -> None:
    await page.goto("/help")
    await page.evaluate(_LOOK)
    await page.evaluate("document.querySelector('main').prepend(document.createElement('textarea'))")
    await reaches(page, "shifts", 0.02)


async def test_a_filter_is_completed(page: Page) -> None:
    await page.goto("/tasks")
    await page.get_by_label("Filter", exact=True).press_sequentially("type:noop status:de")
    await expect(page.locator("#completions option")).to_have_count(1)
    await expect(page.locator("#completions option")).to_have_attribute("value", "type:noop status:dead")


async def test_colours_and_times_are_as_somebody_wants_them(page: Page, stage: Stage) -> None:
    made = await mailed(stage)
    await page.goto(f"/tasks?filter=id:{made}")
    when = page.locator("td time").first
    assert await page.evaluate(_GROUND) == LIGHT
    await page.emulate_media(color_scheme="dark")
    assert await page.evaluate(_GROUND) == DARK
    for name, ground in (("Light", LIGHT), ("As the system", DARK)):
        await look_of(page, name)
        assert await page.evaluate(_GROUND) == ground
    await expect(when).to_have_text(re.compile("ago|now"))
    for name, end in (("UTC", "UTC"), ("Local", "CE"), ("Relative", "ago")):
        await look_of(page, name)
        await expect(when).to_contain_text(end)


async def look_of(page: Page, name: str) -> None:
    """Choose how pages look."""
    await page.get_by_text("Appearance", exact=True).click()
    await page.get_by_role("button", name=name, exact=True).click()
    await expect(page.get_by_role("button", name=name, exact=True)).to_be_hidden()


async def test_hostile_data_does_nothing(page: Page, stage: Stage) -> None:
    """Whatever it did would be a complaint: of the policy, of a script, of a dialog."""
    text = "<script>alert(1)</script>\u202e"
    beside = {"text": "", HOSTILE: [HOSTILE] * 3}
    most = load().payload_max_bytes - len(strict_json.dumps(beside).encode())
    largest = beside | {"text": text * (most // len(text.encode()))}
    made = (await submit(stage.database, payload=largest, idempotency_key="<script>alert(1)</script>")).id
    for path in (f"/tasks/{made}", f"/tasks/{made}/edit", f"/tasks?filter={HOSTILE[:60]}", "/events"):
        await page.goto(path)
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
    await page.goto(f"/tasks/{made}")
    held = page.locator("#payload-json")
    await expect(held).to_contain_text("<script>alert(1)</script>\\u202e")
    assert json.loads(await held.inner_text()) == largest
    await page.goto(f"/tasks/{made}/edit")
    assert json.loads(await page.get_by_label("Payload").input_value()) == largest


async def test_a_form_that_is_wrong_stands_there_again(page: Page, watch: Watch) -> None:
    await page.goto("/keys")
    await page.get_by_label("Name", exact=True).fill("pager")
    await page.locator("[name=scope][value=read]").check()
    await page.get_by_label(re.compile("Expires")).fill("soon")
    await page.get_by_role("button", name="Create", exact=True).click()
    await expect(page.get_by_role("alert")).to_be_focused()
    await expect(page.get_by_role("alert")).to_contain_text("expires: write 30d or 12h")
    watch.forgive("400")
    await expect(page.get_by_label("Name", exact=True)).to_have_value("pager")
    await page.get_by_label(re.compile("Expires")).fill("1h")
    await page.get_by_role("button", name="Create", exact=True).click()
    await expect(page.locator("#made-key")).to_have_text(re.compile("^grns_"))
    await page.goto("/keys")
    row = page.get_by_role("row").filter(has_text="pager")
    await row.get_by_text("Revoke …").click()
    await row.get_by_role("button", name="Revoke pager permanently").click()
    await expect(row).to_contain_text("revoked")


async def test_what_pages_may_not_do_is_noticed(page: Page, watch: Watch) -> None:
    """Or all tests would pass whatever a page did."""
    await page.goto("/help")
    await page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), {text: 'x = 1'}))"
    )
    await page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<img src=\"http://192.0.2.1/x.png\">')"
    )
    await page.evaluate("setTimeout(() => { throw new Error('on purpose'); })")
    await page.evaluate("setTimeout(() => alert('on purpose'))")

    async def look() -> bool:
        return len(watch.complaints) >= 4 and "a dialog: on purpose" in watch.complaints

    await eventually(look)
    watch.forgive(
        "inline script", "asked http://192.0.2.1", "192.0.2.1", "on purpose", "a dialog: on purpose"
    )
