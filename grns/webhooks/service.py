"""Create, read, change and delete webhooks and rotate their secrets; each change writes an event.

A secret is returned only by the function that creates it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypedDict, Unpack

from grns.errors import ConflictError, InvalidInputError, NotFoundError, StaleVersionError
from grns.model.url_policy import UrlPolicy
from grns.postgres.database import Database, Session
from grns.postgres.paging import Page, page_of
from grns.webhooks import model as webhook
from grns.webhooks import signature
from grns.webhooks.signature import Secret

_MAX_WEBHOOKS = 100


@dataclass(frozen=True, slots=True)
class Webhook:
    """A webhook.

    Keys that may not change it see only the host of its URL. If grns disabled it, `disabled_reason` says
    why: `failing` (nothing was delivered for days), `gone` (it answered 410) or `backlog` (too many
    deliveries wait). `last_delivered_at` is exact to a minute; `old_secret_until` is null if only one secret
    is valid.
    """

    id: str
    workspace: str
    url: str
    kinds: list[str]
    description: str | None
    is_enabled: bool
    disabled_reason: Literal["failing", "gone", "backlog"] | None
    failing_since: datetime | None
    last_delivered_at: datetime | None
    version: int
    created_at: datetime
    created_by: str
    changed_at: datetime
    changed_by: str | None
    secret_since: datetime
    old_secret_until: datetime | None


class WebhookUpdate(TypedDict, total=False):
    """Changes to a webhook; fields that are left out stay."""

    url: str
    kinds: Sequence[str]
    description: str | None
    is_enabled: bool


async def create_webhook(
    database: Database | Session,
    *,
    workspace: str,
    url: str,
    kinds: Sequence[str],
    description: str | None = None,
    guard: UrlPolicy,
    actor: str,
) -> tuple[Secret, Webhook]:
    """Create a webhook for events from now on; return it with its secret, which is never shown again.

    Raises `InvalidInputError` (`bad_url`, `forbidden_address`, `bad_kind`, `bad_webhook`), and
    `ConflictError` if the workspace has a hundred.
    """
    unique_kinds = webhook.check_kinds(kinds)
    webhook.check_description(description)
    to = guard.destination(url)
    secret = signature.make_secret()
    webhook_id = webhook.make_id(time.time_ns() // 1_000_000)
    rows = await database.run(
        "create_webhook", webhook_id, workspace, to.url, unique_kinds, webhook.pattern(unique_kinds),
        description, database.vault.hide_key(secret.value, workspace), actor, _MAX_WEBHOOKS,
    )  # fmt: skip
    if not rows:
        raise ConflictError(
            f"workspace {workspace} has {_MAX_WEBHOOKS} webhooks, the maximum: delete one first"
        )
    return secret, await read_webhook(database, webhook_id, workspace=workspace)


async def list_webhooks(
    database: Database | Session, *, workspace: str, limit: int, after: str | None = None
) -> Page[Webhook]:
    """List the webhooks of a workspace, the latest first; the last id is the cursor. URLs are whole."""
    found = await database.fetch(Webhook, "read_webhooks", workspace, None, after, limit + 1)
    return page_of(found, limit, lambda webhook: webhook.id)


async def read_webhook(database: Database | Session, webhook_id: str, *, workspace: str) -> Webhook:
    """Return one webhook; raises `NotFoundError` if it does not exist."""
    found = await database.fetch(Webhook, "read_webhooks", workspace, webhook_id, None, 1)
    if not found:
        raise _missing(webhook_id, workspace)
    return found[0]


async def change_webhook(
    database: Database | Session,
    webhook_id: str,
    *,
    workspace: str,
    actor: str,
    guard: UrlPolicy,
    version: int | None = None,
    **change: Unpack[WebhookUpdate],
) -> Webhook:
    """Change a webhook, and return it. Events while it was disabled are not sent.

    `version` is the version that the caller read: raises `StaleVersionError` if it has changed since, also
    `InvalidInputError` and `NotFoundError`.
    """
    if not change:
        raise InvalidInputError("bad_webhook", "no changes: pass url, kinds, description or is_enabled")
    kinds = webhook.check_kinds(change["kinds"]) if "kinds" in change else None
    webhook.check_description(change.get("description"))
    url = guard.destination(change["url"]).url if "url" in change else None
    rows = await database.run(
        "change_webhook", workspace, webhook_id, version, list(change), url, kinds,
        None if kinds is None else webhook.pattern(kinds), change.get("description"),
        change.get("is_enabled"), actor,
    )  # fmt: skip
    changed = await read_webhook(database, webhook_id, workspace=workspace)
    if not rows:
        raise StaleVersionError(f"webhook {webhook_id} is at version {changed.version}, not at {version}")
    return changed


async def delete_webhook(
    database: Database | Session, webhook_id: str, *, workspace: str, actor: str
) -> None:
    """Delete a webhook; raises `NotFoundError` if it does not exist."""
    if not await database.run("delete_webhook", workspace, webhook_id, actor):
        raise _missing(webhook_id, workspace)


async def rotate_secret(
    database: Database | Session,
    webhook_id: str,
    *,
    workspace: str,
    overlap_seconds: float = webhook.OVERLAP_SECONDS,
    actor: str,
) -> tuple[Secret, Webhook]:
    """Create a new secret; the old one stays valid for `overlap_seconds`. Return the secret and the webhook.

    Raises `InvalidInputError` and `NotFoundError`, and `ConflictError` on a concurrent rotation.
    """
    webhook.check_overlap(overlap_seconds)
    secret = signature.make_secret()
    sealed = database.vault.hide_key(secret.value, workspace)
    rows = await database.run("rotate_secret", workspace, webhook_id, sealed, overlap_seconds, actor)
    rotated = await read_webhook(database, webhook_id, workspace=workspace)
    if not rows:
        raise ConflictError(f"the secret of webhook {webhook_id} was rotated at the same time: try again")
    return secret, rotated


async def ping_webhook(database: Database | Session, webhook_id: str, *, workspace: str, actor: str) -> int:
    """Send a test event to a webhook; return the number of its delivery.

    Raises `NotFoundError`, and `ConflictError` if it is disabled.
    """
    rows = await database.run("ping_webhook", workspace, webhook_id, actor)
    if not rows:
        raise _missing(webhook_id, workspace)
    seq: int | None = rows[0]["seq"]
    if seq is None:
        raise _disabled(webhook_id)
    return seq


def _missing(webhook_id: str, workspace: str) -> NotFoundError:
    return NotFoundError(f"no webhook {ascii(webhook_id)[1:-1][:100]} in workspace {workspace}")


def _disabled(webhook_id: str) -> ConflictError:
    return ConflictError(f"webhook {webhook_id} is disabled: enable it first")
