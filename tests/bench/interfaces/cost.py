"""What the API costs the workers: tasks go the whole way, with and without users of the API, in turn.

The janitor does not run: it begins with a look at all tasks, which would be measured, too.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.bench.figure import COUNT, SHARE, TASKS, Figures
from tests.bench.interfaces.door import Door, Entrance, log_in, start_api
from tests.bench.interfaces.size import Sizes
from tests.bench.interfaces.table import Tell
from tests.bench.stage import Stage
from tests.bench.whole_way import passed

_DAEMONS = ("relay", "reaper", "scheduler", "stats")
# An open overview asks for itself again every three seconds; somebody looks through a list besides.
_LIST, _OVERVIEW_EVERY = "/tasks?filter=status%3Adead", 3
_TURN_SECONDS = 1.0
_GOOD = 300
_WARM = 3_000


async def measure(stage: Stage, where: Entrance, sizes: Sizes, figures: Figures, tell: Tell) -> None:
    """Measure the rate of both, round by round; the second of a round is the first of the next one."""
    for role in _DAEMONS:
        stage.start(role)
    await stage.start_worker()
    await stage.pass_through(_WARM)
    turns = [
        is_beside
        for number in range(sizes.rounds)
        for is_beside in ((False, True), (True, False))[number % 2]
    ]
    for number, is_beside in enumerate(turns):
        tell("the whole way, with and without the API", number, len(turns))
        if is_beside:
            await asyncio.to_thread(start_api, stage, where)
            with _people(where) as seen:
                rate = (await passed(stage, sizes.passing)).rate
            await stage.end("api")
            figures.note("cost.answers", len(seen), COUNT)
        else:
            rate = (await passed(stage, sizes.passing)).rate
        figures.note("cost.with" if is_beside else "cost.without", rate, TASKS)
    beside, alone = figures.median("cost.with"), figures.median("cost.without")
    assert beside is not None
    assert alone is not None
    figures.note("cost.share", max(0.0, 1 - beside / alone), SHARE)
    for role in ("worker", *_DAEMONS):
        await stage.end(role)


@contextmanager
def _people(where: Entrance) -> Iterator[list[float]]:
    """Let somebody have the dashboard open, and somebody look through a list, until that is enough.

    Yields how long each answer took; fails where one was none.
    """
    is_enough = threading.Event()
    took: list[float] = []
    troubles: list[BaseException] = []

    def look() -> None:
        try:
            _look(where, is_enough, took)
        except BaseException as error:
            troubles.append(error)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield took
    finally:
        is_enough.set()
        thread.join()
    if troubles:
        raise troubles[0]
    assert took, "nobody has looked at anything"


def _look(where: Entrance, is_enough: threading.Event, took: list[float]) -> None:
    door, browser = Door(where.port, key=where.key), log_in(where, where.key_of_all)
    try:
        turn = 0
        while not is_enough.is_set():
            began = time.monotonic()
            answers = [door.get(f"/api/v1{_LIST}")]
            if turn % _OVERVIEW_EVERY == 0:
                answers.append(browser.get("/"))
            for answered in answers:
                assert answered.status < _GOOD, (answered.status, answered.body[:500])
                took.append(answered.milliseconds)
            turn += 1
            is_enough.wait(max(0.0, began + _TURN_SECONDS - time.monotonic()))
    finally:
        door.close()
        browser.close()
