"""Graphs of up to eight tasks that end in any order and any way: each task ends up where its needs say."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from grns.model.outcome import Verb
from grns.postgres.database import Database
from tests.support.followers import begin_here, follow, lead
from tests.support.harness import submit
from tests.support.store import claim, fetch, finish, locked, redrive

GRAPHS, STEPS = 40, 30
READ_AGAIN = """
update grns.follow_cursor set low = coalesce((select min(e.seq) - 1 from grns.events e), low), followed = '{}'
"""
MISCOUNTED = """
select from grns.waits w where (w.open, w.met, w.broken) <> (
    select count(*) filter (where e.ended_as is null),
        count(*) filter (where grns.is_met(e.outcome, e.ended_as)),
        count(*) filter (where grns.is_broken(e.outcome, e.ended_as))
    from grns.needs e where e.task_id = w.task_id)
"""
OUTCOMES = ("success", "success", "failure", "end")


@dataclass
class Expected:
    """What should be of a task."""

    needs: dict[int, str]
    required: int
    status: str = "waiting"
    reason: str | None = None


@dataclass
class Graph:
    """A model of the graph: statuses as they have to be once everything is followed."""

    tasks: list[Expected] = field(default_factory=list)

    def settle(self) -> None:
        """Queue, cancel and bring back what its needs say, until nothing changes."""
        while any([self._settle(task) for task in self.tasks]):
            pass

    def _settle(self, task: Expected) -> bool:
        if not task.needs or (task.status != "waiting" and task.reason is None):
            return False
        ends = [self._end(self.tasks[one]) for one in task.needs]
        met = sum(_is_met(outcome, end) for outcome, end in zip(task.needs.values(), ends, strict=True))
        still = ends.count(None)
        if met >= task.required:
            new: tuple[str, str | None] = ("queued", None)
        elif met + still >= task.required:
            new = ("waiting", None)
        else:
            broken = any(
                outcome == "success" and end in ("failed", "cancelled")
                for outcome, end in zip(task.needs.values(), ends, strict=True)
            )
            new = ("cancelled", task.reason or ("dependency" if broken else "skipped"))
        has_changed = (task.status, task.reason) != new
        task.status, task.reason = new
        return has_changed

    def _end(self, task: Expected) -> str | None:
        if task.reason == "skipped":
            return "skipped"
        return task.status if task.status in ("succeeded", "failed", "cancelled") else None


def _is_met(outcome: str, end: str | None) -> bool:
    if outcome == "success":
        return end == "succeeded"
    if outcome == "failure":
        return end in ("failed", "cancelled")
    return end is not None


async def build(database: Database, chance: random.Random) -> tuple[Graph, list[str]]:
    """Submit a random graph, some of it after its needs have ended."""
    graph = Graph()
    ids: list[str] = []
    for place in range(chance.randint(2, 8)):
        chosen = sorted(chance.sample(range(place), chance.randint(0, min(place, 3))))
        needs = {one: chance.choice(OUTCOMES) for one in chosen}
        required = chance.randint(1, len(needs)) if needs else 0
        graph.tasks.append(Expected(needs, required, "waiting" if needs else "queued"))
        wanted = tuple({"task": ids[one], "outcome": outcome} for one, outcome in needs.items())
        made = await submit(database, needs=wanted, required=required or None)
        ids.append(made.id)
    return graph, ids


async def step(database: Database, chance: random.Random, graph: Graph, ids: list[str]) -> None:
    """End a task that is queued, or redrive one that has failed."""
    queued = [place for place, one in enumerate(graph.tasks) if one.status == "queued"]
    failed = [place for place, one in enumerate(graph.tasks) if one.status == "failed"]
    if failed and chance.random() < 0.3:
        place = chance.choice(failed)
        await redrive(database, ids[place])
        graph.tasks[place].status = "queued"
    elif queued:
        place = chance.choice(queued)
        verb = chance.choice((Verb.SUCCEED, Verb.FAIL))
        await finish(database, await claim(database, ids[place]), verb)
        graph.tasks[place].status = "succeeded" if verb is Verb.SUCCEED else "failed"


@pytest.mark.parametrize("seed", range(GRAPHS))
async def test_every_task_is_where_its_needs_say(shared: Database, seed: int) -> None:
    await begin_here(shared)
    chance = random.Random(seed)
    graph, ids = await build(shared, chance)
    leading = await lead(shared)
    for _ in range(STEPS):
        held = chance.sample(ids, chance.choice((0, 0, 0, 1)))
        await step(shared, chance, graph, ids)
        if chance.random() < 0.2:  # reads again what was acted on before
            await fetch(shared, READ_AGAIN)
            leading = await lead(shared, f"owner {chance.random()}")
        rows = chance.choice((1, 3, 2000))
        async with locked(shared, *held):
            await follow(shared, leading, rows)
        assert await fetch(shared, MISCOUNTED) == []
        await follow(shared, leading, rows)
        graph.settle()
        found = await fetch(shared, "select id, status from grns.tasks")
        assert {row["id"]: row["status"] for row in found} == {
            task_id: one.status for task_id, one in zip(ids, graph.tasks, strict=True)
        }
        assert await fetch(shared, MISCOUNTED) == []
