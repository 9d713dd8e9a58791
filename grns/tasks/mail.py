"""Mail between agents: send, poll, acknowledge."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from datetime import timedelta
from json import dumps as encode
from typing import Any
from uuid import UUID, uuid4

from grns.errors import InvalidInputError, NotFoundError, SealedError, UnavailableError
from grns.model import subjects
from grns.model.duration import seconds_named
from grns.model.filter import Pattern
from grns.model.filter import read as read_value
from grns.model.filter_kinds import KINDS
from grns.model.json import Limits, dumps, loads_stored
from grns.model.mail import Mail
from grns.model.secret import Path, check_clear, mask_text, read_paths, replace_at
from grns.model.words import rarest
from grns.nats import JetStream
from grns.postgres.database import Database, Row, Session, build
from grns.postgres.paging import Page, cursor, page_of, parts
from grns.tasks.blobs import Blobs
from grns.telemetry import current

_WEEK = 7 * 86_400.0
_LOOK_SECONDS, _HINTED_LOOK_SECONDS = 1.0, 5.0
_PAYLOAD_BYTES = 4096
MOST_LOOKED_AT = 1_500  # messages that a search looks at for one page
_LARGE_PAYLOAD = Limits(document_bytes=256 * 1024)


class Mailbox:
    """Mail of the agents of one workspace: `client.mail`."""

    def __init__(
        self, database: Database | Session, transport: JetStream, workspace: str, actor: str | None
    ) -> None:
        self._database = database
        self._transport = transport
        self._workspace = workspace
        self._actor = actor

    async def send(
        self,
        type: str,
        payload: Mapping[str, Any] | None = None,
        *,
        to: str | None = None,
        pool: str | None = None,
        sender: str | None = None,
        about: str | None = None,
        reply_to: Mail | UUID | None = None,
        message_id: UUID | None = None,
        expires: float | timedelta = _WEEK,
        secret: Sequence[str] = (),
    ) -> UUID:
        """Send a message to one agent, or to all of a pool or of the workspace.

        Within a handler it is sent by the attempt: one that has lost its task sends nothing.

        Args:
            type: what it is, such as `review_request`.
            payload: a JSON object of at most 256 KiB. Of more than 4,096 bytes it is kept as a blob, and the
                message has the reference: read it with `payload_of`.
            to: name of the agent. It gets the message also if it is away now.
            pool: instead, all registered agents of a pool; without `to`, `pool` and `reply_to`, all of the
                workspace. The sender gets none.
            sender: name of the agent that sends it.
            about: what the conversation is about, such as the id of a task. Defaults to that of `reply_to`.
            reply_to: the message that this one answers, or its id. Without `to` and `pool` it goes to who
                sent that: to the agent, and to a task that waits in `ctx.ask_agent`.
            message_id: id of the message: sent twice is sent once. Defaults to a new one.
            expires: time after which it is not handed out any more, in seconds or as a `timedelta`, at most
                31 days. Defaults to 7 days.
            secret: paths of the payload that are secret, such as `["token", "accounts.*.password"]`: they are
                stored encrypted, and only `poll` of the agent gives them. Such a message is to one agent
                (`to`), is not an answer, and has at most 4,096 bytes. Needs GRNS_KEYS_FILE.

        Returns:
            The id of the message.

        Raises:
            InvalidInputError: `bad_message`: an argument is invalid; `no_keys`: nothing seals its secrets.
            NotFoundError: there is no such agent.
            RateLimitedError: the agent has 10,000 messages that it has not acknowledged.
            LeaseLostError: the attempt that sends it has lost its task.

        Example:
            sent = await client.mail.send("review_request", {"branch": "fix-1"}, to="reviewer", about=task.id)
        """
        claim = current.attempt()
        by = (None, None, None) if claim is None else (claim.id, claim.attempt, claim.lease_id)
        answered = reply_to.id if isinstance(reply_to, Mail) else reply_to
        made = await self.send_by(
            by, type, payload, to=to, pool=pool, sender=sender, about=about, reply_to=answered,
            message_id=message_id, expires=expires, secret=secret,
        )  # fmt: skip
        await self.tell(to)
        return made

    async def tell(self, to: str | None) -> None:
        """Tell those who wait that a message has been committed: to an agent, or to several."""
        await self._transport.nudge(subjects.RELAY_NUDGE)
        await self._transport.nudge(subjects.mail_nudge(self._workspace, to))

    async def send_by(
        self,
        attempt: tuple[str | None, int | None, UUID | None],
        type: str,
        payload: Mapping[str, Any] | None,
        *,
        to: str | None,
        pool: str | None,
        sender: str | None,
        about: str | None,
        reply_to: UUID | None,
        message_id: UUID | None,
        expires: float | timedelta,
        secret: Sequence[str] = (),
    ) -> UUID:
        """Send a message in the name of an attempt: its task, its number and its lease, or of none.

        Call `tell` once it has been committed.
        """
        new, text = _id_of(message_id), dumps(dict(payload or {}), _LARGE_PAYLOAD)
        check_clear(text)
        if secret:
            if to is None or reply_to is not None:
                raise InvalidInputError(
                    "bad_message", "secret: such a message is to one agent, and no answer"
                )
            said = loads_stored(text)
            bound = (str(new), to)
            hidden = self._database.vault.hide(said, _secret_paths(secret, said), self._workspace, mail=bound)
            text = dumps(hidden)
            if len(encode(hidden, ensure_ascii=False).encode()) > _PAYLOAD_BYTES:
                raise InvalidInputError(
                    "too_large", f"a message with secrets has up to {_PAYLOAD_BYTES} bytes, sealed"
                )
        # As Postgres writes it, with spaces.
        elif len(encode(dict(payload or {}), ensure_ascii=False).encode()) > _PAYLOAD_BYTES:
            text = dumps(await self._blobs.put_document(text))
        await self._database.run(
            "send_mail", type, text, to, pool, self._workspace, sender,
            about, reply_to, new, seconds_named("expires", expires, code="bad_message"), self._actor,
            *attempt,
        )  # fmt: skip
        return new

    async def poll(self, agent: str, *, limit: int = 100, wait: float = 0.0) -> Sequence[Mail]:
        """Return the messages of an agent that it has not acknowledged, oldest first.

        A message comes again until it is acknowledged: do what it says, then `ack`. Remember ids if doing it
        twice does harm.

        Args:
            agent: name of the agent.
            limit: 1 to 1,000.
            wait: how long to wait for a message if there is none, in seconds.

        Raises:
            NotFoundError: there is no such agent.
            SealedError: all that there is has secrets, and the key that opens them is not here.
        """
        if not 1 <= limit <= 1000:
            raise InvalidInputError("bad_limit", "limit is 1 to 1,000")
        await self.check(agent)
        return await look_until(
            lambda: self.look(agent, limit), self._transport, self._workspace, agent, wait=wait
        )

    async def ack(self, agent: str, messages: Mail | UUID | Sequence[Mail | UUID]) -> int:
        """Acknowledge messages that an agent has processed; returns how many were open.

        Args:
            agent: name of the agent.
            messages: a message or its id, or several of them.

        Raises:
            NotFoundError: there is no such agent.
        """
        await self.check(agent)
        several = [messages] if isinstance(messages, Mail | UUID) else messages
        ids = [one.id if isinstance(one, Mail) else one for one in several]
        (row,) = await self._database.run("ack_mail", self._workspace, agent, ids)
        acked: int = row["acked"]
        return acked

    async def payload_of(self, message: Mail) -> dict[str, Any]:
        """Return the payload of a message, also one that is kept as a blob.

        Raises:
            NotFoundError: its blob is not there any more.
        """
        payload: dict[str, Any] = await self._blobs.document(message.payload)
        return payload

    @property
    def _blobs(self) -> Blobs:
        return Blobs(self._database, self._workspace)

    async def check(self, agent: str) -> None:
        """Raise NotFoundError if there is no such agent."""
        if not await self._database.run("has_agent", self._workspace, agent):
            raise NotFoundError(f"there is no agent {agent[:64]} in workspace {self._workspace}")

    async def list(
        self,
        *,
        about: str | None = None,
        to: str | None = None,
        is_open: bool = False,
        text: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page[Mail]:
        """Return a page of messages, oldest first, also of those that were acknowledged; hands out none.

        Args:
            about: those of one conversation.
            to: those to one agent.
            is_open: those that are not acknowledged.
            text: those that have all of these words in their type or payload, about two seconds after they
                were sent. The last word may end in `*`; one has to be whole. Of a message to many agents,
                ten are found. A page may be partial: go on with its cursor.
            limit: 1 to 1,000.
            after: `next_cursor` of the page before.

        Raises:
            InvalidInputError: `bad_limit`, `bad_cursor`, or `bad_text`: the text has no whole word.
        """
        if not 1 <= limit <= 1000:
            raise InvalidInputError("bad_limit", "limit is 1 to 1,000")
        last = 0 if after is None else _place(after)
        asked = (self._workspace, about, to, last, limit + 1, is_open)
        if text is None:
            rows = await self._database.run("list_mail", *asked)
            return page_of([_shown(row) for row in rows], limit, _cursor)
        rows = await self._database.run("find_mail", *asked, *_words(text), MOST_LOOKED_AT)
        page = page_of([_shown(row) for row in rows if row["seq"] is not None], limit, _cursor)
        if page.next_cursor is None and rows[0]["looked_at"] == MOST_LOOKED_AT:
            return Page(page.rows, cursor(str(rows[0]["last_seq"])), is_partial=len(page.rows) < limit)
        return page

    async def look(self, agent: str, limit: int) -> Sequence[Mail]:
        """Return what `poll` does, without waiting."""
        opened: list[Mail] = []
        closed: SealedError | None = None
        last, is_full = 0, True
        while is_full and len(opened) < limit:
            most = limit - len(opened)
            rows = await self._database.run("poll_mail", self._workspace, agent, most, last)
            for row in rows:
                try:
                    opened.append(self._opened(_read(row)))
                except SealedError as error:
                    if error.code == "no_key":  # it is left for a process that has the key
                        closed = SealedError(error.code, f"message {row['id']} of {agent}: {error}")
                    else:  # forged, or damaged: it holds up nothing
                        opened.append(_shown(row))
            if is_full := len(rows) == most:
                last = rows[-1]["seq"]
        if closed is not None and not opened:
            raise closed
        return await self._delivered(opened) if opened else []

    async def _delivered(self, found: Sequence[Mail]) -> Sequence[Mail]:
        """Note that messages are handed out; return them without those acknowledged in the meantime."""
        rows = await self._database.run("deliver_mail", [mail.seq for mail in found])
        noted = {row["seq"]: row for row in rows}
        return [
            replace(mail, delivered_at=row["delivered_at"], deliveries=row["deliveries"])
            for mail in found
            if (row := noted.get(mail.seq)) is not None
        ]

    def _opened(self, mail: Mail) -> Mail:
        bound = (str(mail.id), mail.to_agent or "")
        return replace(mail, payload=self._database.vault.open(mail.payload, self._workspace, mail=bound))


async def look_until(
    look: Callable[[], Awaitable[Sequence[Mail]]],
    transport: JetStream,
    workspace: str,
    agent: str,
    *,
    wait: float,
) -> Sequence[Mail]:
    """Look for mail until there is some, or the time is over; hints tell when to look again."""
    found, deadline = await look(), time.monotonic() + wait
    if found or wait <= 0:
        return found
    woken, pause = asyncio.Event(), _HINTED_LOOK_SECONDS
    async with AsyncExitStack() as watching:
        try:
            for name in (agent, None):
                subject = subjects.mail_nudge(workspace, name)
                await watching.enter_async_context(transport.watching(subject, lambda _: woken.set()))
        except UnavailableError:
            pause = _LOOK_SECONDS
        while not (found := await look()) and (left := deadline - time.monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, pause)):
                    await woken.wait()
            woken.clear()
    return found


def _read(row: Row) -> Mail:
    return build(Mail, {**row, "payload": loads_stored(row["payload"])})


def _shown(row: Row) -> Mail:
    return build(Mail, {**row, "payload": loads_stored(mask_text(row["payload"]))})


def _id_of(said: UUID | str | None) -> UUID:
    try:
        return UUID(str(said)) if said else uuid4()
    except ValueError as error:
        raise InvalidInputError("bad_message", "message_id is a UUID") from error


def _secret_paths(said: Sequence[str], payload: dict[str, Any]) -> tuple[Path, ...]:
    """Return paths, each of which leads to something: what a wrong one was meant for would be in clear."""
    if isinstance(said, str) or not all(isinstance(path, str) for path in said):
        raise InvalidInputError("bad_message", f"secret is a list of paths, as ['auth.*'], not {said!r}")
    try:
        paths = read_paths(said)
    except InvalidInputError as error:
        raise InvalidInputError("bad_message", str(error)) from error
    for path in paths:
        met: list[Any] = []
        replace_at(payload, [path], met.append)
        if not met:
            raise InvalidInputError("bad_message", f"secret: the payload has nothing at {'.'.join(path)}")
    return paths


def _cursor(mail: Mail) -> str:
    return cursor(str(mail.seq))


def _words(text: str) -> tuple[str, list[str], str]:
    """Return the word to look for first, all whole words, and the beginning of one more."""
    pattern = read_value(KINDS["text"], text.split("*"))
    whole, beginning = ([], "") if not isinstance(pattern, Pattern) else pattern.words
    if not whole:
        raise InvalidInputError(
            "bad_text",
            f"text is words, of which one has no *, as in `quarterly report`, not {ascii(text)[:100]}",
        )
    return rarest(whole), whole, beginning


def _place(said: str) -> int:
    match parts(said):
        case [number] if number.isdecimal():
            return int(number)
    raise InvalidInputError("bad_cursor", "the cursor is none of this list")
