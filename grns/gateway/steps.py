"""Steps of HTTP workers: the statements and their guards are those of other workers."""

from __future__ import annotations

from grns.errors import InvalidInputError
from grns.gateway.attempts import HttpAttempts, persist
from grns.gateway.shared_writes import OpenDatabase
from grns.model.claim_token import ClaimToken
from grns.model.outcome import Finished, Outcome, Suspension, Verb
from grns.postgres.database import Database, Session
from grns.worker.finishes import Finish, Finishes
from grns.worker.step import EventWait, RecordedStep
from grns.worker.step_store import StepStore
from grns.worker.steps import MOST_BYTES, MOST_STEPS


class HttpSteps:
    """Reads and records steps, takes signals, and lets tasks wait. Each method raises `LeaseLostError`."""

    def __init__(self, attempts: HttpAttempts) -> None:
        self._attempts = attempts

    async def read(self, open_database: OpenDatabase, token: ClaimToken) -> list[RecordedStep]:
        """Return the steps of a task."""
        return await persist(open_database, lambda database: _store(database).read(token.claim()))

    async def record(self, open_database: OpenDatabase, token: ClaimToken, name: str, value: str) -> str:
        """Record a step, and return the value that is kept. Raises InvalidInputError: `too_many_steps`."""

        async def ask(database: Database | Session) -> str:
            (row,) = await database.run("count_steps", token.task_id, token.workspace, name)
            if row["steps"] >= MOST_STEPS or row["bytes"] + len(value) > MOST_BYTES:
                raise InvalidInputError(
                    "too_many_steps",
                    f"a task has at most {MOST_STEPS:,} steps, with {MOST_BYTES // 1024**2} MiB of values",
                )
            return await _store(database).record(token.claim(), name, "step", value)

        return await persist(open_database, ask)

    async def take_signal(
        self,
        open_database: OpenDatabase,
        token: ClaimToken,
        step: str,
        name: str,
        *,
        digest: str | None,
        event: EventWait | None,
    ) -> str | None:
        """Take a signal for a step: its value; None if there is none."""

        async def ask(database: Database | Session) -> str | None:
            return await _store(database).take_signal(token.claim(), step, name, digest=digest, event=event)

        return await persist(open_database, ask)

    async def suspend(self, open_database: OpenDatabase, token: ClaimToken, suspension: Suspension) -> str:
        """Let a task wait, and return its status: `waiting`; `cancelled` if it was to be cancelled."""
        outcome = Outcome(Verb.SUSPEND, suspension=suspension)
        finish = Finish(token.claim(), outcome, token.event_id(f"suspend {suspension.step}"))

        async def ask(database: Database | Session) -> Finished:
            finishes = Finishes(database, batch_limit=1)
            finished = await finishes.suspend(finish, suspension)
            if finished.is_lost:
                finished = await finishes.read_back(finish) or finished
            return finished

        finished = await persist(open_database, ask, finish)
        if finished.status == "cancelled":
            return await self._attempts.finish(open_database, token, Outcome(Verb.CANCEL))
        self._attempts.note_end(token, finished.status)
        return finished.status


def _store(database: Database | Session) -> StepStore:
    return StepStore(database, batch_limit=1)
