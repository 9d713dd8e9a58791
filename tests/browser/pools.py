"""A pool that fails until somebody has mended what it needs: a file."""

from __future__ import annotations

import os
from typing import Any

import grns

pool = grns.Pool("worker")


@pool.task("fetch_page", max_attempts=1)
async def fetch_page(task: grns.Context, payload: dict[str, Any]) -> dict[str, int]:
    """Fail as long as the file is not there."""
    if not os.path.exists(os.environ["GRNS_TEST_MENDED"]):  # noqa: ASYNC240 - a test makes it
        raise ConnectionRefusedError(f"no route to {payload.get('host', 'somewhere')}")
    return {"attempt": task.attempt}


@pool.task("noop")
async def noop(task: grns.Context) -> None:
    """Do nothing."""
