"""Another agent type, for tests that need two."""

from __future__ import annotations

import grns

pool = grns.Pool("scout")


@pool.task("noop")
async def noop(task: grns.Context) -> str:
    """Do nothing, and say who did."""
    return "scout"
