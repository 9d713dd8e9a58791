"""PGQueuer's side, run with its own packages: `fill URL ROWS PAYLOAD` makes jobs, `work URL` runs them.

Its guide to performance asks for large batches where jobs are short, for its autovacuum settings, and for
one plain connection of asyncpg in a worker; its own benchmark runs on uvloop.
"""

import sys

import asyncpg
import uvloop
from pgqueuer import AsyncpgDriver, PgQueuer, Queries

BATCH = 100
PART = 10_000


async def fill(url: str, rows: int, payload: str) -> None:
    """Make its tables, tuned as `pgq autovac` does, and jobs in them."""
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    await queries.optimize_autovacuum()
    for made in range(0, rows, PART):
        count = min(PART, rows - made)
        await queries.enqueue(["noop"] * count, [payload.encode()] * count, [0] * count)
    await connection.close()


async def work(url: str) -> None:
    """Run one worker until it is ended."""
    worker = PgQueuer(AsyncpgDriver(await asyncpg.connect(url)))
    worker.entrypoint("noop")(noop)
    await worker.run(batch_size=BATCH)


async def noop(job: object) -> None:
    """Do nothing."""


match sys.argv[1:]:
    case ["fill", url, rows, payload]:
        uvloop.run(fill(url, int(rows), payload))
    case ["work", url]:
        uvloop.run(work(url))
