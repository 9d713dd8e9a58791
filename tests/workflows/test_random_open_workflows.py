"""W3 for open workflows: in whatever order tasks are added, end, are redriven and read, each counts once."""

from __future__ import annotations

import random
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest

import grns
from grns.client.client import Client
from grns.client.workflow import WorkflowHandle
from grns.model.outcome import Verb
from grns.postgres.database import Database
from tests.support.followers import begin_here, follow
from tests.support.store import claim, fetch, finish, log_of, redrive

_LAST = {"task": "noop", "pool": "worker", "payload": {"is_last": True}}
_ONE = {"task": "noop", "pool": "worker"}


@dataclass
class Traffic:
    """What happens to one open workflow. `ends` says how each of its tasks has ended, if it has."""

    database: Database
    run: WorkflowHandle
    rng: random.Random
    ends: dict[str, Verb | None] = field(default_factory=dict)

    async def add(self) -> None:
        """Add some tasks, in a transaction perhaps, while others are followed perhaps."""
        needs = [grns.after(one, "end") for one in self.rng.sample(sorted(self.ends), min(len(self.ends), 1))]
        tasks = [
            _ONE | {"needs": needs if self.rng.random() < 0.3 else ()} for _ in range(self.rng.randint(1, 4))
        ]
        async with AsyncExitStack() as stack:
            connection = None
            if self.rng.random() < 0.5:
                connection = await stack.enter_async_context(self.database.transaction())
            made = await self.run.submit_many(tasks, connection=connection)
            if self.rng.random() < 0.5:
                await self.follow()
        self.ends.update({one.id: None for one in made})

    async def end(self) -> None:
        """Run a queued task to its end."""
        queued = await fetch(
            self.database, "select id from grns.tasks where status = 'queued' and not payload ? 'is_last'"
        )
        if queued:
            task_id = self.rng.choice(queued)["id"]
            verb = self.rng.choice((Verb.SUCCEED, Verb.SUCCEED, Verb.FAIL))
            await finish(self.database, await claim(self.database, task_id), verb)
            self.ends[task_id] = verb

    async def redrive(self) -> None:
        """Redrive a task that has failed."""
        failed = [task_id for task_id, verb in self.ends.items() if verb is Verb.FAIL]
        if failed:
            task_id = self.rng.choice(failed)
            await redrive(self.database, task_id)
            self.ends[task_id] = None

    async def follow(self) -> None:
        """Follow to the end of the log, in small readings or large ones."""
        await follow(self.database, rows=self.rng.choice((1, 3, 2000)))

    async def check(self) -> None:
        """Follow, and hold the counts against what has happened."""
        await self.follow()
        state, ends = await self.run.get(), list(self.ends.values())
        found = (state.total, state.open, state.succeeded, state.failed, state.skipped)
        wanted = (len(ends), ends.count(None), ends.count(Verb.SUCCEED), ends.count(Verb.FAIL), 0)
        assert found == wanted


@pytest.mark.parametrize("seed", range(12))
async def test_random_traffic_is_counted_once(shared: Database, client: Client, seed: int) -> None:
    await begin_here(shared)
    flow = client.workflow("import", is_open=True)
    flow.add_last(on_end=_LAST)
    rng = random.Random(seed)
    traffic = Traffic(shared, await flow.submit(), rng)
    deeds = (traffic.add, traffic.end, traffic.end, traffic.redrive, traffic.check)
    for _ in range(30):
        await rng.choice(deeds)()
    is_sealed_early = rng.random() < 0.5
    if is_sealed_early:
        await traffic.run.seal()
    while None in traffic.ends.values():
        await traffic.follow()
        await traffic.end()
    await traffic.check()
    last = "select status from grns.tasks where payload ? 'is_last'"
    assert [row["status"] for row in await fetch(shared, last)] == [
        "queued" if is_sealed_early else "waiting"
    ]
    await traffic.run.seal()
    await traffic.check()
    assert [row["status"] for row in await fetch(shared, last)] == ["queued"]
    kinds = [entry["kind"] for entry in await log_of(shared, flow.id)]
    assert sum(kind in ("evt.workflow.succeeded", "evt.workflow.failed") for kind in kinds) == 1
