"""Dead letters of both kinds: found by id or page by page, redriven, discarded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID, uuid5

import click

from grns.cli import failure
from grns.cli.output import Column, Output
from grns.cli.session import Session
from grns.errors import GrnsError, NotFound, Unavailable
from grns.store import listing
from grns.store.database import run
from grns.store.listing import MESSAGE, TASK, DeadFilter
from grns.store.task_page import Count
from grns.task import REDRIVABLE
from grns.transport.base import Message

_BATCH = 500
_STAYS = "a task stays until its retention ends"
_MISSING = "not found"
_DONE = frozenset({"redriven", "discarded", "would be redriven", "would be discarded"})

Answer = dict[str, str]


class Letter(NamedTuple):
    """A dead letter: a task with its status, or a message with its state."""

    what: str
    state: str

    def refusal(self, verb: str) -> str | None:
        """Return why it cannot be redriven or discarded, None where it can."""
        if self.what == MESSAGE:
            return None if self.state == "new" else f"{self.state} before"
        if verb == "discard":
            return _STAYS
        return None if self.state in REDRIVABLE else self.state


@dataclass(frozen=True)
class Letters:
    """The dead letters of one workspace."""

    session: Session

    async def count(self, wanted: DeadFilter) -> dict[str, Count]:
        """Return how many there are, by kind."""
        return await listing.count_dead(
            self.session.database, workspace=self.session.workspace, wanted=wanted
        )

    async def pages(self, wanted: DeadFilter) -> AsyncIterator[dict[str, Letter]]:
        """Return them all, some at a time; each page begins behind the last, whatever became of that."""
        after: str | None = None
        while True:
            page = await listing.list_dead(
                self.session.database,
                workspace=self.session.workspace,
                wanted=wanted,
                limit=_BATCH,
                after=after,
            )
            yield {row["id"]: Letter(row["what"], row["status"]) for row in page.rows}
            after = page.next_cursor
            if after is None:
                return

    async def find(self, ids: Sequence[str]) -> dict[str, Letter | None]:
        """Return what the ids name, in their order."""
        return {letter_id: await self._find(letter_id) for letter_id in ids}

    async def message(self, letter_id: str) -> dict[str, Any] | None:
        """Return a message, None where the id is that of none."""
        try:
            number = UUID(letter_id)
        except ValueError:
            return None
        return await listing.read_message(self.session.database, number, self.session.workspace)

    async def _find(self, letter_id: str) -> Letter | None:
        message = await self.message(letter_id)
        if message is not None:
            return Letter(MESSAGE, message["state"])
        try:
            task = await self.session.client.get(letter_id)
        except NotFound:
            return None
        return Letter(TASK, task.status.value)

    async def redrive(self, found: Mapping[str, Letter | None]) -> list[Answer]:
        """Open tasks again, and send messages again."""
        tasks, messages = _able(found, TASK, "redrive"), _able(found, MESSAGE, "redrive")
        if messages and not self.session.transport.is_connected:
            raise Unavailable("messages are sent again through the broker, and it does not answer")
        done: dict[str, str] = {}
        for start in range(0, len(tasks), _BATCH):
            done |= await self.session.client.redrive_many(tasks[start : start + _BATCH])
        for letter_id in messages:
            done[letter_id] = await _send_again(self.session, UUID(letter_id))
        return _answers(found, "redrive", done)

    async def discard(self, found: Mapping[str, Letter | None]) -> list[Answer]:
        """Close messages; tasks are not touched."""
        numbers = [UUID(letter_id) for letter_id in _able(found, MESSAGE, "discard")]
        rows = await self.session.database.run("discard_dead_letters", numbers, "discarded")
        return _answers(found, "discard", {str(row["id"]): "discarded" for row in rows})


def plan(found: Mapping[str, Letter | None], verb: str) -> list[Answer]:
    """Return what a verb would do to what was found."""
    able = {name for what in (TASK, MESSAGE) for name in _able(found, what, verb)}
    would = "would be redriven" if verb == "redrive" else "would be discarded"
    return _answers(found, verb, dict.fromkeys(able, would))


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


async def _send_again(session: Session, letter_id: UUID) -> str:
    """Publish a kept message on its subject, and mark it, while nobody else can."""
    try:
        async with session.database.transaction() as connection:
            kept = await listing.lock_message(connection, letter_id, session.workspace)
            if kept is None or kept["state"] != "new":
                return "somebody else was faster"
            # Sent before it is marked: after a crash between the two it is sent twice, never not at all.
            await session.transport.publish(_copy(letter_id, kept))
            await run(connection, "discard_dead_letters", [letter_id], "redriven")
            return "redriven"
    except GrnsError as error:
        return str(error)


def _copy(letter_id: UUID, kept: Mapping[str, Any]) -> Message:
    """Return the message to send, without the headers that the broker itself acts on.

    The envelope inside keeps its own `message_id`: it is the same message. The broker's
    `Nats-Msg-Id` has to be another one, because an id that came within the stream's window
    stores nothing, even where the first copy is long gone: it would be answered as a
    duplicate, and lost. Derived from the dead letter, it stays the same when this is tried twice.
    """
    headers = {name: value for name, value in kept["headers"].items() if not name.lower().startswith("nats-")}
    return Message(kept["subject"], kept["body"], str(uuid5(letter_id, "redrive")), headers)


def _able(found: Mapping[str, Letter | None], what: str, verb: str) -> list[str]:
    return [
        letter_id
        for letter_id, letter in found.items()
        if letter is not None and letter.what == what and letter.refusal(verb) is None
    ]


def _answers(found: Mapping[str, Letter | None], verb: str, done: Mapping[str, str]) -> list[Answer]:
    """Return an answer for each: what was done, why nothing was, or that it changed meanwhile."""
    return [
        {
            "id": letter_id,
            "what": letter.what if letter else "-",
            "answer": done.get(letter_id) or letter.refusal(verb) or "somebody else was faster"
            if letter
            else _MISSING,
        }
        for letter_id, letter in found.items()
    ]
