"""How a worker hears of a pause: it takes nothing meanwhile, and afterwards looks for what it has missed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grns.errors import UnavailableError
from grns.postgres.database import Database
from grns.tasks import pauses as pause
from grns.telemetry.signal import Signal
from grns.telemetry.task_signals import WorkerPaused, WorkerResumed
from grns.worker.claims import Claimant
from grns.worker.pause_watch import PauseWatch
from grns.worker.slots import Slots
from tests.support.store import WORKER, fetch

ACTOR = "cli:me@here"


class Stage:
    """A worker's slots, and who watches for pauses of its pool."""

    def __init__(self, database: Database, who: Claimant = WORKER) -> None:
        self.slots = Slots(3)
        self.emitted: list[Signal] = []
        self.resumed = 0
        self.watch = PauseWatch(
            database=database, claimant=who, slots=self.slots, on_resumed=self._note, emit=self.emitted.append
        )

    def _note(self) -> None:
        self.resumed += 1

    async def look(self) -> tuple[bool, int]:
        """Look once; returns whether the slots are held back, and how often a pause has ended."""
        assert 0 < await self.watch.tick() <= 2.0
        return self.slots.is_held, self.resumed


async def begin(database: Database, task_type: str | None = None, agent_type: str = "worker") -> None:
    """Pause a pool."""
    await pause.begin(
        database, workspace="default", agent_type=agent_type, task_type=task_type, actor=ACTOR,
        reason="deploy", until=3600.0,
    )  # fmt: skip


async def end(database: Database, task_type: str | None = None) -> None:
    """Resume a pool."""
    await pause.end(
        database, workspace="default", agent_type="worker", task_type=task_type, actor=ACTOR
    )  # fmt: skip


async def test_slots_are_held_back_while_the_pool_is_paused(shared: Database) -> None:
    stage = Stage(shared)
    assert stage.slots.try_take()
    assert await stage.look() == (False, 0)
    await begin(shared, agent_type="writer")
    assert await stage.look() == (False, 0)
    await begin(shared)
    for _ in range(2):
        assert await stage.look() == (True, 0)
    assert (stage.slots.taken, stage.slots.try_take()) == (1, False), "what runs goes on"
    await end(shared)
    for _ in range(2):
        assert await stage.look() == (False, 1)
    assert stage.slots.try_take()


async def test_a_pause_and_its_end_are_told_once(shared: Database) -> None:
    stage = Stage(shared)
    await begin(shared)
    for _ in range(2):
        await stage.look()
    (told,) = stage.emitted
    assert isinstance(told, WorkerPaused)
    assert (told.agent_type, told.task_type, told.paused_by, told.reason) == ("worker", None, ACTOR, "deploy")
    assert told.until is not None
    await end(shared)
    for _ in range(2):
        await stage.look()
    assert stage.emitted[1:] == [WorkerResumed("worker", None)]


async def test_a_pause_whose_time_is_over_has_ended(shared: Database) -> None:
    stage = Stage(shared)
    await begin(shared)
    assert await stage.look() == (True, 0)
    await fetch(shared, "update grns.pauses set until = now() - interval '1 s'")
    assert await stage.look() == (False, 1)


async def test_while_one_type_is_paused_the_others_are_served(shared: Database) -> None:
    stage = Stage(shared, replace(WORKER, handled={"noop": 3, "other": 3}))
    await begin(shared, "noop")
    assert await stage.look() == (False, 0)
    await begin(shared, "other")
    assert await stage.look() == (True, 0), "there is nothing left for it"
    await end(shared, "noop")
    assert await stage.look() == (False, 1)
    await begin(shared, "unheard_of")
    await end(shared, "other")
    assert await stage.look() == (False, 2)


async def test_a_pause_that_nobody_saw_is_caught_up_with_where_it_was_felt(shared: Database) -> None:
    """It began and ended between two looks, and in between a command was refused."""
    stage = Stage(shared)
    assert stage.watch.note("noop"), "this is news"
    for _ in range(2):
        assert await stage.look() == (False, 1)
    assert stage.emitted == []


async def test_what_was_refused_during_a_pause_is_caught_up_with_once(shared: Database) -> None:
    stage = Stage(shared, replace(WORKER, handled={"noop": 3, "other": 3}))
    await begin(shared, "noop")
    await stage.look()
    assert not stage.watch.note("noop"), "that is known"
    assert stage.watch.note("other"), "that is not, and it is over already"
    assert await stage.look() == (False, 1)
    await end(shared, "noop")
    for _ in range(2):
        assert await stage.look() == (False, 2)


async def test_what_is_refused_while_it_looks_is_for_the_next_look(
    shared: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What this one has seen may be from before the pause."""
    stage, look = Stage(shared), pause.in_force

    async def too_early(*asked: Any) -> list[pause.Pause]:
        seen = await look(*asked)
        stage.watch.note("noop")
        return seen

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(pause, "in_force", too_early)
        assert await stage.look() == (False, 0)
    assert await stage.look() == (False, 1)


async def test_what_was_refused_is_not_forgotten_while_postgres_is_away(shared: Database) -> None:
    away = Database(shared.url, name="away")
    stage = Stage(away)
    stage.watch.note("noop")
    with pytest.raises(UnavailableError):
        await stage.watch.tick()
    async with away.opened():
        assert await stage.look() == (False, 1)


async def test_who_has_another_reason_to_take_nothing_goes_on_doing_so(shared: Database) -> None:
    stage = Stage(shared)
    stage.slots.hold("heartbeat")
    await begin(shared)
    assert await stage.look() == (True, 0)
    await end(shared)
    assert await stage.look() == (True, 1)
    stage.slots.resume("heartbeat")
    assert not stage.slots.is_held
