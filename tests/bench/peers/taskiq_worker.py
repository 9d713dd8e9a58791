"""taskiq's side on JetStream: `fill URL ROWS PAYLOAD FILE` makes jobs, `work URL FILE` runs them.

FILE is there when all jobs are, and each job that runs adds a byte to it. The broker is the pull one, and the
receiver is the one that `taskiq worker` runs, with as many jobs at a time as a worker of grns has slots.
"""

import asyncio
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import uvloop
from taskiq.receiver import Receiver
from taskiq_nats import PullBasedJetStreamBroker

_SLOTS = 100


def broker(url: str, file: str | None) -> PullBasedJetStreamBroker:
    """Return the broker with its job, which writes where there is a file."""
    made = PullBasedJetStreamBroker(servers=url, queue="bench", pull_consume_batch=_SLOTS)
    ran = os.open(file, os.O_WRONLY | os.O_APPEND) if file else None

    async def noop(filling: str) -> None:
        if ran is not None:
            os.write(ran, b".")

    made.register_task(noop, task_name="noop")
    return made


async def fill(url: str, rows: int, payload: str) -> None:
    """Make jobs."""
    filled, arguments = broker(url, None), json.loads(payload)
    await filled.startup()
    job = filled.find_task("noop")
    for _ in range(rows):
        await job.kiq(**arguments)
    await filled.shutdown()


async def work(url: str, file: str) -> None:
    """Run one worker until it is ended."""
    works = broker(url, file)
    works.is_worker_process = True
    with ThreadPoolExecutor(1) as threads:
        await Receiver(works, executor=threads, max_async_tasks=_SLOTS).listen(asyncio.Event())


match sys.argv[1:]:
    case ["fill", url, rows, payload, file]:
        uvloop.run(fill(url, int(rows), payload))
        Path(file).touch()
    case ["work", url, file]:
        uvloop.run(work(url, file))
