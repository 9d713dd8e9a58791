"""Triage: what a person does about what went wrong, one by one, and who it was.

For many at once there are operations. Each thing done is an event with its actor, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from grns.dead_letters import listing
from grns.dead_letters import message as messages
from grns.dead_letters.message import DeadMessage, MessagePatch
from grns.errors import ConflictError, NotFoundError, StaleVersionError
from grns.model import subjects
from grns.model.json import Limits
from grns.model.submission import Edit, edition
from grns.model.task import Task
from grns.nats import JetStream
from grns.nats.messages import Message
from grns.postgres.database import Database, Session, run
from grns.tasks import edit as store
from grns.tasks import read
from grns.tasks.secrets import sealed_payload


class Triage:
    """What an operator can do to single tasks and rejected messages of one workspace."""

    def __init__(
        self,
        *,
        database: Database | Session,
        transport: JetStream,
        workspace: str,
        payload_limits: Limits,
        envelope_limits: Limits,
    ) -> None:
        self._database = database
        self._transport = transport
        self._workspace = workspace
        self._payload_limits = payload_limits
        self._envelope_limits = envelope_limits

    async def edit(
        self,
        task_id: str,
        wanted: Edit,
        *,
        actor: str,
        reason: str | None = None,
        seen_edition: str | None = None,
    ) -> Task:
        """Change a task, and return it as it is then. Of one that runs, only what is said of it can change.

        With `seen_edition` only if the task is still as it was read, else `StaleVersionError`.
        Raises
        `NotFoundError`, `ConflictError`, and `InvalidInputError` where its payload could not be kept.
        """
        task = await self._task(task_id, shows_secrets_as_stored=True)
        if seen_edition not in (None, edition(task)):
            raise StaleVersionError(f"task {task_id} cannot be changed: it was changed since it was read")
        payload = wanted.payload_of(task, self._payload_limits)
        if payload is not None:
            payload = await sealed_payload(self._database, payload, self._workspace, task.task_type)
        async with self._database.transaction() as connection:
            if wanted.changes_task:
                await store.edit_task(
                    connection, task, priority=wanted.priority, delay_seconds=wanted.delay_seconds,
                    run_at=wanted.run_at, payload=payload, route=wanted.route, actor=actor, reason=reason,
                )  # fmt: skip
            if wanted.labels:
                await store.label_task(
                    connection, task.id, wanted.labels, workspace=self._workspace, actor=actor, reason=reason
                )
        await self._transport.nudge(subjects.RELAY_NUDGE)
        return await self._task(task_id)

    async def discard(
        self, task_ids: Sequence[str], *, actor: str, reason: str | None = None
    ) -> dict[str, str]:
        """Set ended tasks aside; returns `discarded`, `discarded before` or the status, by the id of each."""
        ids = [subjects.token(task_id, name="task id") for task_id in task_ids]
        answers = await store.discard_tasks(
            self._database, ids, workspace=self._workspace, actor=actor, reason=reason
        )
        await self._transport.nudge(subjects.RELAY_NUDGE)
        return answers

    async def message(self, dead_letter_id: UUID) -> DeadMessage:
        """Return a message that belongs to no task, whole, whatever became of it; `NotFoundError`."""
        found = await listing.read_message(self._database, dead_letter_id, self._workspace)
        if found is None:
            raise NotFoundError(f"there is no message {dead_letter_id} in workspace {self._workspace}")
        return found

    async def resend(
        self, dead_letter_id: UUID, *, actor: str, reason: str | None = None, mend: MessagePatch | None = None
    ) -> None:
        """Publish a rejected message again, perhaps changed, and close it.

        Raises:
            NotFoundError: no such message in this workspace.
            ConflictError: it is closed, or another process sends or discards it now.
            InvalidInputError: the copy would not be a valid command of this workspace, see `messages.copy`.
            UnavailableError: the broker did not take it.
        """
        async with self._database.transaction() as connection:
            kept = await listing.lock_message(connection, dead_letter_id, self._workspace)
            if kept is None or kept.state != "new":
                raise await self._refusal(dead_letter_id)
            # Sent before it is marked: after a crash between the two it is sent twice, never not at all.
            await self._transport.publish(self._copy(kept, mend))
            await run(
                connection, "close_dead_letters", [dead_letter_id], self._workspace, "redriven", actor,
                reason, mend is not None,
            )  # fmt: skip
        await self._transport.nudge(subjects.RELAY_NUDGE)

    async def discard_messages(
        self, message_ids: Collection[UUID], *, actor: str, reason: str | None = None
    ) -> set[UUID]:
        """Close messages; return those that were open."""
        rows = await self._database.run(
            "close_dead_letters", list(message_ids), self._workspace, "discarded", actor, reason, False
        )
        await self._transport.nudge(subjects.RELAY_NUDGE)
        return {row["id"] for row in rows}

    def _copy(self, kept: DeadMessage, mend: MessagePatch | None) -> Message:
        wanted = messages.copy(
            kept.id, mend, subject=kept.subject, headers=kept.headers,
            body=kept.body, workspace=self._workspace, limits=self._envelope_limits,
        )  # fmt: skip
        return Message(wanted.subject, wanted.body, wanted.id, wanted.headers)

    async def _refusal(self, dead_letter_id: UUID) -> ConflictError:
        found = await self.message(dead_letter_id)
        if found.state == "new":
            return ConflictError(f"message {dead_letter_id} is being changed by another request")
        return ConflictError(f"message {dead_letter_id} was {found.state} before")

    async def _task(self, task_id: str, *, shows_secrets_as_stored: bool = False) -> Task:
        found = await read.tasks(
            self._database, [subjects.token(task_id, name="task id")], self._workspace,
            shows_secrets_as_stored=shows_secrets_as_stored,
        )  # fmt: skip
        if task_id not in found:
            raise NotFoundError(f"there is no task {task_id} in workspace {self._workspace}")
        return found[task_id]
