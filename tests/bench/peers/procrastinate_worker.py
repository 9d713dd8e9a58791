"""Procrastinate's side, run with its own packages: `fill URL ROWS PAYLOAD` makes jobs, `work URL` runs them.

Its guide asks for asynchronous tasks and concurrency (its example is 30), for as many connections in the
pool and one more where jobs are short, and offers to delete jobs when they have ended.
"""

import asyncio
import json
import sys

from procrastinate import App, PsycopgConnector

CONCURRENCY = 30
PART = 5_000


def app(url: str) -> App:
    """Return an app with one task."""
    made = App(connector=PsycopgConnector(conninfo=url, max_size=CONCURRENCY + 1))
    made.task(name="noop")(noop)
    return made


async def fill(url: str, rows: int, payload: str) -> None:
    """Make its tables, and jobs in them."""
    arguments = json.loads(payload)
    async with app(url).open_async() as opened:
        await opened.schema_manager.apply_schema_async()
        for made in range(0, rows, PART):
            count = min(PART, rows - made)
            await opened.configure_task("noop").batch_defer_async(*[arguments] * count)


async def work(url: str) -> None:
    """Run one worker until it is ended."""
    async with app(url).open_async() as opened:
        await opened.run_worker_async(concurrency=CONCURRENCY, delete_jobs="successful")


async def noop(**arguments: object) -> None:
    """Do nothing."""


match sys.argv[1:]:
    case ["fill", url, rows, payload]:
        asyncio.run(fill(url, int(rows), payload))
    case ["work", url]:
        asyncio.run(work(url))
