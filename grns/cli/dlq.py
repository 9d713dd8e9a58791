"""`grns dlq …`: dead letters; resend and discard rejected messages, by their ids or all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import UUID

import click

from grns.cli import failure, option
from grns.cli.actions import ANSWERS, MISSING, report_missing
from grns.cli.dlq_list import export, list_dead, show
from grns.cli.group import Group
from grns.cli.output import Output, output_option
from grns.cli.session import CliSession, with_session
from grns.dead_letters import listing
from grns.dead_letters.listing import MESSAGE, DeadFilter
from grns.dead_letters.message import MessagePatch
from grns.errors import GrnsError, InvalidInputError, NotFoundError, UnavailableError
from grns.model.text import counted
from grns.settings import load
from grns.tasks.search import Count

_LIST = "grns dlq list"
_BATCH = 500
_DONE = {"resend": "resent", "discard": "discarded"}

Answer = dict[str, str]


def _message_id(value: str | UUID) -> UUID:
    try:
        return value if isinstance(value, UUID) else UUID(value)
    except ValueError as error:
        raise InvalidInputError(
            "bad_name", f"{ascii(value)[:100]} is not the id of a message, a UUID: for tasks use grns task"
        ) from error


_IDS = click.argument("ids", metavar="[ID]...", nargs=-1, type=option.Checked(_message_id, name="id"))
_ALL = click.option("--all", "is_all", is_flag=True, help="All rejected messages of the workspace.")


@click.group(cls=Group)
def dlq() -> None:
    """List dead letters; resend, discard and export rejected messages."""


for _command in (list_dead, show, export):
    dlq.add_command(_command)


@dlq.command(examples=["grns dlq resend ID --body @corrected.json", "grns dlq resend --all --yes"])
@_IDS
@_ALL
@click.option("--body", metavar="JSON", help="New envelope: JSON, @FILE, or - for standard input.")
@click.option("--subject", metavar="SUBJECT", help="New subject: a shared subject of the same workspace.")
@click.option(
    "--header",
    "headers",
    metavar="NAME:VALUE",
    multiple=True,
    help="Header, repeatable. Replaces all headers of the message.",
)
@option.REASON
@option.sure_options
@output_option
def resend(
    ids: Sequence[UUID],
    body: str | None,
    subject: str | None,
    headers: Sequence[str],
    reason: str | None,
    **given: Any,
) -> None:
    """Send rejected commands again, unchanged or, a single one, edited.

    The copy must be a valid command of the same workspace: cmd.task.submit, cmd.task.cancel,
    cmd.task.signal or cmd.task.execute on its shared subject. grns sets Nats-…, Grns-… and traceparent
    headers itself.
    """
    patch = _patch(body, subject, headers)
    if patch is not None and len(ids) != 1:
        raise click.UsageError("--body, --subject and --header edit one message: name one id")
    if len(ids) == 1 and not given["is_trial"] and not given["is_all"]:
        _resend_one(given["out"], ids[0], reason, patch)
        return
    _act("resend", ids, reason=reason, **given)


@dlq.command(
    examples=["grns dlq discard MESSAGE_ID --reason noise", "grns dlq discard --all --dry-run"],
)
@_IDS
@_ALL
@option.REASON
@option.sure_options
@output_option
def discard(ids: Sequence[UUID], **given: Any) -> None:
    """Discard rejected messages: hide them from lists."""
    _act("discard", ids, **given)


def _patch(body: str | None, subject: str | None, headers: Sequence[str]) -> MessagePatch | None:
    if body is None and subject is None and not headers:
        return None
    limit = load().envelope_limits.document_bytes
    content = None if body is None else option.read_document(body, limit)
    return MessagePatch(subject, dict(_pair(header) for header in headers) or None, content)


def _pair(header: str) -> tuple[str, str]:
    name, colon, value = header.partition(":")
    if not colon:
        raise click.BadParameter(
            f"{ascii(header)[:100]} is not a header: write NAME:VALUE", param_hint="--header"
        )
    return name.strip(), value.strip()


def _act(
    verb: str,
    ids: Sequence[UUID],
    *,
    out: Output,
    is_all: bool,
    reason: str | None,
    is_trial: bool,
    is_sure: bool,
) -> None:
    """Count what is named, ask, and do it page by page."""
    if bool(ids) == is_all:
        raise click.UsageError("name some ids, or use --all")
    count = _count() if is_all else Count(len(ids))
    sentence = f"{verb} {'' if count.is_exact else 'at least '}{counted(count.number, 'message')}"
    if is_trial:
        failure.note(f"would {sentence}")
    elif count.number and (is_all or verb == "discard"):
        option.confirm(sentence, is_sure=is_sure, count=count.number)
    answers: list[Answer] = []
    try:
        _change(verb, ids, reason, answers, is_trial=is_trial)
    finally:  # what was done before an error is shown too
        out.rows(answers, ANSWERS)
    if out.is_table and not answers:
        failure.note(f"nothing to {verb}")
    _conclude(answers, verb)


@with_session("read")
async def _count(session: CliSession) -> Count:
    counts = await listing.count_dead(
        session.database, workspace=session.workspace, wanted=DeadFilter(MESSAGE)
    )
    return counts[MESSAGE]


@with_session("write")
async def _change(
    session: CliSession,
    verb: str,
    ids: Sequence[UUID],
    reason: str | None,
    answers: list[Answer],
    *,
    is_trial: bool,
) -> None:
    """Append the answer for each message."""
    async for page in _pages(session, ids):
        closed: set[UUID] = set()
        if verb == "discard" and not is_trial:
            closed = await session.triage.discard_messages(page, actor=session.actor, reason=reason)
        elif not is_trial:
            _require_broker(session)
        for message_id in page:
            if message_id in closed:
                answer = "discarded"
            elif verb == "resend" and not is_trial:
                answer = await _resend(session, message_id, reason)
            else:
                answer = await _state(session, message_id)
                answer = f"would be {_DONE[verb]}" if answer == "new" else answer
            answers.append({"id": str(message_id), "answer": answer})


@with_session("write", missing=_LIST)
async def _resend_one(
    session: CliSession, out: Output, message_id: UUID, reason: str | None, patch: MessagePatch | None
) -> None:
    _require_broker(session)
    await session.triage.resend(message_id, actor=session.actor, reason=reason, mend=patch)
    record = {"id": str(message_id), "answer": "resent"}
    out.record(record, lambda: failure.note(f"message {message_id} was sent again"))


async def _resend(session: CliSession, message_id: UUID, reason: str | None) -> str:
    try:
        await session.triage.resend(message_id, actor=session.actor, reason=reason)
    except NotFoundError:
        return MISSING
    except GrnsError as error:
        return str(error)
    return "resent"


def _require_broker(session: CliSession) -> None:
    if not session.transport.is_connected:
        raise UnavailableError("messages are sent through NATS, and NATS does not answer")


async def _pages(session: CliSession, ids: Sequence[UUID]) -> AsyncIterator[Sequence[UUID]]:
    """Return the ids, or those of all messages, page by page; each page begins after the last one."""
    if ids:
        yield ids
        return
    after: str | None = None
    while True:
        page = await listing.list_dead(
            session.database,
            workspace=session.workspace,
            wanted=DeadFilter(MESSAGE),
            limit=_BATCH,
            after=after,
        )
        yield [UUID(row.id) for row in page.rows]
        after = page.next_cursor
        if after is None:
            return


async def _state(session: CliSession, message_id: UUID) -> str:
    try:
        state = (await session.triage.message(message_id)).state
    except NotFoundError:
        return MISSING
    return state if state == "new" else f"{state} before"


def _conclude(answers: Sequence[Answer], verb: str) -> None:
    """Exit with the code of the worst answer."""
    done = (_DONE[verb], f"would be {_DONE[verb]}")
    report_missing(answers, _LIST)
    if others := sum(row["answer"] not in done for row in answers):
        failure.print_error(f"{others} of {len(answers)} are unchanged: the answer says why")
        raise click.exceptions.Exit(failure.CONFLICT)
