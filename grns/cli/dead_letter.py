"""Dead letters of both kinds: found by id or page by page, redriven, discarded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

import click

from grns.bootstrap import tools
from grns.cli import failure
from grns.cli.output import Column, Output
from grns.cli.session import CliSession
from grns.dead_letters import listing
from grns.dead_letters.listing import MESSAGE, TASK, DeadFilter
from grns.dead_letters.triage import Triage
from grns.errors import ConflictError, GrnsError, InvalidInputError, NotFoundError, UnavailableError
from grns.model.actor import of_process
from grns.model.task import REDRIVABLE
from grns.model.task_edit import edit
from grns.tasks.search import Count

_BATCH = 500
_MISSING = "not found"
_DONE = frozenset({"redriven", "discarded", "would be redriven", "would be discarded"})

Answer = dict[str, str]


class MessageId(NamedTuple):
    """A dead letter: a task with its status, or a message with its state."""

    what: str
    state: str

    @property
    def refusal(self) -> str | None:
        """Why it can be neither redriven nor discarded, None where it can."""
        if self.what == MESSAGE:
            return None if self.state == "new" else f"{self.state} before"
        return None if self.state in REDRIVABLE else self.state


@dataclass(frozen=True)
class MessageIds:
    """The dead letters of one workspace."""

    session: CliSession

    async def count(self) -> Count:
        """Return how many messages there are that nobody has dealt with."""
        counts = await listing.count_dead(
            self.session.database, workspace=self.session.workspace, wanted=DeadFilter(MESSAGE)
        )
        return counts[MESSAGE]

    async def messages(self) -> AsyncIterator[dict[str, MessageId]]:
        """Return them all, some at a time; each page begins behind the last, whatever became of that."""
        after: str | None = None
        while True:
            page = await listing.list_dead(
                self.session.database,
                workspace=self.session.workspace,
                wanted=DeadFilter(MESSAGE),
                limit=_BATCH,
                after=after,
            )
            yield {row["id"]: MessageId(row["what"], row["status"]) for row in page.rows}
            after = page.next_cursor
            if after is None:
                return

    async def find(self, ids: Sequence[str]) -> dict[str, MessageId | None]:
        """Return what the ids name, in their order."""
        return {dead_letter_id: await self._find(dead_letter_id) for dead_letter_id in ids}

    async def message(self, dead_letter_id: str) -> dict[str, Any] | None:
        """Return a message, None where the id is that of none."""
        try:
            return await self._triage.letter(UUID(dead_letter_id))
        except (ValueError, NotFoundError):
            return None

    async def act(
        self,
        found: Mapping[str, MessageId | None],
        verb: str,
        reason: str | None,
        patch: dict[str, Any] | None = None,
    ) -> list[Answer]:
        """Redrive or discard what was found; the answers come in its order.

        A `patch` is merged into the payload of each task before its redrive.
        """
        if verb == "redrive":
            done = await self._redrive(found, reason, patch)
        else:
            done = await self._discard(found, reason)
        return _answers(found, done)

    @property
    def _triage(self) -> Triage:
        return tools.triage(self.session.app, self.session.database, self.session.transport)

    async def _find(self, dead_letter_id: str) -> MessageId | None:
        message = await self.message(dead_letter_id)
        if message is not None:
            return MessageId(MESSAGE, message["state"])
        try:
            task = await self.session.client.get(dead_letter_id)
        except NotFoundError:
            return None
        return MessageId(TASK, task.status.value)

    async def _redrive(
        self, found: Mapping[str, MessageId | None], reason: str | None, patch: dict[str, Any] | None
    ) -> dict[str, str]:
        """Open tasks again, and send messages again."""
        tasks, messages = _able(found, TASK), _able(found, MESSAGE)
        if patch is not None and messages:
            message = f"{messages[0]} is a message, and --patch changes payloads of tasks"
            raise failure.hinted(InvalidInputError("bad_edit", message), "grns dlq resend --help")
        if messages and not self.session.transport.is_connected:
            raise UnavailableError("messages are sent again through the broker, and it does not answer")
        done = {} if patch is None else await self._patch(tasks, patch, reason)
        tasks = [task_id for task_id in tasks if task_id not in done]
        done |= await self.session.client.redrive_many(tasks, reason=reason) if tasks else {}
        for dead_letter_id in messages:
            try:
                await self._triage.resend(UUID(dead_letter_id), actor=of_process("cli"), reason=reason)
            except GrnsError as error:
                done[dead_letter_id] = str(error)
            else:
                done[dead_letter_id] = "redriven"
        return done

    async def _patch(self, tasks: Sequence[str], patch: dict[str, Any], reason: str | None) -> dict[str, str]:
        """Change the payloads of tasks; return why not, by the id of each that stays as it is."""
        wanted, refused = edit(patch=patch), dict[str, str]()
        for task_id in tasks:
            try:
                await self._triage.edit(task_id, wanted, actor=of_process("cli"), reason=reason)
            except (InvalidInputError, ConflictError, NotFoundError) as error:
                refused[task_id] = str(error)
        return refused

    async def _discard(self, found: Mapping[str, MessageId | None], reason: str | None) -> dict[str, str]:
        """Set tasks aside, and close messages."""
        tasks, messages = (
            _able(found, TASK),
            [UUID(dead_letter_id) for dead_letter_id in _able(found, MESSAGE)],
        )
        actor, done = of_process("cli"), dict[str, str]()
        if tasks:
            done |= await self._triage.discard(tasks, actor=actor, reason=reason)
        if messages:
            closed = await self._triage.discard_letters(messages, actor=actor, reason=reason)
            done |= {str(number): "discarded" for number in closed}
        return done


def plan(found: Mapping[str, MessageId | None], verb: str) -> list[Answer]:
    """Return what a verb would do to what was found."""
    able = {name for what in (TASK, MESSAGE) for name in _able(found, what)}
    would = "would be redriven" if verb == "redrive" else "would be discarded"
    return _answers(found, dict.fromkeys(able, would))


def show(out: Output, answers: Sequence[Answer]) -> None:
    """Show what became of each."""
    columns = [
        Column("ID", lambda row: row["id"]),
        Column("WHAT", lambda row: row["what"]),
        Column("ANSWER", lambda row: row["answer"]),
    ]
    out.rows(answers, columns)


def judge(answers: Sequence[Answer]) -> None:
    """End with the code of the worst that became of any."""
    missing = sum(row["answer"] == _MISSING for row in answers)
    others = sum(row["answer"] not in _DONE for row in answers) - missing
    if missing:
        failure.say(f"{missing} of {len(answers)} do not exist", "grns dlq list")
        raise click.exceptions.Exit(failure.NOT_FOUND)
    if others:
        failure.say(f"{others} of {len(answers)} stay as they are: the answer says why")
        raise click.exceptions.Exit(failure.CONFLICT)


def _able(found: Mapping[str, MessageId | None], what: str) -> list[str]:
    return [
        dead_letter_id
        for dead_letter_id, letter in found.items()
        if letter is not None and letter.what == what and letter.refusal is None
    ]


def _answers(found: Mapping[str, MessageId | None], done: Mapping[str, str]) -> list[Answer]:
    """Return an answer for each: what was done, why nothing was, or that it changed meanwhile."""
    return [
        {
            "id": dead_letter_id,
            "what": letter.what if letter else "-",
            "answer": done.get(dead_letter_id) or letter.refusal or "somebody else was faster"
            if letter
            else _MISSING,
        }
        for dead_letter_id, letter in found.items()
    ]
