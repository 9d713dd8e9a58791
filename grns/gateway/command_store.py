"""Orders carried out: each in one transaction with the note that it was, hence once, however often it comes.

What had no effect is not noted: a key that belongs to another task, a task that is not there (yet). The same
message may be sent again when that has been mended.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TypeAlias
from uuid import UUID

from grns.errors import ConflictError, GrnsError, NotFoundError
from grns.model import subjects
from grns.postgres.batch import Batch
from grns.postgres.database import Connection, Database, run
from grns.postgres.errors import translated
from grns.postgres.singles import send_all
from grns.tasks.secrets import seal_payloads
from grns.tasks.submit import Prepared, submit_in

# Under which consumer a message is remembered, and its id.
Mark: TypeAlias = tuple[str, UUID]


@dataclass(frozen=True, slots=True)
class SubmitCommand:
    """A submission that came as a message; its key is the message's id where it has none of its own."""

    message_id: UUID
    prepared: Prepared

    @property
    def mark(self) -> Mark:
        """Under what it is remembered: no two workspaces share an id."""
        return subjects.message(subjects.SUBMIT, self.prepared.submission.workspace), self.message_id


@dataclass(frozen=True, slots=True)
class CancelCommand:
    """A cancellation that came as a message."""

    message_id: UUID
    workspace: str
    task_id: str
    reason: str | None

    @property
    def mark(self) -> Mark:
        """Under what it is remembered: with the task, since one id for two is a mistake and no copy."""
        return f"{subjects.message(subjects.CANCEL, self.workspace)} {self.task_id}", self.message_id


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What became of an order: a word for it, and the task, None where it was deleted since.

    `created`, `exists` (its key had its task), `cancelled`, `requested` (`agent_id` runs it, and is to be
    told), `woken` or `kept` of a signal, the status that a task had ended with before, or `repeated`: it had
    been carried out before.
    """

    answer: str
    task_id: str | None
    agent_id: str | None = None


class CommandStore:
    """Carries out orders for one actor; those that arrive together share a transaction."""

    def __init__(self, database: Database, *, batch_limit: int, actor: str) -> None:
        self._database = database
        self.actor = actor
        self._submissions: Batch[SubmitCommand, CommandResult | GrnsError] = Batch(
            self._submit_all, limit=batch_limit
        )
        self._cancellations: Batch[CancelCommand, CommandResult | GrnsError] = Batch(
            self._cancel_all, limit=batch_limit
        )

    async def submit(self, command: SubmitCommand) -> CommandResult:
        """Create the task, or find the one that has its key.

        Raises `ConflictError` where that one is another, and where a message of the same id said something
        else; `InvalidInputError` (`unknown_need`) where it needs a task that is not there.
        """
        if command.prepared.submission.needs:  # refused as a whole with all that it is created with
            return _settled((await self._submit_once([command]))[0])
        return _settled(await self._submissions.ask(command))

    async def cancel(self, command: CancelCommand) -> CommandResult:
        """End the task, or ask for its end; `NotFoundError` where there is none."""
        return _settled(await self._cancellations.ask(command))

    async def _submit_all(self, batch: Sequence[SubmitCommand]) -> Sequence[CommandResult | GrnsError]:
        return await send_all(self._submit_once, batch)

    async def _submit_once(self, batch: Sequence[SubmitCommand]) -> list[CommandResult | GrnsError]:
        await seal_payloads(self._database, [command.prepared for command in batch])
        with translated():
            async with self._database.transaction() as connection:
                are_new = await _mark(connection, batch)
                repeated = [command for command, is_new in zip(batch, are_new, strict=True) if not is_new]
                created = iter(await self._create(connection, list(compress(batch, are_new))))
                found = iter(await _find(connection, repeated))
        return [next(created if is_new else found) for is_new in are_new]

    async def _create(
        self, connection: Connection, batch: Sequence[SubmitCommand]
    ) -> list[CommandResult | GrnsError]:
        if not batch:
            return []
        answers = await submit_in(connection, [command.prepared for command in batch], actor=self.actor)
        refused = [
            one for one, answer in zip(batch, answers, strict=True) if isinstance(answer, ConflictError)
        ]
        await _unmark(connection, {command.mark for command in refused})
        return [
            answer
            if isinstance(answer, ConflictError)
            else CommandResult("created" if answer.created else "exists", answer.id)
            for answer in answers
        ]

    async def _cancel_all(self, batch: Sequence[CancelCommand]) -> list[CommandResult | GrnsError]:
        """Cancel tasks, those of one workspace and for one reason together."""
        alike: dict[tuple[str, str | None], list[int]] = {}
        for place, command in enumerate(batch):
            alike.setdefault((command.workspace, command.reason), []).append(place)
        answers: dict[int, CommandResult | GrnsError] = {}
        for places in alike.values():
            answers |= zip(places, await self._cancel_alike([batch[place] for place in places]), strict=True)
        return [answers[place] for place in range(len(batch))]

    async def _cancel_alike(self, batch: Sequence[CancelCommand]) -> Sequence[CommandResult | GrnsError]:
        try:
            return await send_all(self._cancel_once, batch)
        except GrnsError as error:  # that of these; the others have answers of their own
            return [error] * len(batch)

    async def _cancel_once(self, batch: Sequence[CancelCommand]) -> list[CommandResult | GrnsError]:
        workspace, reason = batch[0].workspace, batch[0].reason
        with translated():
            async with self._database.transaction() as connection:
                are_new = await _mark(connection, batch)
                new = list(compress(batch, are_new))
                told = await self._cancel(connection, [command.task_id for command in new], reason, workspace)
                unknown = {command.mark for command in new if command.task_id not in told}
                await _unmark(connection, unknown)
        fresh = (told.get(command.task_id) for command in batch)
        return [
            _unknown(command)
            if command.mark in unknown
            else answer
            if is_new and answer
            else _repeated(command)
            for command, is_new, answer in zip(batch, are_new, fresh, strict=True)
        ]

    async def _cancel(
        self, connection: Connection, ids: Sequence[str], reason: str | None, workspace: str
    ) -> dict[str, CommandResult]:
        if not ids:
            return {}
        rows = await run(connection, "cancel", ids, reason, workspace, self.actor)
        return {row["id"]: CommandResult(row["answer"], row["id"], row["agent_id"]) for row in rows}


def _settled(answer: CommandResult | GrnsError) -> CommandResult:
    if isinstance(answer, GrnsError):
        raise answer
    return answer


def _unknown(command: CancelCommand) -> NotFoundError:
    return NotFoundError(f"there is no task {command.task_id} in workspace {command.workspace}")


def _repeated(command: CancelCommand) -> CommandResult:
    return CommandResult("repeated", command.task_id)


async def _mark(connection: Connection, batch: Sequence[SubmitCommand | CancelCommand]) -> list[bool]:
    """Remember all of them, and say of each whether it is new: of equal ones, the first may be."""
    marks = [command.mark for command in batch]
    rows = await run(connection, "mark_messages", *_columns(marks))
    fresh = {(row["consumer"], row["message_id"]) for row in rows}
    are_new = []
    for mark in marks:
        are_new.append(mark in fresh)
        fresh.discard(mark)
    return are_new


async def _unmark(connection: Connection, marks: Collection[Mark]) -> None:
    if marks:
        await run(connection, "unmark_messages", *_columns(marks))


async def _find(connection: Connection, batch: Sequence[SubmitCommand]) -> list[CommandResult | GrnsError]:
    """Return what is left of submissions that had been carried out before."""
    if not batch:
        return []
    said = [(command.prepared, command.prepared.submission) for command in batch]
    rows = await run(
        connection,
        "find_submitted",
        [one.workspace for _, one in said],
        [one.idempotency_key for _, one in said],
        [one.task_type for _, one in said],
        [one.agent_type for _, one in said],
        [prepared.payload for prepared, _ in said],
    )
    found: list[CommandResult | GrnsError] = [CommandResult("repeated", None) for _ in batch]
    for row in rows:
        place = row["ordinal"] - 1
        found[place] = (
            CommandResult("repeated", row["task_id"]) if row["same"] else _other(batch[place], row["task_id"])
        )
    return found


def _other(command: SubmitCommand, task_id: str) -> ConflictError:
    return ConflictError(
        f"message {command.message_id} was handled before, and task {task_id} is another one"
    )


def _columns(marks: Collection[Mark]) -> tuple[list[str], list[UUID]]:
    return [consumer for consumer, _ in marks], [message_id for _, message_id in marks]
