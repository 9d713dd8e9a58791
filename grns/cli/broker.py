"""`grns admin broker …` and `grns admin nats-config`."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import asdict

import click

from grns.cli import failure
from grns.cli.group import Command, Group
from grns.cli.output import Column, Output, heading, output_option, table
from grns.cli.session import CliSession, with_session
from grns.errors import InvalidInputError
from grns.model.text import sized
from grns.nats import JetStream
from grns.nats.report import StreamReport
from grns.nats.users import authorization, users
from grns.settings import load

_STREAMS = (
    Column("STREAM", "name"),
    Column("MESSAGES", "messages"),
    Column("SIZE", lambda row: sized(row["size_bytes"])),
    Column("FIRST", "first_seq"),
    Column("LAST", "last_seq"),
    Column("DURABLES", lambda row: len(row["durables"])),
)
_DURABLES = (
    Column("STREAM", "stream", spare=1),
    Column("DURABLE", "name"),
    Column("SUBJECTS", lambda row: " ".join(row["subjects"]), may_shrink=True),
    Column("PENDING", "pending"),
    Column("ACK PENDING", "ack_pending"),
    Column("REDELIVERED", "redelivered", spare=2),
    Column("FETCHING", "fetching", spare=3),
)


@click.group(cls=Group)
def broker() -> None:
    """Create and show the streams of NATS."""


@broker.command(examples=["grns admin broker apply", "GRNS_NATS_MANAGE=verify grns admin broker apply"])
@with_session("broker")
async def apply(session: CliSession) -> None:
    """Create missing streams and fix drift. With GRNS_NATS_MANAGE=verify, only check."""
    differences = [drift for stream in await _report(session.transport) for drift in stream.drift]
    await session.transport.provision()
    for difference in differences:
        failure.note(f"fixed: {difference}")
    failure.note("the streams are as configured" + ("" if differences else " already"))


@broker.command(examples=["grns admin broker info", "grns admin broker info -o json"])
@output_option
@with_session("broker")
async def info(session: CliSession, out: Output) -> None:
    """Show streams and durable consumers, with drift (exit code 1)."""
    streams = await _report(session.transport)
    out.rows([asdict(stream) for stream in streams], _STREAMS)
    durables = [
        {"stream": stream.name, **asdict(durable)} for stream in streams for durable in stream.durables
    ]
    if out.is_table and durables:
        heading("durables")
        table(durables, _DURABLES)
    stream_drift = [drift for stream in streams for drift in stream.drift]
    drift = stream_drift + [
        drift for stream in streams for durable in stream.durables for drift in durable.drift
    ]
    if drift:
        for difference in drift:
            failure.note(difference)
        # Durables are fixed by the workers that fetch from them.
        failure.print_error("streams have drifted", "grns admin broker apply" if stream_drift else None)
        raise click.exceptions.Exit(failure.FAILED)


async def _report(transport: JetStream) -> list[StreamReport]:
    if not isinstance(transport, JetStream):
        raise InvalidInputError("bad_transport", "only JetStream has a report")
    return await transport.report()


@click.command(
    cls=Command,
    examples=[
        "grns admin nats-config --pool billing --submitter acme > users.conf",
        "grns admin nats-config --generate -o json",
    ],
)
@click.option(
    "--pool",
    "pools",
    multiple=True,
    metavar="NAME",
    help="Pool whose workers get a user. Repeatable.",
)
@click.option(
    "--submitter",
    "workspaces",
    multiple=True,
    metavar="WORKSPACE",
    help="Workspace whose clients get users. Repeatable.",
)
@click.option("--generate", "is_generated", is_flag=True, help="Write random passwords instead of variables.")
@output_option
def nats_config(pools: Sequence[str], workspaces: Sequence[str], is_generated: bool, out: Output) -> None:
    """Write an `authorization` block for nats-server, with one user per component.

    nats-server reads the passwords from its environment (GRNS_NATS_PASSWORD_RELAY, …): begin each with a
    letter. Each process gets GRNS_NATS_URL with its user, and GRNS_NATS_INBOX_PREFIX=_INBOX_<user>.
    """
    chosen = users(load(), pools=pools, workspaces=workspaces)
    passwords = {user.name: f"p{secrets.token_hex(20)}" for user in chosen} if is_generated else None
    if out.is_table:
        click.echo(authorization(chosen, passwords), nl=False)
        return
    rows = [
        asdict(user) | {"inbox_prefix": user.inbox, "password": (passwords or {}).get(user.name)}
        for user in chosen
    ]
    out.rows(rows)
