"""Foreign programs that send mail in transactions of their own, which commit late, out of order, or never.

`python -m tests.chaos.mail_sender PER_SECOND`, until SIGTERM.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
import uuid
from pathlib import Path

import asyncpg

from tests.chaos.journal import Journal
from tests.chaos.post import CREW
from tests.chaos.strangers import AWAY

_SEND = "select grns.send_mail('late', '{}', to_agent => $1, message_id => $2)"
_MOST_UNDER_WAY = 20


class _ChangedMindError(Exception):
    """Ends a transaction."""


async def send(journal: Journal) -> None:
    """Send one message, and commit after a while."""
    to, new = random.choice(CREW), uuid.uuid4()
    journal.note("mails", id=str(new), to=to)
    try:
        connection = await asyncpg.connect(os.environ["GRNS_DATABASE_URL"], timeout=3)
        try:
            async with asyncio.timeout(20), connection.transaction():
                await connection.execute(_SEND, to, new)
                await asyncio.sleep(random.choice((0.0, 0.0, 0.5, 3.0)))
                if random.random() < 0.1:
                    raise _ChangedMindError
        finally:
            connection.terminate()
    except (*AWAY, TimeoutError, _ChangedMindError):  # perhaps it has committed
        return
    journal.note("mailed", id=str(new))


async def main(per_second: float) -> None:
    """Send messages, some at a time."""
    journal = Journal(
        Path(os.environ["GRNS_CHAOS_DIRECTORY"]) / f"mails-{os.getpid()}.{time.time_ns():x}.jsonl"
    )
    under_way: set[asyncio.Task[None]] = set()
    while True:
        await asyncio.sleep(random.expovariate(per_second))
        if len(under_way) < _MOST_UNDER_WAY:
            task = asyncio.create_task(send(journal))
            under_way.add(task)
            task.add_done_callback(under_way.discard)


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1])))
