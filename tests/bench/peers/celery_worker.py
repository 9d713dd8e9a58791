"""Celery's side, run with its own packages: `fill URL ROWS PAYLOAD FILE` makes jobs, `work URL FILE` runs.

FILE is there when all jobs are, and each job that runs adds a byte to it. Celery's guide to optimising asks
for a large prefetch multiplier where tasks are short ("Say 64, or 128"), and its worker has a process for
each core; results that nobody reads are not kept.
"""

import json
import os
import sys
from pathlib import Path

from celery import Celery

PREFETCH = 128
QUIET = ["--loglevel", "ERROR", "--without-gossip", "--without-mingle", "--without-heartbeat"]


def app(url: str) -> Celery:
    """Return an app that keeps no results."""
    made = Celery("bench", broker=url)
    made.conf.update(
        task_ignore_result=True,
        worker_prefetch_multiplier=PREFETCH,
        broker_connection_retry_on_startup=True,
    )
    return made


def fill(url: str, rows: int, payload: str, file: str) -> None:
    """Make jobs, and the file when all are there."""
    filled = app(url)
    arguments = json.loads(payload)
    with filled.producer_or_acquire() as producer:
        for _ in range(rows):
            filled.send_task("noop", kwargs=arguments, producer=producer)
    Path(file).touch()


def work(url: str, file: str) -> None:
    """Run one worker until it is ended."""
    ran = os.open(file, os.O_WRONLY | os.O_APPEND)

    def noop(**arguments: object) -> None:
        os.write(ran, b".")

    worker = app(url)
    worker.task(name="noop")(noop)
    worker.worker_main(["worker", *QUIET])


match sys.argv[1:]:
    case ["fill", url, rows, payload, file]:
        fill(url, int(rows), payload, file)
    case ["work", url, file]:
        work(url, file)
