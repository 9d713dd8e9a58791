"""`grns agent mail …`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import click

from grns.cli import option
from grns.cli.group import Group
from grns.cli.output import Column, Output, output_option, text
from grns.cli.session import CliSession, paged, with_session
from grns.errors import InvalidInputError
from grns.model.mail import Mail
from grns.postgres.paging import Page

_LIST = "grns agent list"
_AGENT = click.argument("agent", metavar="AGENT", type=option.Token("agent"))


def _state(mail: Mail) -> str:
    if mail.acked_at is not None:
        return "acknowledged"
    return "sent" if mail.delivered_at is None else f"handed out {mail.deliveries}×"


_COLUMNS = (
    Column("SEQ", "seq"),
    Column("TYPE", "type", may_shrink=True),
    Column("FROM", lambda one: one.from_agent or one.from_task or "", may_shrink=True),
    Column("TO", lambda one: one.to_agent or one.to_task),
    Column("ABOUT", "correlation_id", may_shrink=True, spare=2),
    Column("SENT", "created_at", is_age=True),
    Column("STATE", _state, spare=3),
    Column("ID", "id", spare=4),
    Column("PAYLOAD", lambda one: json.dumps(one.payload, ensure_ascii=False), may_shrink=True, spare=1),
)


@click.group(cls=Group)
def mail() -> None:
    """Send mail to agents; read and acknowledge theirs."""


@mail.command(
    examples=[
        "grns agent mail send restart --to coder-1",
        """grns agent mail send review_request --to reviewer --about fix-1 --payload '{"branch": "fix-1"}'""",
    ]
)
@click.argument("type_", metavar="TYPE")
@click.option("--to", metavar="AGENT", type=option.Token("to"), help="The agent.")
@click.option("--pool", metavar="POOL", type=option.Token("pool"), help="Instead, all agents of a pool.")
@click.option("--all", "is_to_all", is_flag=True, help="Instead, all agents of the workspace.")
@click.option(
    "--payload", metavar="JSON", default="{}", help="Payload: JSON, @FILE, or - for standard input."
)
@click.option(
    "--secret", metavar="PATH", multiple=True, help="Path of the payload that is secret. Repeatable."
)
@click.option(
    "--from", "sender", metavar="AGENT", type=option.Token("sender"), help="The agent that sends it."
)
@click.option("--about", metavar="ID", help="What its conversation is about, such as the id of a task.")
@click.option("--reply-to", type=click.UUID, metavar="ID", help="Id of the message that it answers.")
@click.option("--id", "message_id", type=click.UUID, metavar="ID", help="Its own id: it is sent once.")
@click.option(
    "--expires", type=option.Duration(code="bad_message"), metavar="DURATION",
    help="Time after which it is not handed out any more. Defaults to 7d.",
)  # fmt: skip
@output_option
def send(out: Output, type_: str, payload: str, is_to_all: bool, **fields: Any) -> None:
    """Send a message of a TYPE to an agent, also to one that is away."""
    named = sum(map(bool, (fields["to"], fields["pool"], is_to_all)))
    if named > 1 or (not named and fields["reply_to"] is None):
        raise InvalidInputError("bad_message", "pass one of --to, --pool and --all, or --reply-to")
    said = {name: value for name, value in fields.items() if value not in (None, ())}
    _send(out, type_, option.read_json(payload), said)


@with_session("write", missing=_LIST)
async def _send(session: CliSession, out: Output, type_: str, payload: Any, fields: dict[str, Any]) -> None:
    if not isinstance(payload, dict):
        raise InvalidInputError("bad_message", "--payload is a JSON object")
    sent = await session.client.mail.send(type_, payload, **fields)
    out.record({"message_id": str(sent)}, lambda: text(str(sent)))


@mail.command(examples=["grns agent mail read coder-1", "grns agent mail read coder-1 --wait 30s -o json"])
@_AGENT
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="How many.")
@click.option(
    "--wait", type=option.Duration(code="bad_timeout"), default=0.0, metavar="DURATION",
    help="How long to wait for a message if there is none.",
)  # fmt: skip
@output_option
@with_session("write")
async def read(session: CliSession, out: Output, agent: str, limit: int, wait: float) -> None:
    """Hand out the messages that an agent has not acknowledged, oldest first. They come again until then."""
    found: Sequence[Mail] = await session.client.mail.poll(agent, limit=limit, wait=wait)
    out.rows(found, _COLUMNS, nothing="no mail", now=await session.now())


@mail.command(
    examples=["grns agent mail ack coder-1 MESSAGE_ID", "grns agent mail ack coder-1 MESSAGE_ID MESSAGE_ID"]
)
@_AGENT
@click.argument("ids", metavar="ID...", nargs=-1, required=True, type=click.UUID)
@output_option
@with_session("write")
async def ack(session: CliSession, out: Output, agent: str, ids: Sequence[UUID]) -> None:
    """Acknowledge messages that an agent has processed."""
    acked = await session.client.mail.ack(agent, ids)
    out.record({"acked": acked}, lambda: text(f"{acked} acknowledged"))


@mail.command(
    "list", examples=["grns agent mail list --to coder-1", "grns agent mail list --about TASK_ID -o json"]
)
@click.option("--to", metavar="AGENT", type=option.Token("to"), help="Only those to this agent.")
@click.option("--about", metavar="ID", help="Only those of this conversation.")
@click.option("--open", "is_open", is_flag=True, help="Only those that are not acknowledged.")
@click.option("--text", metavar="WORDS", help="Only those that have these words; the last may end in *.")
@paged(_COLUMNS, nothing="no such messages")
async def list_(session: CliSession, **fields: Any) -> Page[Mail]:
    """List messages, oldest first, without handing them out."""
    return await session.client.mail.list(**fields)
