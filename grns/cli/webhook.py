"""`grns webhook …`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from grns.cli import failure, option
from grns.cli.group import Group
from grns.cli.output import Cell, Column, Output, output_option, text
from grns.cli.session import CliSession, paged, with_session
from grns.model.text import lasted
from grns.postgres.paging import Page
from grns.settings import load
from grns.webhooks import deliveries as store
from grns.webhooks import service
from grns.webhooks.deliveries import WebhookDelivery
from grns.webhooks.model import check_description, check_kinds, check_overlap
from grns.webhooks.service import Webhook, WebhookUpdate
from grns.webhooks.signature import Secret

_LIST, _SHOW = "grns webhook list", "grns webhook show {webhook_id}"
_KINDS = "such as evt.task.dead, evt.task.* (one word for each *), dlq.task.*. Repeatable."

_URL = option.Checked(lambda url: load().webhook_guard.destination(url), name="url", is_kept=True)
_KIND = option.Checked(lambda kind: check_kinds([kind]), name="kind", is_kept=True)
_OVERLAP = option.Duration(code="bad_overlap", check=check_overlap)
_ID = click.argument("webhook_id", metavar="ID", type=option.Token("webhook id"))
_DESCRIPTION = click.option(
    "--description", metavar="TEXT", type=option.Checked(check_description, is_kept=True), help="Description."
)


def _state(webhook: Webhook) -> str:
    if not webhook.is_enabled:
        return "disabled" if webhook.disabled_reason is None else f"disabled ({webhook.disabled_reason})"
    return "enabled" if webhook.failing_since is None else "failing"


_COLUMNS = (
    Column("ID", "id"),
    Column("URL", "url", may_shrink=True),
    Column("KINDS", lambda webhook: " ".join(webhook.kinds), may_shrink=True),
    Column("STATE", _state, is_status=True),
    Column("DELIVERED", "last_delivered_at", is_age=True, spare=1),
    Column("DESCRIPTION", "description", may_shrink=True, spare=2),
    Column("BY", "created_by", may_shrink=True, spare=3),
)
_FIELDS: Sequence[tuple[str, Cell]] = (
    ("id", "id"),
    ("url", "url"),
    ("kinds", lambda webhook: " ".join(webhook.kinds)),
    ("description", "description"),
    ("workspace", "workspace"),
    ("state", _state),
    ("failing since", "failing_since"),
    ("delivered at", "last_delivered_at"),
    ("secret since", "secret_since"),
    ("old secret until", "old_secret_until"),
    ("created by", "created_by"),
    ("created at", "created_at"),
    ("changed by", "changed_by"),
    ("changed at", "changed_at"),
)
_DELIVERIES = (
    Column("NUMBER", "seq"),
    Column("KIND", "kind"),
    Column("STATE", "state", is_status=True),
    Column("TRIED", "attempts"),
    Column("ANSWER", lambda delivery: delivery.error or delivery.status_code),
    Column("TOOK", lambda one: one.duration_ms and lasted(one.duration_ms / 1000), spare=2),
    Column("TASK", "task_id", spare=1),
    Column("CREATED", "created_at", is_age=True, spare=3),
    Column("DUE", "due_at", is_age=True),
)
_RESENT = (Column("NUMBER", "seq"), Column("STATE", "state"))


@click.group(cls=Group)
def webhook() -> None:
    """Create and edit webhooks; list and resend deliveries."""


@webhook.command(
    examples=[
        "grns webhook create https://example.org/hook --kind evt.task.dead",
        "grns webhook create https://example.org/hook --kind 'evt.task.*' --kind 'dlq.*.*'",
    ]
)
@click.argument("url", metavar="URL", type=_URL)
@click.option(
    "--kind", "kinds", metavar="KIND", type=_KIND, multiple=True, required=True,
    help=f"Events to send, {_KINDS}",
)  # fmt: skip
@_DESCRIPTION
@output_option
@with_session("read")
async def create(session: CliSession, /, out: Output, **fields: Any) -> None:
    """Create a webhook for a URL, and print its secret once.

    Requests are signed with it (Standard Webhooks); docs/webhooks.md shows how to verify them.
    """
    secret, created = await service.create_webhook(
        session.database,
        workspace=session.workspace,
        guard=session.app.settings.webhook_guard,
        actor=session.actor,
        **fields,
    )
    _show_secret(out, secret, created)


@webhook.command("list", examples=["grns webhook list", "grns webhook list -o json"])
@paged(_COLUMNS, nothing="no webhooks", cursor=option.NAME_CURSOR)
async def list_webhooks(session: CliSession, **page: Any) -> Page[Webhook]:
    """List webhooks, the latest first."""
    return await service.list_webhooks(session.database, workspace=session.workspace, **page)


@webhook.command(examples=["grns webhook show WEBHOOK_ID", "grns webhook show WEBHOOK_ID -o json"])
@_ID
@output_option
@with_session("read", missing=_LIST)
async def show(session: CliSession, out: Output, webhook_id: str) -> None:
    """Show a webhook, without its secrets."""
    found = await service.read_webhook(session.database, webhook_id, workspace=session.workspace)
    out.details(found, _FIELDS)


@webhook.command(
    examples=["grns webhook edit WEBHOOK_ID --disable", "grns webhook edit WEBHOOK_ID --kind evt.task.failed"]
)
@_ID
@click.option("--url", metavar="URL", type=_URL, help="New URL.")
@click.option(
    "--kind", "kinds", metavar="KIND", type=_KIND, multiple=True, help=f"Events to send instead, {_KINDS}"
)
@_DESCRIPTION
@click.option("--enable/--disable", "is_enabled", default=None, help="Enable or disable the webhook.")
@output_option
def edit(out: Output, webhook_id: str, **given: Any) -> None:
    """Change a webhook. Events while it was disabled are not sent; waiting deliveries are."""
    change: WebhookUpdate = {name: value for name, value in given.items() if value not in (None, ())}  # type: ignore[assignment]
    if not change:
        raise click.UsageError("nothing changes: name --url, --kind, --description, --enable or --disable")
    _edit(out, change, webhook_id=webhook_id)


@with_session("read", missing=_LIST, conflict=_SHOW)
async def _edit(session: CliSession, /, out: Output, change: WebhookUpdate, *, webhook_id: str) -> None:
    changed = await service.change_webhook(
        session.database,
        webhook_id,
        workspace=session.workspace,
        actor=session.actor,
        guard=session.app.settings.webhook_guard,
        **change,
    )
    out.details(changed, _FIELDS)


@webhook.command(examples=["grns webhook delete WEBHOOK_ID", "grns webhook delete WEBHOOK_ID --yes"])
@_ID
@option.sure_options
@with_session("read", missing=_LIST, conflict=_SHOW)
async def delete(session: CliSession, webhook_id: str, is_trial: bool, is_sure: bool) -> None:
    """Delete a webhook. Waiting deliveries are not sent."""
    found = await service.read_webhook(session.database, webhook_id, workspace=session.workspace)
    action = f"delete webhook {webhook_id} ({found.url})"
    option.confirm(action, is_sure=is_sure, is_trial=is_trial)
    await service.delete_webhook(
        session.database, webhook_id, workspace=session.workspace, actor=session.actor
    )
    failure.note(f"webhook {webhook_id} is deleted")


@webhook.command(
    examples=["grns webhook rotate-secret WEBHOOK_ID", "grns webhook rotate-secret WEBHOOK_ID --overlap 0"]
)
@_ID
@click.option(
    "--overlap",
    "overlap_seconds",
    metavar="TIME",
    type=_OVERLAP,
    default="1d",
    show_default=True,
    help="Time for which the old secret stays valid. Use 0 if it leaked.",
)
@output_option
@with_session("read", missing=_LIST, conflict=_SHOW)
async def rotate_secret(session: CliSession, out: Output, webhook_id: str, overlap_seconds: float) -> None:
    """Rotate the signing secret and print the new one once. The old one stays valid for a while."""
    secret, rotated = await service.rotate_secret(
        session.database,
        webhook_id,
        workspace=session.workspace,
        overlap_seconds=overlap_seconds,
        actor=session.actor,
    )
    _show_secret(out, secret, rotated)


@webhook.command(examples=["grns webhook ping WEBHOOK_ID", "grns webhook ping WEBHOOK_ID -o json"])
@_ID
@output_option
@with_session("read", missing=_LIST, conflict=_SHOW)
async def ping(session: CliSession, out: Output, webhook_id: str) -> None:
    """Send a test event to a webhook."""
    workspace = session.workspace
    seq = await service.ping_webhook(session.database, webhook_id, workspace=workspace, actor=session.actor)
    delivery = await store.read_delivery(session.database, webhook_id, seq, workspace=workspace)
    out.record(delivery, lambda: text(str(delivery.seq)))
    if out.is_table:
        failure.note(f"the result: grns webhook deliveries {webhook_id}")


@webhook.command(
    examples=["grns webhook deliveries WEBHOOK_ID", "grns webhook deliveries WEBHOOK_ID --state failed"]
)
@_ID
@option.states_option(store.STATES)
@paged(
    _DELIVERIES,
    nothing="no such deliveries",
    cursor=option.Whole(2, 2**62, code="bad_cursor"),
    missing=_LIST,
)
async def deliveries(
    session: CliSession, webhook_id: str, states: tuple[Any, ...], **page: Any
) -> Page[WebhookDelivery]:
    """List a webhook's deliveries, the latest first."""
    return await store.list_deliveries(
        session.database, webhook_id, workspace=session.workspace, states=states or None, **page
    )


@webhook.command(
    examples=["grns webhook resend WEBHOOK_ID 4711", "grns webhook resend WEBHOOK_ID 4711 4712 -o json"]
)
@_ID
@click.argument(
    "numbers", metavar="NUMBER...", nargs=-1, required=True, type=option.Whole(1, 2**62, code="bad_number")
)
@output_option
@with_session("read", missing=_LIST, conflict=_SHOW)
async def resend(session: CliSession, out: Output, webhook_id: str, numbers: tuple[int, ...]) -> None:
    """Send deliveries again, with the same ids."""
    workspace, actor = session.workspace, session.actor
    rows = [
        await store.resend_delivery(session.database, webhook_id, number, workspace=workspace, actor=actor)
        for number in numbers
    ]
    out.rows(rows, _RESENT)


def _show_secret(out: Output, secret: Secret, webhook: Webhook) -> None:
    out.record({"secret": secret.reveal(), **asdict(webhook)}, lambda: text(secret.reveal()))
    if out.is_table:
        failure.note(f"webhook {webhook.id} sends to {webhook.url}")
    failure.note("store it now: it is not shown again, and only with it can you verify the requests")
