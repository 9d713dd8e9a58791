"""`grns dlq resend`: a message that nobody could accept, mended and sent again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from grns.bootstrap import tools
from grns.cli import failure, option
from grns.cli.group import Command

if TYPE_CHECKING:
    from uuid import UUID

    from grns.dead_letters.message import MessagePatch


@click.command(cls=Command)
@click.argument("dead_letter_id", metavar="ID", type=click.UUID)
@click.option("--body", metavar="JSON", help="New envelope: JSON, @FILE, or - for standard input.")
@click.option("--subject", metavar="SUBJECT", help="New subject: a shared subject of the same workspace.")
@click.option(
    "--header",
    "headers",
    metavar="NAME:VALUE",
    multiple=True,
    help="Header, repeatable. Replaces all headers of the message.",
)
@click.option("--reason", help="Reason, kept in the event log.")
def resend(
    dead_letter_id: UUID, body: str | None, subject: str | None, headers: Sequence[str], reason: str | None
) -> None:
    """Send a rejected command again, unchanged or edited.

    The copy has to be a valid command of the same workspace: cmd.task.submit, cmd.task.cancel or
    cmd.task.execute on its shared subject. grns sets Nats-…, Grns-… and traceparent headers itself.
    """
    mend = _mend(body, subject, headers)
    asyncio.run(_resend(dead_letter_id, mend, reason))
    failure.note(f"message {dead_letter_id} was sent again")


def _mend(body: str | None, subject: str | None, headers: Sequence[str]) -> MessagePatch | None:
    from grns.dead_letters.message import MessagePatch
    from grns.settings import load

    if body is None and subject is None and not headers:
        return None
    limit = load().envelope_limits.document_bytes
    content = None if body is None else option.read_document(body, limit)
    pairs = dict(_pair(header) for header in headers)
    return MessagePatch(subject, pairs or None, content)


def _pair(header: str) -> tuple[str, str]:
    name, colon, value = header.partition(":")
    if not colon:
        raise click.BadParameter(
            f"{ascii(header)[:100]} is no header: write NAME:VALUE", param_hint="--header"
        )
    return name.strip(), value.strip()


async def _resend(dead_letter_id: UUID, mend: MessagePatch | None, reason: str | None) -> None:
    from grns.cli.session import writing
    from grns.errors import NotFoundError, UnavailableError
    from grns.model.actor import of_process

    async with writing() as session:
        if not session.transport.is_connected:
            raise UnavailableError("messages are sent again through the broker, and it does not answer")
        triage = tools.triage(session.app, session.database, session.transport)
        try:
            await triage.resend(dead_letter_id, actor=of_process("cli"), reason=reason, mend=mend)
        except NotFoundError as error:
            raise failure.hinted(error, "grns dlq list") from error
