"""What readers have of a task whose workers are killed while it streams."""

from __future__ import annotations

from pathlib import Path

import pytest

import grns
from tests.support.harness import Fleet

POOL = """
import asyncio
import grns

pool = grns.Pool("tellers")


@pool.task
async def tell(payload: dict, ctx: grns.Context) -> int:
    for number in range(payload["words"]):
        ctx.stream(f"{ctx.attempt}:{number} ")
        await asyncio.sleep(0.05)
    return ctx.attempt
"""
WORDS = 60


@pytest.mark.timeout(120)
async def test_readers_have_what_the_last_attempt_says_though_its_workers_are_killed(
    fleet: Fleet, in_environment: None, tmp_path: Path
) -> None:
    (tmp_path / "tellers.py").write_text(POOL)
    short = {"PYTHONPATH": str(tmp_path), "GRNS_LEASE_SECONDS": "3"}
    fleet.start("server", **short)
    worker = fleet.start("worker", "start", "tellers:pool", **short)
    text, places, kills = "", list[str](), 0
    async with grns.connect() as client:
        handle = await client.submit("tell", {"words": WORDS}, pool="tellers")
        async for one in handle.stream():
            text = "" if one.event == "reset" else text + (one.data if one.event == "chunk" else "")
            places += [one.place] if one.place else []
            if kills < min(one.attempt, 2) and len(text.split()) > 5:  # each of the first two attempts
                worker.kill()
                worker = fleet.start("worker", "start", "tellers:pool", **short)
                kills += 1
        attempt = await handle.result(timeout=10)
        again = "".join([one.data async for one in handle.stream() if one.event == "chunk"])
    assert attempt == 3
    assert text == again == "".join(f"3:{number} " for number in range(WORDS))
    assert len(places) == len(set(places)), "no place comes twice"
