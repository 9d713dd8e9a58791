"""A durable subscription of grns that keeps what it was given, once for each event, in a table of its own.

`python -m tests.chaos.subscriber`; after SIGTERM it ends. `check_subscriber` holds the table against the log.
"""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import asyncpg

import grns
from tests.chaos.checker import Report

KINDS = ["evt.task.completed", "evt.task.dead", "evt.task.failed"]
TABLE = "create table if not exists chaos_subscriber (message_id uuid, kind text)"
# Events of the subscription's kinds that it has not handled yet.
UNHEARD = """
    (select count(*) from grns.events e
        where e.kind in ('evt.task.completed', 'evt.task.dead', 'evt.task.failed')
        and not exists (select from chaos_subscriber s where s.message_id = e.message_id))
"""


async def _handle(event: grns.Event, connection: Any) -> None:
    await connection.execute(
        "insert into chaos_subscriber values ($1, $2)", event.envelope.message_id, event.kind
    )


async def follow() -> None:
    """Handle events until asked to end, however often Postgres or the broker are away."""
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    while not ending.is_set():
        try:
            async with grns.connect() as client:
                await client.subscribe("storm", _handle, kinds=KINDS)
                await ending.wait()
        except grns.GrnsError:
            await asyncio.sleep(0.5)


async def check_subscriber(url: str, report: Report) -> None:
    """Note events that were not handled, or more than once, or not asked for."""
    connection = await asyncpg.connect(url)
    rows = await connection.fetch(
        "select message_id, kind, count(*) as times from chaos_subscriber group by 1, 2"
    )
    events = await connection.fetch("select message_id from grns.events where kind = any ($1)", KINDS)
    await connection.close()
    handled = {row["message_id"]: row for row in rows}
    for event in events:
        if event["message_id"] not in handled:
            report.found("undelivered", f"{event['message_id']} was never given to the subscription")
    for message_id, row in handled.items():
        if row["times"] > 1:
            report.found("undelivered", f"{message_id} was handled {row['times']} times by the subscription")
        if row["kind"] not in KINDS:
            report.found(
                "undelivered", f"{message_id} ({row['kind']}) was given to the subscription, unasked"
            )


if __name__ == "__main__":
    asyncio.run(follow())
