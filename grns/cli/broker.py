"""`grns broker …`: the streams and durables of grns, made and looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from grns.cli import failure
from grns.cli.group import Group
from grns.cli.output import Column, Output, heading, output_option, table
from grns.text import sized

if TYPE_CHECKING:
    from grns.nats.interface import Transport
    from grns.nats.report import StreamReport


@click.group(cls=Group)
def broker() -> None:
    """Create and show the streams of NATS."""


@broker.command()
def apply() -> None:
    """Create missing streams and fix drift. With GRNS_NATS_MANAGE=verify, only check."""
    found = asyncio.run(_apply())
    for difference in found:
        failure.note(f"mended: {difference}")
    failure.note("the streams are as grns wants them" + ("" if found else " already"))


async def _apply() -> list[str]:
    from grns.cli.session import listening

    async with listening() as (_app, transport):
        found = [difference for stream in await _report(transport) for difference in stream.drift]
        await transport.provision()
        return found


@broker.command()
@output_option
def info(out: Output) -> None:
    """Show streams and durable consumers, with drift (exit code 1)."""
    streams = asyncio.run(_info())
    if out.is_table:
        _draw(streams)
    else:
        out.rows([asdict(stream) for stream in streams], [])
    drift = [
        difference
        for stream in streams
        for difference in (*stream.drift, *(found for durable in stream.durables for found in durable.drift))
    ]
    if drift:
        for difference in drift:
            failure.note(difference)
        # Durables are mended by the workers that fetch from them.
        hint = "grns broker apply" if any(stream.drift for stream in streams) else None
        failure.say("the broker is not as grns wants it", hint)
        raise click.exceptions.Exit(failure.FAILED)


async def _info() -> list[StreamReport]:
    from grns.cli.session import listening

    async with listening() as (_app, transport):
        return await _report(transport)


async def _report(transport: Transport) -> list[StreamReport]:
    from grns.errors import InvalidInputError
    from grns.nats import JetStream

    if not isinstance(transport, JetStream):
        raise InvalidInputError("bad_transport", "only of JetStream there is a report")
    return await transport.report()


def _draw(streams: Sequence[StreamReport]) -> None:
    table(
        [asdict(stream) for stream in streams],
        [
            Column("STREAM", lambda row: row["name"]),
            Column("MESSAGES", lambda row: row["messages"]),
            Column("SIZE", lambda row: sized(row["size_bytes"])),
            Column("FIRST", lambda row: row["first_seq"]),
            Column("LAST", lambda row: row["last_seq"]),
            Column("DURABLES", lambda row: len(row["durables"])),
        ],
    )
    durables = [_named(stream, durable) for stream in streams for durable in stream.durables]
    if not durables:
        return
    heading("durables")
    table(
        durables,
        [
            Column("STREAM", lambda row: row["stream"], spare=1),
            Column("DURABLE", lambda row: row["name"]),
            Column("SERVES", lambda row: " ".join(row["subjects"]), may_shrink=True),
            Column("PENDING", lambda row: row["pending"]),
            Column("ACK PENDING", lambda row: row["ack_pending"]),
            Column("REDELIVERED", lambda row: row["redelivered"], spare=2),
            Column("FETCHING", lambda row: row["fetching"], spare=3),
        ],
    )


def _named(stream: StreamReport, durable: Any) -> dict[str, Any]:
    return {"stream": stream.name, **asdict(durable)}


@click.command()
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

    \b
    grns nats-config --pool billing --submitter acme > users.conf
    """
    import secrets

    from grns.nats.users import authorization, users
    from grns.settings import load

    found = users(load(), pools=pools, workspaces=workspaces)
    passwords = {user.name: f"p{secrets.token_hex(20)}" for user in found} if is_generated else None
    if out.is_table:
        click.echo(authorization(found, passwords), nl=False)
        return
    rows = [
        asdict(user) | {"inbox_prefix": user.inbox, "password": (passwords or {}).get(user.name)}
        for user in found
    ]
    out.rows(rows, [])
