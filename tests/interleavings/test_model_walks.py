"""Two thousand random walks of the model, done step by step by the real statements on Postgres.

All walks go at the same pace, one task each: what they want to do in a round goes to Postgres in
batches, as it does in a worker. After each round every row and every message is compared.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from uuid import UUID, uuid4

from grns.maintenance.reaper import reap
from grns.maintenance.scheduler import promote
from grns.model.outcome import Claim, Verb
from grns.model.task import TRANSITIONS, TaskStatus
from grns.postgres.database import Database
from grns.worker.claims import Claimant, Claims
from grns.worker.finishes import Finish, Finishes
from grns.worker.renewals import HeldLease, renew
from tests.interleavings import row as model
from tests.interleavings.row import Change, Row
from tests.support.harness import submit_many
from tests.support.store import cancel, fall_due, fetch, lapse, outcome, redrive, release, with_commands

_WALKS, _ROUNDS = 2000, 25
_LONG = 100_000.0  # seconds: leases and delays end when the walk says so
_WORKERS = [Claimant(name, "default", "worker", {"noop": 3}, _LONG) for name in ("worker-one", "worker-two")]
_VERBS = [Verb.SUCCEED, Verb.FAIL, Verb.RETRY, Verb.RETRY, Verb.RETRY, Verb.SNOOZE, Verb.CANCEL]

_ROWS = """
    select id, status, attempt, coalesce(attempt_limit, max_attempts) as "limit", uncounted_attempts,
        released, lease_id, lease_until < now() as is_over, next_attempt_at <= now() as is_due,
        cancel_requested_at is not null as is_cancel_requested, version
    from grns.tasks order by id
"""
_MESSAGES = "select * from grns.events where seq > $1 order by seq"


@dataclass
class Walk:
    """One task: what the model says of it, the messages that it owes, and every claim it ever gave out."""

    task_id: str
    row: Row
    owed: list[tuple[int, str]] = field(default_factory=list)
    version: int = 0
    claims: list[Claim] = field(default_factory=list)

    def note(self, change: Change | Row | None) -> None:
        """Take over what the model says a statement did."""
        if isinstance(change, Row):
            self.row = change
        elif change is not None:
            self.row, line = change
            self.version += 1
            kinds = [line.event, "cmd.task.execute" * bool(line.command), line.dead_letter]
            self.owed += [(self.version, kind) for kind in kinds if kind]

    def held(self, chance: random.Random) -> int:
        """Return the number of a claim: the latest, mostly, but now and then one that is long over."""
        return len(self.claims) if chance.random() < 0.7 else chance.randint(1, len(self.claims))


class Walks:
    """All walks, and the statements that they are done with."""

    def __init__(self, database: Database, walks: Sequence[Walk], chance: random.Random) -> None:
        self._database = database
        self._walks = walks
        self._chance = chance
        self._claims = [Claims(database, worker, batch_limit=100) for worker in _WORKERS]
        self._finishes = Finishes(database, batch_limit=100)
        self._last_seq = 0
        self._message_ids: set[UUID] = set()
        self.seen: Counter[str] = Counter()
        self._steps: dict[Callable[[list[Walk]], Awaitable[None]], int] = {
            self._claim: 8, self._finish: 9, self._release: 3, self._renew: 2, self._lapse: 3,
            self._fall_due: 3, self._cancel: 1, self._redrive: 2,
        }  # fmt: skip

    async def round(self) -> None:
        """Let each walk do one thing, then perhaps the daemons; compare."""
        steps = list(self._steps)
        wished = [self._chance.choices(range(len(steps)), list(self._steps.values()))[0] for _ in self._walks]
        order = sorted(range(len(wished)), key=wished.__getitem__)
        for step, chosen in groupby(order, key=wished.__getitem__):
            await steps[step]([self._walks[number] for number in chosen])
        if self._chance.random() < 0.5:
            await self._reap()
        if self._chance.random() < 0.5:
            await self._promote()
        await self._compare()

    async def _claim(self, walks: list[Walk]) -> None:
        async def one(walk: Walk) -> None:
            answer = await self._chance.choice(self._claims).claim(walk.task_id, uuid4())
            change = model.claim(walk.row, len(walk.claims) + 1)
            assert isinstance(answer, Claim) == (change is not None), (walk, answer)
            if isinstance(answer, Claim):
                walk.claims.append(answer)
                walk.note(change)

        await asyncio.gather(*map(one, walks))

    async def _finish(self, walks: list[Walk]) -> None:
        async def one(walk: Walk) -> None:
            number, verb = walk.held(self._chance), self._chance.choice(_VERBS)
            claim, said = walk.claims[number - 1], outcome(verb)
            said.backoff_seconds = _LONG
            answer = await self._finishes.finish(Finish(claim, said, uuid4()))
            change = model.finish(walk.row, verb) if self._owns(walk, number) else None
            assert answer.status == (change.row.status if change else "lost")
            walk.note(change)

        await asyncio.gather(*map(one, self._claimed(walks)))

    async def _release(self, walks: list[Walk]) -> None:
        numbers = {walk.task_id: walk.held(self._chance) for walk in self._claimed(walks)}
        held = [walk.claims[numbers[walk.task_id] - 1] for walk in self._claimed(walks)]
        has_begun = self._chance.random() < 0.9
        verdicts = await release(self._database, *held, have_begun=has_begun)
        for walk in self._claimed(walks):
            change = (
                model.release(walk.row, has_begun=has_begun)
                if self._owns(walk, numbers[walk.task_id])
                else None
            )
            assert verdicts[walk.task_id] == (change.row.status if change else "lost")
            walk.note(change)

    async def _renew(self, walks: list[Walk]) -> None:
        walks = self._claimed(walks)
        numbers = [walk.held(self._chance) for walk in walks]
        claims = [walk.claims[number - 1] for walk, number in zip(walks, numbers, strict=True)]
        verdicts = await renew(
            self._database, [HeldLease(claim.id, claim.attempt, claim.lease_id) for claim in claims], _LONG
        )
        for walk, number, verdict in zip(walks, numbers, verdicts, strict=True):
            owns = self._owns(walk, number)
            assert verdict.verdict == ("renewed" if owns else "lost")
            if owns:
                assert verdict.is_cancel_requested == walk.row.is_cancel_requested
                walk.note(model.renew(walk.row))

    async def _lapse(self, walks: list[Walk]) -> None:
        held = [walk for walk in walks if walk.row.lease]
        await lapse(self._database, *(walk.task_id for walk in held))
        for walk in held:
            walk.note(walk.row._replace(is_over=True))

    async def _fall_due(self, walks: list[Walk]) -> None:
        waiting = [walk for walk in walks if walk.row.status in ("waiting", "retry_wait")]
        await fall_due(self._database, *(walk.task_id for walk in waiting))
        for walk in waiting:
            walk.note(walk.row._replace(is_due=True))

    async def _cancel(self, walks: list[Walk]) -> None:
        answers = await cancel(self._database, *(walk.task_id for walk in walks))
        for walk in walks:
            change = model.cancel(walk.row)
            said = "requested" if isinstance(change, Row) else "cancelled" if change else walk.row.status
            assert answers[walk.task_id] == said
            walk.note(change)

    async def _redrive(self, walks: list[Walk]) -> None:
        answers = await redrive(self._database, *(walk.task_id for walk in walks))
        for walk in walks:
            change = model.redrive(walk.row)
            assert answers[walk.task_id] == ("redriven" if change else walk.row.status)
            walk.note(change)

    async def _reap(self) -> None:
        rows = await reap(self._database, len(self._walks), None)
        self._swept({row["id"] for row in rows}, model.reap)

    async def _promote(self) -> None:
        rows = await promote(self._database, len(self._walks), None)
        self._swept({row["id"] for row in rows}, model.promote)

    def _swept(self, ids: set[str], step: Callable[[Row], Change | None]) -> None:
        for walk in self._walks:
            change = step(walk.row)
            assert (walk.task_id in ids) == (change is not None), walk
            walk.note(change)

    @staticmethod
    def _claimed(walks: list[Walk]) -> list[Walk]:
        return [walk for walk in walks if walk.claims]

    @staticmethod
    def _owns(walk: Walk, number: int) -> bool:
        return model.owns(walk.row, walk.claims[number - 1].attempt, number)

    async def _compare(self) -> None:
        """Hold every row, and every message since the last time, against the model."""
        rows = {row["id"]: row for row in await fetch(self._database, _ROWS)}
        messages = with_commands(await fetch(self._database, _MESSAGES, self._last_seq))
        self._last_seq = max([self._last_seq, *(message["seq"] for message in messages)])
        found: dict[str, list[tuple[int, str]]] = {}
        for message in messages:
            assert message["message_id"] not in self._message_ids, "the broker drops an id that it has seen"
            self._message_ids.add(message["message_id"])
            found.setdefault(message["task_id"], []).append((message["version"], message["kind"]))
        for walk in self._walks:
            row = rows[walk.task_id]
            lease = walk.claims[walk.row.lease - 1].lease_id if walk.row.lease else None
            assert row["lease_id"] == lease, walk
            said = {name: row[name] or 0 for name in Row._fields if name != "lease"}
            assert said == {name: getattr(walk.row, name) for name in said}, walk
            assert row["version"] == walk.version
            assert found.get(walk.task_id, []) == walk.owed, walk
            self.seen.update(kind for _, kind in walk.owed)
            walk.owed = []


async def test_the_statements_do_what_the_model_says(shared: Database) -> None:
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(2**32))
    sys.stderr.write(f"the same again with SEED={seed}\n")
    chance = random.Random(seed)
    starts = [(limit, is_delayed) for limit in (1, 2, 3) for is_delayed in (False, True)]
    walks: list[Walk] = []
    for number, (limit, is_delayed) in enumerate(starts):
        count = _WALKS * (number + 1) // len(starts) - _WALKS * number // len(starts)
        ids = await submit_many(
            shared, count, max_attempts=limit, delay_seconds=_LONG if is_delayed else 0.0
        )  # fmt: skip
        for task_id in ids:
            walk = Walk(task_id, Row(TaskStatus.QUEUED))
            walk.note(model.submit(limit, is_delayed=is_delayed))
            walks.append(walk)
    assert len(walks) == _WALKS
    everyone = Walks(shared, walks, chance)
    for _ in range(_ROUNDS):
        await everyone.round()
    lines = {line.event for line in TRANSITIONS} | {"cmd.task.execute", "dlq.task.failed", "dlq.task.dead"}
    assert set(everyone.seen) == lines, "the walks went everywhere"
