"""Steps, sleeps, fan-out and join without servers."""

from __future__ import annotations

from typing import Any

import pytest

import grns
from grns import testing

POOL = grns.Pool("worker")
RAN: list[str] = []


def search(word: str) -> str:
    RAN.append(word)
    return word.upper()


@POOL.task
async def fetch_page(page: dict[str, Any]) -> int:
    if page["number"] < 0:
        raise grns.Fail("no such page")
    return int(page["number"]) * 10


@POOL.task(max_attempts=1)
async def research(topic: dict[str, Any], ctx: grns.Context) -> dict[str, Any]:
    found = [await ctx.step(f"search-{word}", search, word) for word in topic["words"]]
    if topic.get("fails") and ctx.attempt == 1:
        raise ConnectionError
    await ctx.sleep(86_400)
    pages = await ctx.fan_out("pages", fetch_page, [{"number": n} for n in topic.get("pages", ())])
    read = await ctx.join(pages, return_exceptions=True)
    return {"found": found, "pages": [one if isinstance(one, int) else "error" for one in read]}


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


async def test_a_step_of_an_earlier_attempt_is_passed() -> None:
    steps = {"search-a": "found before"}
    result = await testing.run(research, {"words": ["a", "b"]}, steps=steps)
    assert result["found"] == ["found before", "B"]
    assert RAN == ["b"]
    assert steps["search-b"] == "B"


async def test_eager_tasks_keep_their_steps_and_run_what_they_fan_out() -> None:
    with testing.eager() as client:
        handle = await client.submit(research, {"words": ["a"], "fails": True, "pages": [1, 2, -1]})
        assert await handle.result() == {"found": ["A"], "pages": [10, 20, "error"]}
        assert (await handle.get()).attempt == 2
    assert RAN == ["a"]


async def test_signals_are_passed() -> None:
    context = testing.context(signals={"approved": {"by": "ann"}})
    assert await context.wait_for_signal("approved") == {"by": "ann"}
    with pytest.raises(grns.WaitTimeoutError):
        await context.wait_for_signal("other", timeout=3600)
    with pytest.raises(grns.InvalidInputError, match="pass signals="):
        await context.wait_for_signal("other")


async def test_a_step_with_a_transaction_needs_a_connection() -> None:
    async def pay(connection: Any) -> int:
        return 1

    with pytest.raises(grns.InvalidInputError, match=r"ctx\.step_transaction\(\) needs a connection"):
        await testing.context().step_transaction("pay", pay)
