"""An agent as a process: it takes tasks over HTTP, notes what it does, and needs no server but the API.

`python -m tests.support.agents URL`, with a key in AGENT_KEY: `noop` ends at once, `slow` takes as many
seconds as its payload says.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import grns

TYPES = ["noop", "slow"]
LEASE_SECONDS = 1.0


async def do(task: grns.AgentTask) -> Any:
    """Do one task."""
    sys.stdout.write(f"{task.id} {task.attempt}\n")
    sys.stdout.flush()
    if task.task_type == "slow":
        await asyncio.sleep(task.payload["seconds"])
    return {"attempt": task.attempt}


async def main(url: str) -> None:
    """Take tasks for ever."""
    key = os.environ["AGENT_KEY"]
    async with grns.AgentClient(url, key=key, task_types=TYPES, lease_seconds=LEASE_SECONDS) as client:
        async for task in client.tasks():
            async with task:
                task.result = await do(task)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
