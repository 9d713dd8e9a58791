"""W4: whatever happens to tasks and admitters, no more of a key are queued or running than it allows."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import pytest

from grns.maintenance.reaper import reap
from grns.maintenance.scheduler import promote
from grns.model.outcome import Claim, Verb
from grns.model.task import STATUS_AFTER, TaskStatus
from grns.postgres.database import Database
from tests.support.admitters import admit, lead, put_limit
from tests.support.followers import begin_here
from tests.support.harness import submit
from tests.support.store import cancel, claim, fall_due, fetch, finish, lapse, locked, redrive, release

SEEDS, STEPS = 8, 80
TENANTS = ("acme", "umbrella", "initech")
HOLDS = {TaskStatus.QUEUED, TaskStatus.RUNNING}


@dataclass
class Traffic:
    """Tasks, the claims of those that run, and which maximum held from which row of the log on."""

    database: Database
    chance: random.Random
    ids: list[str] = field(default_factory=list)
    claims: dict[str, Claim] = field(default_factory=dict)
    maxima: list[tuple[int, int]] = field(default_factory=list)
    is_changed: bool = False  # a change counts once the admitter has read of it

    async def put(self, most: int) -> None:
        """Allow so many tasks of a tenant."""
        await put_limit(self.database, key="tenant_id", max_tasks=most)
        (row,) = await fetch(self.database, "select coalesce(max(seq), 0) as seq from grns.events")
        self.maxima.append((row["seq"], most))
        self.is_changed = True

    async def move(self) -> None:
        """Let one thing happen."""
        database, chance = self.database, self.chance
        rows = await fetch(database, "select id, status from grns.tasks")
        by: dict[str, list[str]] = defaultdict(list)
        for row in rows:
            by[row["status"]].append(row["id"])
        match chance.randrange(10):
            case 0 | 1:
                payload = {"tenant_id": chance.choice(TENANTS)}
                self.ids.append((await submit(database, payload=payload, max_attempts=3)).id)
            case 2 | 3 if by["queued"]:
                task_id = chance.choice(by["queued"])
                self.claims[task_id] = await claim(database, task_id)
            case 4 | 5 if by["running"]:
                task_id = chance.choice(by["running"])
                verb = chance.choice((Verb.SUCCEED, Verb.FAIL, Verb.RETRY, Verb.RETRY))
                await finish(database, self.claims[task_id], verb)
            case 6 if by["running"]:
                task_id = chance.choice(by["running"])
                if chance.random() < 0.5:
                    await release(database, self.claims[task_id])
                else:  # its worker died
                    await lapse(database, task_id)
                    await reap(database, 100, None)
            case 7 if by["retry_wait"]:
                await fall_due(database, chance.choice(by["retry_wait"]))
                await promote(database, 100, None)
            case 8 if self.ids:
                task_id = chance.choice(self.ids)
                await (cancel if chance.random() < 0.5 else redrive)(database, task_id)
            case 9:
                await self.put(chance.randint(1, 3))

    async def judge(self) -> None:
        """Hold the log against the maxima, row by row."""
        held: Counter[str] = Counter()
        holds: dict[str, bool] = defaultdict(bool)
        tenants = {
            row["id"]: row["tenant"]
            for row in await fetch(
                self.database, "select id, payload ->> 'tenant_id' as tenant from grns.tasks"
            )
        }
        log = await fetch(
            self.database, "select seq, task_id, kind from grns.events where task_id is not null order by seq"
        )
        for event in log:
            if event["kind"] not in STATUS_AFTER:
                continue
            tenant = tenants[event["task_id"]]
            is_held = STATUS_AFTER[event["kind"]] in HOLDS
            begins = is_held and not holds[event["task_id"]]
            held[tenant] += is_held - holds[event["task_id"]]
            holds[event["task_id"]] = is_held
            most = [most for seq, most in self.maxima if seq < event["seq"]][-1]
            assert not begins or held[tenant] <= most, (event["seq"], tenant, held[tenant], most)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_at_no_row_of_the_log_are_there_too_many(shared: Database, seed: int) -> None:
    await begin_here(shared)
    chance = random.Random(seed)
    traffic = Traffic(shared, chance)
    await traffic.put(2)
    leading = await lead(shared)
    for number in range(STEPS):
        await traffic.move()
        if chance.random() < 0.1:  # the admitter before may not have read all
            leading = await lead(shared, f"owner {number}")
        if traffic.is_changed or chance.random() < 0.6:
            limit = 2000 if traffic.is_changed else chance.choice((1, 3, 2000))
            traffic.is_changed = False
            held = chance.sample(traffic.ids, min(len(traffic.ids), chance.choice((0, 0, 0, 1))))
            async with locked(shared, *held):
                await leading.step(limit)
    await traffic.judge()
    # Nothing is stuck: once all end, all have run.
    leading = await lead(shared, "the last one")  # which does not wait before it tries again what was locked
    for _ in range(3 * len(traffic.ids) + 10):
        await fetch(shared, "update grns.tasks set next_attempt_at = now() where next_attempt_at is not null")
        await promote(shared, 1000, None)
        await admit(shared, leading)
        rows = await fetch(shared, "select id, status from grns.tasks where finished_at is null")
        for row in rows:
            if row["status"] == "queued":
                traffic.claims[row["id"]] = await claim(shared, row["id"])
            if row["status"] in ("queued", "running"):
                await finish(shared, traffic.claims[row["id"]])
        if not rows:
            break
    assert await fetch(shared, "select from grns.tasks where finished_at is null") == []
    await traffic.judge()
