"""Webhooks as people see them: made, looked at, changed, signed anew, deleted; each with its event.

A secret is returned by what makes it, and by nothing else here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

from grns.errors import ConflictError, InvalidInputError, NotFoundError, StaleVersionError
from grns.model.url_policy import UrlPolicy
from grns.postgres.database import Database, Session
from grns.postgres.paging import Page
from grns.webhooks import model as webhook
from grns.webhooks.model import Secret

_MOST = 100


class WebhookUpdate(TypedDict, total=False):
    """What somebody changes of a webhook; what is not named stays as it is."""

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
) -> tuple[Secret, dict[str, Any]]:
    """Have events from now on sent to a URL; returns the secret, shown now and never again, and the row.

    Raises `InvalidInputError` (`bad_url`, `forbidden_address`, `bad_kind`, `bad_webhook`), and
    `ConflictError` where there are a hundred already.
    """
    wanted = webhook.check_kinds(kinds)
    webhook.check_description(description)
    place = guard.destination(url)
    secret = webhook.make_secret()
    made_id = webhook.make_id(time.time_ns() // 1_000_000)
    rows = await database.run(
        "create_webhook", made_id, workspace, place.url, wanted, webhook.pattern(wanted), description,
        secret.value, actor, _MOST,
    )  # fmt: skip
    if not rows:
        raise ConflictError(f"workspace {workspace} has {_MOST} webhooks: it may have no more")
    return secret, await read_webhook(database, made_id, workspace=workspace)


async def list_webhooks(
    database: Database | Session, *, workspace: str, limit: int, after: str | None = None
) -> Page:
    """Return a workspace's webhooks, the latest first; the last id is the cursor.

    A row has `id`, `workspace`, `url` (which may hold a secret), `kinds`, `description`, `is_enabled`,
    `disabled_reason` (of those that grns has disabled: `failing`, `gone`, `backlog`), `failing_since`,
    `last_delivered_at` (to a minute), `secret_since`, `old_secret_until` (null where one secret is good),
    `version`, and when and by whom it was made and changed.
    """
    rows = await database.run("read_webhooks", workspace, None, after, limit + 1)
    return Page([dict(row) for row in rows[:limit]], rows[limit - 1]["id"] if rows[limit:] else None)


async def read_webhook(database: Database | Session, webhook_id: str, *, workspace: str) -> dict[str, Any]:
    """Return one webhook: a row of `list_webhooks`; `NotFoundError` where there is none."""
    rows = await database.run("read_webhooks", workspace, webhook_id, None, 1)
    if not rows:
        raise _missing(webhook_id, workspace)
    return dict(rows[0])


async def change_webhook(
    database: Database | Session,
    webhook_id: str,
    *,
    workspace: str,
    actor: str,
    guard: UrlPolicy,
    version: int | None = None,
    **change: Unpack[WebhookUpdate],
) -> dict[str, Any]:
    """Change a webhook, and return it as it is then. What happened while it was disabled is not sent.

    `version` is the one that was looked at: `StaleVersionError` where somebody has changed it since. Raises
    `InvalidInputError` and `NotFoundError`.
    """
    if not change:
        raise InvalidInputError(
            "bad_webhook", "nothing is said: name its url, kinds, description or is_enabled"
        )
    kinds = webhook.check_kinds(change["kinds"]) if "kinds" in change else None
    webhook.check_description(change.get("description"))
    url = guard.destination(change["url"]).url if "url" in change else None
    rows = await database.run(
        "change_webhook", workspace, webhook_id, version, list(change), url, kinds,
        None if kinds is None else webhook.pattern(kinds), change.get("description"),
        change.get("is_enabled"), actor,
    )  # fmt: skip
    found = await read_webhook(database, webhook_id, workspace=workspace)
    if not rows:
        raise StaleVersionError(f"webhook {webhook_id} is at version {found['version']}, not at {version}")
    return found


async def delete_webhook(
    database: Database | Session, webhook_id: str, *, workspace: str, actor: str
) -> None:
    """Send nothing there any more; `NotFoundError` where there is none."""
    if not await database.run("delete_webhook", workspace, webhook_id, actor):
        raise _missing(webhook_id, workspace)


async def rotate_secret(
    database: Database | Session,
    webhook_id: str,
    *,
    workspace: str,
    overlap_seconds: float = webhook.OVERLAP_SECONDS,
    actor: str,
) -> tuple[Secret, dict[str, Any]]:
    """Sign with a new secret, and for a while with the one before, too; returns it, and the webhook's row.

    Raises `InvalidInputError` and `NotFoundError`, and `ConflictError` where somebody else does the same.
    """
    webhook.check_overlap(overlap_seconds)
    secret = webhook.make_secret()
    rows = await database.run("rotate_secret", workspace, webhook_id, secret.value, overlap_seconds, actor)
    row = await read_webhook(database, webhook_id, workspace=workspace)
    if not rows:
        raise ConflictError(f"somebody else has just given webhook {webhook_id} a new secret")
    return secret, row


async def ping_webhook(database: Database | Session, webhook_id: str, *, workspace: str, actor: str) -> int:
    """Have an event of its own sent to a webhook; returns the delivery's number.

    Raises `NotFoundError`, and `ConflictError` where it is disabled.
    """
    rows = await database.run("ping_webhook", workspace, webhook_id, actor)
    if not rows:
        raise _missing(webhook_id, workspace)
    seq: int | None = rows[0]["seq"]
    if seq is None:
        raise _disabled(webhook_id)
    return seq


def _missing(webhook_id: str, workspace: str) -> NotFoundError:
    return NotFoundError(f"there is no webhook {ascii(webhook_id)[1:-1][:100]} in workspace {workspace}")


def _disabled(webhook_id: str) -> ConflictError:
    return ConflictError(f"webhook {webhook_id} is disabled: enable it first")
