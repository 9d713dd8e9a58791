"""The crew's readers: each message is read, dealt with, and only then acknowledged.

`python -m tests.chaos.mail_reader AGENT …`, until SIGTERM.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from pathlib import Path

import grns
from grns.errors import GrnsError
from tests.chaos.journal import Journal


async def read(client: grns.Client, agent: str, journal: Journal) -> None:
    """Read the mail of one agent for ever."""
    while True:
        try:
            found = await client.mail.poll(agent, limit=random.choice((1, 5, 50)), wait=random.random() * 3)
            kept = []
            for mail in found:
                await asyncio.sleep(random.random() / 50)
                journal.note("done", agent=agent, id=str(mail.id), seq=mail.seq)
                kept.append(mail)
                if random.random() < 0.1:  # the rest comes again
                    break
            if kept:
                await client.mail.ack(agent, kept)
        except GrnsError:  # it is not registered yet, or the servers are away
            await asyncio.sleep(random.random() / 2)


async def main() -> None:
    """Read the mail of all agents that are named."""
    place = Path(os.environ["GRNS_CHAOS_DIRECTORY"]) / f"reads-{os.getpid()}.{time.time_ns():x}.jsonl"
    journal = Journal(place)
    while True:
        try:
            async with grns.connect() as client:
                await asyncio.gather(*(read(client, agent, journal) for agent in sys.argv[1:]))
        except GrnsError:
            await asyncio.sleep(0.2)


if __name__ == "__main__":
    asyncio.run(main())
