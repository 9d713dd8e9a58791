"""A worker over HTTP: it has neither NATS nor Postgres, and writes down what it does as the other workers do.

`python -m tests.chaos.http_worker URL LOOPS`, with its key in GRNS_CHAOS_KEY, until SIGTERM.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from pathlib import Path

import grns
from tests.chaos.content import password_of
from tests.chaos.journal import Journal

POOL, AGENT = "remote", "dora"
_MAX_ATTEMPTS = 8


async def work(client: grns.AgentClient, journal: Journal) -> None:
    """Take tasks, one after another, and note each step."""
    async for task in client.tasks(wait_seconds=5.0):
        note = {
            "task": task.id,
            "attempt": task.attempt,
            "lease": "",
            "agent": task.agent_id,
            "pid": os.getpid(),
            "named": AGENT,
        }
        async with task:
            journal.note("begin", **note)
            try:
                assert task.payload.get("password") in (None, password_of(task.payload["number"]))
                await asyncio.sleep(task.payload["seconds"])
            except asyncio.CancelledError:
                journal.note("cancelled", **note)
                raise
            if random.random() < task.payload.get("failing", 0.0):
                journal.note("failed", **note)
                raise grns.Retry("drawn so", after=random.random())
            journal.note("end", **note)
            task.result = {"number": task.payload["number"], "attempt": task.attempt}


async def main(url: str, loops: int) -> None:
    """Work until SIGTERM."""
    journal = Journal(Path(os.environ["GRNS_CHAOS_DIRECTORY"]) / f"effects-{os.getpid()}.jsonl")
    async with grns.AgentClient(
        url,
        task_types=["steady"],
        agent_type=POOL,
        name=AGENT,
        key=os.environ["GRNS_CHAOS_KEY"],
        lease_seconds=float(os.environ["GRNS_LEASE_SECONDS"]),
        max_attempts=_MAX_ATTEMPTS,
    ) as client:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, client.stop)
        await asyncio.gather(*(work(client, journal) for _ in range(loops)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
