"""What a failover of Postgres lost, as far as it can be told: what had been published is still on the bus.

The streams of events and dead letters are read around the failover, and each message is looked up in the
log by its number and its id. What was committed and never published has left no trace anywhere.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from grns.errors import NotFoundError, RejectedError
from grns.maintenance.failovers import Failover, unlogged
from grns.model import subjects
from grns.model.envelope import decode
from grns.nats import JetStream
from grns.nats.delivery import parts_of_stored
from grns.nats.messages import StoredMessage, whole_number
from grns.postgres.database import Database

# The clocks of broker and database may differ, and what is published late bears the broker's time.
MARGIN = timedelta(minutes=5)
_STREAMS = (subjects.EVT_STREAM, subjects.DLQ_STREAM)
_PAGE = 500


@dataclass(frozen=True, slots=True)
class LostMessage:
    """An event or a dead letter that was published and is not in the log.

    `failover` is None if that one is not stored yet, `happened_at` the time in the message, `status`
    where its task is now: None where there is none.
    """

    failover: int | None
    happened_at: datetime
    task_id: str | None
    version: int | None
    kind: str
    status: str | None
    message_id: UUID
    stream: str
    stream_seq: int


@dataclass(slots=True)
class Losses:
    """What was found. `reaches_back_to` says by stream how far it could be looked: None where it is empty."""

    lost: list[LostMessage] = field(default_factory=list)
    messages: int = 0
    reaches_back_to: dict[str, datetime | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _FailoverReport:
    """What a stored message says of itself."""

    seq: int
    message_id: UUID
    message: StoredMessage


async def find_losses(database: Database, transport: JetStream, failovers: Sequence[Failover]) -> Losses:
    """Look for what was published around these failovers and is not in the log; needs the broker."""
    losses = Losses()
    known: set[UUID] = set()
    for stream in _STREAMS:
        try:
            losses.reaches_back_to[stream] = (await transport.state(stream)).first_at
        except NotFoundError:
            losses.reaches_back_to[stream] = None
            continue
        for failover in failovers:
            async for page in _pages(transport, stream, failover, known):
                losses.messages += len(page)
                losses.lost += await _missing(database, failover, page)
    losses.lost.sort(key=_place)
    return losses


async def _pages(
    transport: JetStream, stream: str, failover: Failover, known: set[UUID]
) -> AsyncIterator[list[_FailoverReport]]:
    """Read what the relay published around a failover, each message once, however often it is there."""
    since, until = failover.last_seen_at - MARGIN, failover.noticed_at + MARGIN
    page: list[_FailoverReport] = []
    async for message in transport.stored(stream, since=since, until=until):
        for part in parts_of_stored(message):
            told = _told(part)
            if told is None or told.message_id in known:
                continue
            known.add(told.message_id)
            page.append(told)
        if len(page) >= _PAGE:
            yield page
            page = []
    yield page


def _told(message: StoredMessage) -> _FailoverReport | None:
    """Return what only the relay writes; None for what others have published there."""
    seq = whole_number(message.headers.get("Grns-Seq", ""))
    try:
        return (
            None
            if seq is None
            else _FailoverReport(seq, UUID(message.headers.get("Nats-Msg-Id", "")), message)
        )
    except ValueError:
        return None


async def _missing(
    database: Database, failover: Failover, page: Sequence[_FailoverReport]
) -> list[LostMessage]:
    """Return those of a page that the log does not have."""
    tasks = [told.message.headers.get("Grns-Task") for told in page]
    found = await unlogged(database, [told.seq for told in page], [told.message_id for told in page], tasks)
    return [_lost(failover, page[one.place], one.status) for one in found]


def _place(one: LostMessage) -> tuple[bool, int, datetime, str, int]:
    """Return where it stands in the list; what a failover lost that is not stored yet comes last."""
    return one.failover is None, one.failover or 0, one.happened_at, one.task_id or "", one.version or 0


def _lost(failover: Failover, told: _FailoverReport, status: str | None) -> LostMessage:
    message = told.message
    headers = message.headers
    try:
        envelope = decode(message.body)
        kind, happened_at = envelope.kind, envelope.emitted_at
    except RejectedError:
        kind, happened_at = message.subject, message.stored_at
    return LostMessage(
        failover.id, happened_at, headers.get("Grns-Task"), whole_number(headers.get("Grns-Version", "")),
        kind, status, told.message_id, message.stream, message.seq,
    )  # fmt: skip
