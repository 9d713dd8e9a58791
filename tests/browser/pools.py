"""Pools whose handlers fail in the ways that the tests, and the pictures, are about."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import grns

crawler = grns.Pool("crawler")
writer = grns.Pool("writer")
courier = grns.Pool("courier")

AT_ONCE = grns.Backoff(base_seconds=0.01, max_seconds=0.01)


def is_mended(name: str) -> bool:
    """Say whether somebody has mended a host: there is a file of its name then."""
    return (Path(os.environ["GRNS_TEST_MENDED"]) / name).exists()


@crawler.task("fetch_page", max_attempts=2, backoff=AT_ONCE)
async def fetch_page(task: grns.Context, page: dict[str, str]) -> dict[str, object]:
    """Fail as long as the page's host is one of our own that nobody has mended."""
    host = page["url"].split("/")[2]
    if host.endswith(".internal") and not is_mended(host):
        raise ConnectionRefusedError(f"no route to {host}")
    return {"host": host, "bytes": 4096 + len(page["url"]), "attempt": task.attempt}


@crawler.task("parse_feed", max_attempts=1)
async def parse_feed(_task: grns.Context, feed: dict[str, str]) -> dict[str, object]:
    """Fail with what is no feed."""
    return {"published": {"rss": "2026-02-06", "json": "2026-02-07"}[feed["format"]]}


@crawler.task("render_page")
async def render_page(_task: grns.Context, _page: dict[str, str]) -> None:
    """Go on until somebody ends it."""
    await asyncio.sleep(3600)


@writer.task("summarize", max_attempts=3, backoff=AT_ONCE)
async def summarize(_task: grns.Context, document: dict[str, str]) -> dict[str, str]:
    """Fail with long documents."""
    if document["document"].startswith("long"):
        raise TimeoutError("the model has not answered within 30 s")
    return {"summary": f"What {document['document']} says, in two sentences."}


@writer.task("translate", max_attempts=5)
async def translate(_task: grns.Context, text: dict[str, str]) -> dict[str, str]:
    """Have those of one language come again later."""
    if text["into"] == "tlh":
        raise grns.Retry("429: too many requests, slow down", after=1800, error_class="RateLimited")
    return {"text": f"{text['document']} ({text['into']})"}


@writer.task("tell", max_attempts=2, backoff=AT_ONCE)
async def tell(task: grns.Context, story: dict[str, str]) -> str:
    """Stream a story, and begin anew once; go on after a wait that has somebody's signal."""
    await task.step("outline", outline, task, story["hero"])
    await task.wait_for_signal("go")
    task.stream(f"Attempt {task.attempt}: ")
    for word in ("Once ", "upon ", "a ", "<b>time</b>"):
        task.stream(word)
        await asyncio.sleep(0.1)
    if not is_mended(story["hero"]):
        raise ConnectionError("the model is away")
    return "told"


async def outline(task: grns.Context, hero: str) -> list[str]:
    """Stream what a step does, and a value."""
    task.stream({"hero": hero}, kind="tool_call")
    task.stream("An outline. ")
    return ["sleeps", "wakes up"]


@writer.task("charge")
async def charge(_task: grns.Context, order: dict[str, object]) -> dict[str, object]:
    """Never take what is too much."""
    if int(str(order["cents"])) > 10_000:
        raise grns.Fail("the card was declined: insufficient funds", error_class="CardDeclined")
    return {"paid": order["cents"]}


@courier.task("send_mail")
async def send_mail(_task: grns.Context, mail: dict[str, str]) -> dict[str, str]:
    """Send nothing."""
    return {"sent": mail["to"]}
