"""`grns webhook …`: which URLs are told of which events, and what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from grns.cli import failure, option
from grns.cli.group import Group
from grns.cli.output import Column, Output, fields, output_option, text, when

if TYPE_CHECKING:
    from grns.cli.session import CliSession
    from grns.webhooks.model import Secret
    from grns.webhooks.service import WebhookUpdate

Answer = TypeVar("Answer")
Call = Callable[["CliSession", str], Awaitable[Answer]]

_ID = click.argument("webhook_id", metavar="ID", type=option.Token("webhook id"))
_NUMBER = option.Whole(1, 2**62, code="bad_number")
_KINDS = "as evt.task.dead, evt.task.* (one word for each *), dlq.task.*; once or more."
_STATES = ("pending", "delivered", "failed")
_KEEP = "keep it: it is not shown again, and nothing but this verifies what is sent"


@click.group(cls=Group)
def webhook() -> None:
    """Create and edit webhooks; list and resend deliveries."""


@webhook.command()
@click.argument("url", metavar="URL")
@click.option(
    "--kind", "kinds", metavar="KIND", multiple=True, required=True, help=f"What it is told of, {_KINDS}"
)
@click.option("--description", metavar="TEXT", help="Description.")
@output_option
def create(out: Output, url: str, kinds: tuple[str, ...], description: str | None) -> None:
    """Create a webhook for a URL, and print its secret once.

    Requests are signed with it (Standard Webhooks); docs/webhooks.md shows how to verify them.
    """
    from grns.webhooks.model import check_description, check_kinds

    check_kinds(kinds)
    check_description(description)
    _check(url)

    async def make(session: CliSession, actor: str) -> tuple[Secret, dict[str, Any]]:
        from grns.webhooks.service import create_webhook

        return await create_webhook(
            session.database,
            workspace=session.workspace,
            url=url,
            kinds=kinds,
            description=description,
            guard=session.app.settings.webhook_guard,
            actor=actor,
        )

    secret, row = _do(make)
    _show_secret(out, secret, row)


@webhook.command("list")
@option.page_options(option.Token("cursor", code="bad_cursor"))
@output_option
def list_webhooks(out: Output, limit: int, after: str | None) -> None:
    """List webhooks, the latest first."""

    async def look() -> None:
        from grns.cli.session import reading
        from grns.dead_letters import listing
        from grns.webhooks.service import list_webhooks

        async with reading() as session:
            page = await list_webhooks(
                session.database, workspace=session.workspace, limit=limit, after=after
            )
            now = await listing.now(session.database)
        columns = [
            Column("ID", lambda row: row["id"]),
            Column("URL", lambda row: row["url"], may_shrink=True),
            Column("KINDS", lambda row: " ".join(row["kinds"]), may_shrink=True),
            Column("STATE", _condition, is_status=True),
            Column("DELIVERED", lambda row: when(row["last_delivered_at"], now), spare=1),
            Column("DESCRIPTION", lambda row: row["description"], may_shrink=True, spare=2),
            Column("BY", lambda row: row["created_by"], may_shrink=True, spare=3),
        ]
        out.rows(page.rows, columns, next_cursor=page.next_cursor)
        out.end(page.rows, page.next_cursor, nothing="no webhooks")

    asyncio.run(look())


@webhook.command()
@_ID
@output_option
def show(out: Output, webhook_id: str) -> None:
    """Show a webhook, without its secrets."""

    async def look(session: CliSession, _actor: str) -> dict[str, Any]:
        from grns.webhooks.service import read_webhook

        return await read_webhook(session.database, webhook_id, workspace=session.workspace)

    row = _do(look)
    out.record(row, lambda: _draw(row))


@webhook.command()
@_ID
@click.option("--url", metavar="URL", help="New URL.")
@click.option("--kind", "kinds", metavar="KIND", multiple=True, help=f"What it is told of instead, {_KINDS}")
@click.option("--description", metavar="TEXT", help="Description.")
@click.option("--enable/--disable", "is_enabled", default=None, help="Enable or disable the webhook.")
@output_option
def edit(out: Output, webhook_id: str, **said: Any) -> None:
    """Change a webhook. Events while it was disabled are not sent; waiting deliveries are."""
    from grns.webhooks.model import check_description, check_kinds

    change: WebhookUpdate = {name: value for name, value in said.items() if value not in (None, ())}  # type: ignore[assignment]
    if not change:
        raise click.UsageError("nothing changes: name --url, --kind, --description, --enable or --disable")
    if "kinds" in change:
        check_kinds(change["kinds"])
    check_description(change.get("description"))
    if "url" in change:
        _check(change["url"])

    async def act(session: CliSession, actor: str) -> dict[str, Any]:
        from grns.webhooks.service import change_webhook

        return await change_webhook(
            session.database,
            webhook_id,
            workspace=session.workspace,
            actor=actor,
            guard=session.app.settings.webhook_guard,
            **change,
        )

    row = _do(act)
    out.record(row, lambda: _draw(row))


@webhook.command()
@_ID
@option.sure_options
def delete(webhook_id: str, is_trial: bool, is_sure: bool) -> None:
    """Delete a webhook. Waiting deliveries are not sent."""

    async def look(session: CliSession, _actor: str) -> dict[str, Any]:
        from grns.webhooks.service import read_webhook

        return await read_webhook(session.database, webhook_id, workspace=session.workspace)

    async def act(session: CliSession, actor: str) -> None:
        from grns.webhooks.service import delete_webhook

        await delete_webhook(session.database, webhook_id, workspace=session.workspace, actor=actor)

    what = f"delete webhook {webhook_id} ({_do(look)['url']})"
    if is_trial:
        failure.note(f"would {what}")
        return
    option.confirm(what, is_sure=is_sure)
    _do(act)
    failure.note(f"webhook {webhook_id} is deleted")


@webhook.command()
@_ID
@click.option(
    "--overlap",
    "overlap_seconds",
    metavar="TIME",
    type=option.Duration(code="bad_overlap"),
    default="1d",
    show_default=True,
    help="Time for which the old secret stays valid. Use 0 if it leaked.",
)
@output_option
def rotate(out: Output, webhook_id: str, overlap_seconds: float) -> None:
    """Rotate the signing secret and print the new one once. The old one stays valid for a while."""
    from grns.webhooks.model import check_overlap

    check_overlap(overlap_seconds)

    async def act(session: CliSession, actor: str) -> tuple[Secret, dict[str, Any]]:
        from grns.webhooks.service import rotate_secret

        return await rotate_secret(
            session.database,
            webhook_id,
            workspace=session.workspace,
            overlap_seconds=overlap_seconds,
            actor=actor,
        )

    secret, row = _do(act)
    _show_secret(out, secret, row)


@webhook.command()
@_ID
@output_option
def ping(out: Output, webhook_id: str) -> None:
    """Send a test event to a webhook."""

    async def act(session: CliSession, actor: str) -> dict[str, Any]:
        from grns.webhooks.deliveries import read_delivery
        from grns.webhooks.service import ping_webhook

        workspace = session.workspace
        seq = await ping_webhook(session.database, webhook_id, workspace=workspace, actor=actor)
        return await read_delivery(session.database, webhook_id, seq, workspace=workspace)

    row = _do(act)
    out.record(row, lambda: text(str(row["seq"])))
    if out.is_table:
        failure.note(f"what comes of it: grns webhook deliveries {webhook_id}")


@webhook.command()
@_ID
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES),
    help="Only those in this state. Repeatable.",
)
@option.page_options(option.Whole(2, 2**62, code="bad_cursor"))
@output_option
def deliveries(out: Output, webhook_id: str, limit: int, after: int | None, states: tuple[str, ...]) -> None:
    """List a webhook's deliveries, the latest first."""

    async def look(session: CliSession, _actor: str) -> None:
        from grns.dead_letters import listing
        from grns.text import lasted
        from grns.webhooks.deliveries import STATES, list_deliveries

        wanted = [state for state in STATES if state in states] or None
        page = await list_deliveries(
            session.database, webhook_id, workspace=session.workspace, states=wanted, limit=limit, after=after
        )
        now = await listing.now(session.database)
        columns = [
            Column("NUMBER", lambda row: row["seq"]),
            Column("KIND", lambda row: row["kind"]),
            Column("STATE", lambda row: row["state"], is_status=True),
            Column("TRIED", lambda row: row["attempts"]),
            Column("ANSWER", lambda row: row["error"] or row["status_code"]),
            Column("TOOK", lambda row: row["duration_ms"] and lasted(row["duration_ms"] / 1000), spare=2),
            Column("TASK", lambda row: row["task_id"], spare=1),
            Column("MADE", lambda row: when(row["created_at"], now), spare=3),
            Column("DUE", lambda row: when(row["due_at"], now)),
        ]
        out.rows(page.rows, columns, next_cursor=page.next_cursor)
        out.end(page.rows, page.next_cursor, nothing="no such deliveries", is_partial=page.is_partial)

    _do(look)


@webhook.command()
@_ID
@click.argument("numbers", metavar="NUMBER...", nargs=-1, required=True, type=_NUMBER)
@output_option
def resend(out: Output, webhook_id: str, numbers: tuple[int, ...]) -> None:
    """Send deliveries again, with the same ids."""

    async def act(session: CliSession, actor: str) -> list[dict[str, Any]]:
        from grns.webhooks.deliveries import resend_delivery

        workspace = session.workspace
        return [
            await resend_delivery(session.database, webhook_id, number, workspace=workspace, actor=actor)
            for number in numbers
        ]

    rows = _do(act)
    columns = [Column("NUMBER", lambda row: row["seq"]), Column("STATE", lambda row: row["state"])]
    out.rows(rows, columns)


def _do(call: Call[Answer]) -> Answer:
    """Connect, and do it. No broker is needed: the relay looks often enough for what nobody waits for."""

    async def work() -> Answer:
        from grns.cli.session import reading
        from grns.model.actor import of_process

        async with reading() as session:
            with failure.hinting(missing="grns webhook list", conflict="grns webhook show ID"):
                return await call(session, of_process("cli"))

    return asyncio.run(work())


def _check(url: str) -> None:
    """Refuse a URL that may not be named, before anything is connected to."""
    from grns.settings import load

    load().webhook_guard.destination(url)


def _show_secret(out: Output, secret: Secret, row: dict[str, Any]) -> None:
    out.record({"secret": secret.reveal(), **row}, lambda: text(secret.reveal()))
    if out.is_table:
        failure.note(f"webhook {row['id']} leads to {row['url']}")
    failure.note(_KEEP)


def _condition(row: Any) -> str:
    if not row["is_enabled"]:
        return "disabled" if row["disabled_reason"] is None else f"disabled ({row['disabled_reason']})"
    return "enabled" if row["failing_since"] is None else "failing"


def _draw(row: dict[str, Any]) -> None:
    fields(
        [
            ("id", row["id"]),
            ("url", row["url"]),
            ("kinds", " ".join(row["kinds"])),
            ("description", row["description"]),
            ("workspace", row["workspace"]),
            ("state", _condition(row)),
            ("failing since", row["failing_since"]),
            ("delivered at", row["last_delivered_at"]),
            ("secret since", row["secret_since"]),
            ("old secret until", row["old_secret_until"]),
            ("made by", row["created_by"]),
            ("made at", row["created_at"]),
            ("changed by", row["changed_by"]),
            ("changed at", row["changed_at"]),
        ]
    )
