"""Dramatiq's side, run with its own packages: `fill URL ROWS PAYLOAD FILE` makes jobs, `work URL FILE` runs.

FILE is there when all jobs are, and each job that runs adds a byte to it. One process with as many threads as
Dramatiq's worker has unless it is told otherwise.
"""

import json
import os
import sys
import threading
from pathlib import Path

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.middleware import AgeLimit, Retries, ShutdownNotifications

_THREADS = 8


def actor(url: str, file: str | None) -> dramatiq.Actor:
    """Return the job on its broker; it writes where there is a file."""
    broker = RabbitmqBroker(
        url=url.removesuffix("//"), middleware=[AgeLimit(), ShutdownNotifications(), Retries()]
    )
    dramatiq.set_broker(broker)
    ran = os.open(file, os.O_WRONLY | os.O_APPEND) if file else None

    def noop(**arguments: object) -> None:
        if ran is not None:
            os.write(ran, b".")

    return dramatiq.actor(noop, broker=broker)


def fill(url: str, rows: int, payload: str, file: str) -> None:
    """Make jobs, and the file when all are there."""
    job, arguments = actor(url, None), json.loads(payload)
    for _ in range(rows):
        job.send(**arguments)
    Path(file).touch()


def work(url: str, file: str) -> None:
    """Run one worker until it is ended."""
    worker = dramatiq.Worker(actor(url, file).broker, worker_threads=_THREADS)
    worker.start()
    threading.Event().wait()


match sys.argv[1:]:
    case ["fill", url, rows, payload, file]:
        fill(url, int(rows), payload, file)
    case ["work", url, file]:
        work(url, file)
