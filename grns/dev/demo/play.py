"""The play: what `grns demo` does, step by step."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import grns
from grns.dev.demo import accident, comparison, material, numbers, truth, witness
from grns.dev.demo import foreign_client as stranger
from grns.dev.demo.show import DemoScreen
from grns.dev.demo.stage import LEASE_SECONDS, DemoStage
from grns.dev.demo.truth import Truth
from grns.errors import GrnsError
from grns.model.task import Status
from grns.postgres import migrate
from grns.runtime.signals import end_on_signals

LIMIT_SECONDS = 120.0
WORKERS = 2
AGENT_TYPE = "digest"
FLAKY = 5
HOPELESS = 3
_LOOK_SECONDS = 0.05
_LATE_SECONDS = 10.0
_ACT_TWO = 1 / 4  # of the tasks have ended when the accident happens
_INTERRUPTED = 130


class Failed(GrnsError):
    """The demo could not be played to its end."""


@dataclass(frozen=True, slots=True)
class DemoRun:
    """Everybody who takes part once the servers run."""

    stage: DemoStage
    show: DemoScreen
    truth: Truth
    witness: witness.Witness
    client: grns.Client


def run(file_count: int) -> int:
    """Play, clean up whatever happens, and return the exit code."""
    try:
        return asyncio.run(_run(file_count))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return _INTERRUPTED


async def _run(file_count: int) -> int:
    end_on_signals()
    with DemoScreen() as show, DemoStage() as stage:
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                differences = await _play(stage, show, file_count)
        except (GrnsError, TimeoutError) as error:
            show.dump([f"FAILED: {error or f'not over after {LIMIT_SECONDS:.0f} s'}"])
            show.dump([line async for line in _state(stage)])
            return 1
        show.say("ending the processes and the servers")
    return 1 if differences else 0


async def _play(stage: DemoStage, show: DemoScreen, file_count: int) -> list[str]:
    """Play it all, and return what differs from what should be."""
    paths = material.files(file_count)
    show.say("starting Postgres and NATS in a temporary directory")
    # Not in a thread: a Ctrl-C is looked at when they run, and can then end them.
    stage.open()
    await migrate.upgrade(stage.database_url)
    async with AsyncExitStack() as company:
        cast = DemoRun(
            stage,
            show,
            await company.enter_async_context(truth.ask(stage.database_url)),
            await company.enter_async_context(witness.watch(stage.nats_url)),
            await company.enter_async_context(
                grns.connect(database_url=stage.database_url, nats_url=stage.nats_url)
            ),
        )
        await _start_processes(cast)
        sent = await stranger.intrude(stage.nats_url)
        show.say("a foreign system has sent a malformed message and a command for an unknown task")
        submitted = await _submit(cast, [str(path) for path in paths])
        total = sum(submitted.values())
        struck = await _accident(cast, total)
        expected = await company.enter_async_context(material.expectations(paths))
        await _finish(cast, total, len(sent))
        show.say("comparing every result with its file, and every task with its events")
        return await _compare(cast, submitted, sent, struck, await expected)


async def _start_processes(cast: DemoRun) -> None:
    cast.stage.start_server()
    for _ in range(WORKERS):
        cast.stage.start_worker()
    while len(await cast.truth.agents()) < WORKERS:
        cast.stage.check()
        await asyncio.sleep(_LOOK_SECONDS)
    cast.show.say(f"relay, reaper, retry scheduler, counter and janitor run, and {WORKERS} workers")


async def _submit(cast: DemoRun, paths: list[str]) -> Counter[str]:
    """Submit one task per file, and those that are to fail; returns how many of each type."""
    tasks: list[dict[str, Any]] = [{"task_type": "flaky", "priority": 1}] * FLAKY
    tasks += [{"task_type": "hopeless", "priority": 1}] * HOPELESS
    tasks += [{"task_type": "digest_file", "payload": {"path": path}} for path in paths]
    tasks = [{"agent_type": AGENT_TYPE, **task} for task in tasks]
    await cast.client.submit_many(tasks)
    cast.show.say(
        f"{len(tasks)} tasks are submitted: {len(paths)} Python files,"
        f" {FLAKY} that fail once, {HOPELESS} that always fail"
    )
    return Counter(task["task_type"] for task in tasks)


async def _accident(cast: DemoRun, total: int) -> accident.Accident:
    """Kill a worker in the middle of the work."""
    while (ended := await _look(cast, total)) < total:
        if ended >= total * _ACT_TWO and (struck := await accident.strike(cast.stage, cast.truth)):
            cast.show.say(
                f"worker {struck.pid} was killed with SIGKILL while it ran {len(struck.held)} attempts;"
                f" their leases end within {LEASE_SECONDS} s"
            )
            return struck
        await asyncio.sleep(_LOOK_SECONDS)
    raise Failed(f"no worker ever held {accident.LEAST_HELD} attempts: the kill could hit nothing")


async def _finish(cast: DemoRun, total: int, letters: int) -> None:
    """Wait until every task has ended, every dead letter is there, and the witness has seen it all."""
    while True:
        is_over = await _look(cast, total) == total
        if is_over and len(await cast.truth.dead_letters()) >= letters:
            break
        await asyncio.sleep(_LOOK_SECONDS)
    rows = await cast.truth.rows()
    deadline = asyncio.get_running_loop().time() + _LATE_SECONDS
    while any(cast.witness.latest(row.id) < row.version for row in rows):
        if asyncio.get_running_loop().time() > deadline:
            return  # the comparison says what is missing
        await asyncio.sleep(_LOOK_SECONDS)


async def _look(cast: DemoRun, total: int) -> int:
    """Show how far the work has got; returns how many tasks have ended."""
    cast.stage.check()
    counts = await cast.truth.counts()
    ended = truth.ended(counts)
    cast.show.step(ended, total, counts.get(Status.RUNNING, 0))
    return ended


async def _compare(
    cast: DemoRun,
    submitted: Counter[str],
    sent: list[bytes],
    struck: accident.Accident,
    expected: Mapping[str, Any],
) -> list[str]:
    rows, entries = await cast.truth.rows(), await cast.truth.entries()
    letters = await cast.truth.dead_letters()
    differences = [
        *comparison.ends(rows, submitted),
        *comparison.results(rows, expected),
        *comparison.statuses(rows, cast.witness.histories),
        *comparison.dead_letters(letters, sent),
        *comparison.accident(struck.held, entries),
    ]
    cast.show.conclude(numbers.count(rows, entries), cast.witness.kinds, letters, differences)
    verdict = "all results and states agree" if not differences else f"{len(differences)} differences"
    cast.show.say(f"{len(rows)} tasks compared: {verdict}")
    return differences


async def _state(stage: DemoStage) -> AsyncIterator[str]:
    """Tell what there is to tell of a play that was broken off."""
    try:
        async with asyncio.timeout(_LATE_SECONDS), truth.ask(stage.database_url) as asked:
            yield f"tasks: {dict(await asked.counts())}"
            yield f"held: { {name: len(ids) for name, ids in (await asked.held()).items()} }"
            yield f"workers: {await asked.agents()}"
            yield f"dead letters: {[letter.reason for letter in await asked.dead_letters()]}"
    except Exception as error:  # whatever broke the play may have broken this too
        yield f"Postgres does not answer: {error!r}"
    for name, text in stage.logs().items():
        yield f"--- the end of the log of {name}\n{text}"
