"""Webhooks: which URLs are told of which events, and what came of it.

A URL may hold a secret: its path is shown to those alone who could change it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Annotated, cast

from fastapi import Header, Path, Query
from pydantic import Field
from starlette.responses import Response

from grns.api.access import Admin, Operator, Reader, RequestContext
from grns.api.answer import Answer, etag
from grns.api.page import Cursor, Limit, PageOf, answer, listed, name_in
from grns.api.request import Body, strict_body
from grns.api.route import PREFIX, router
from grns.api.task import edition_in
from grns.errors import InvalidInputError
from grns.model.url_policy import LONGEST, place
from grns.outbox.events import place as number_in
from grns.webhooks import deliveries as delivery
from grns.webhooks import model as webhook
from grns.webhooks import service as store
from grns.webhooks.deliveries import State, WebhookDelivery
from grns.webhooks.service import Webhook, WebhookUpdate

routes = router("webhooks")

WebhookId = Annotated[str, Path(pattern="^[A-Za-z0-9_-]{1,64}$", description="The webhook's id.")]
Number = Annotated[int, Path(ge=1, le=2**62, description="The event's number in the log.")]
Url = Annotated[str, Field(min_length=1, max_length=LONGEST)]
Kinds = Annotated[list[str], Field(min_length=1, max_length=webhook.MOST_KINDS)]
Description = Annotated[str, Field(min_length=1, max_length=webhook.LONGEST_DESCRIPTION)]


@dataclass(frozen=True, slots=True)
class SignedWebhook(Webhook):
    """A webhook with its new secret, which is shown this once."""

    secret: str


class CreateWebhookRequest(Body):
    """A webhook to create: its URL and kinds of events, such as `evt.task.dead` or `dlq.task.*`."""

    url: Url
    kinds: Kinds
    description: Description | None = None


class UpdateWebhookRequest(Body):
    """Changes to a webhook. Fields that are left out stay; null removes the description."""

    url: Url = Field(default_factory=str)
    kinds: Kinds = Field(default_factory=list)
    description: Description | None = None
    is_enabled: Annotated[bool, Field(strict=True)] = Field(default_factory=bool)


class RotateSecretRequest(Body):
    """The time for which the old secret stays valid: a day by default, 0 ends it at once."""

    overlap_seconds: Annotated[
        float, Field(ge=0, le=webhook.LONGEST_OVERLAP_SECONDS, allow_inf_nan=False, strict=True)
    ] = webhook.OVERLAP_SECONDS


@routes.post("/webhooks", response_model=SignedWebhook, status_code=201)
async def create_webhook(
    request_context: Admin,
    body: Annotated[CreateWebhookRequest, strict_body(CreateWebhookRequest, code="bad_webhook")],
) -> Response:
    """Create a webhook. The answer shows its secret once."""
    async with request_context.writing() as database:
        secret, created = await store.create_webhook(
            database,
            workspace=request_context.workspace,
            url=body.url,
            kinds=body.kinds,
            description=body.description,
            guard=request_context.context.webhook_guard,
            actor=request_context.actor,
        )
    location = {"Location": f"{PREFIX}/webhooks/{created.id}"}
    return Answer(SignedWebhook(**asdict(created), secret=secret.reveal()), status_code=201, headers=location)


@routes.get("/webhooks", response_model=PageOf[Webhook])
async def list_webhooks(request_context: Reader, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """List the workspace's webhooks, the latest first."""
    async with request_context.reading() as database:
        page = await store.list_webhooks(
            database, workspace=request_context.workspace, limit=limit, after=name_in(cursor)
        )
    return listed([_shown(request_context, row) for row in page.rows], page.next_cursor)


@routes.get("/webhooks/{webhook_id}", response_model=Webhook)
async def read_webhook(request_context: Reader, webhook_id: WebhookId) -> Response:
    """Return a webhook without its secrets."""
    async with request_context.reading() as database:
        return _answer(
            request_context,
            await store.read_webhook(database, webhook_id, workspace=request_context.workspace),
        )


@routes.patch("/webhooks/{webhook_id}", response_model=Webhook)
async def edit_webhook(
    request_context: Admin,
    body: Annotated[UpdateWebhookRequest, strict_body(UpdateWebhookRequest, code="bad_webhook")],
    webhook_id: WebhookId,
    if_match: Annotated[str | None, Header(description="Only while its ETag is still this one.")] = None,
) -> Response:
    """Change a webhook's URL or kinds, or enable or disable it. Events while it was disabled are not sent."""
    async with request_context.writing() as database:
        changed = await store.change_webhook(
            database,
            webhook_id,
            workspace=request_context.workspace,
            actor=request_context.actor,
            guard=request_context.context.webhook_guard,
            version=_version(edition_in(if_match)),
            **cast(WebhookUpdate, body.model_dump(exclude_unset=True)),
        )
    return _answer(request_context, changed)


@routes.delete("/webhooks/{webhook_id}", response_model=Webhook)
async def delete_webhook(request_context: Admin, webhook_id: WebhookId) -> Response:
    """Delete a webhook, and return it."""
    async with request_context.writing() as database:
        found = await store.read_webhook(database, webhook_id, workspace=request_context.workspace)
        await store.delete_webhook(
            database, webhook_id, workspace=request_context.workspace, actor=request_context.actor
        )
    return Answer(found)


@routes.post("/webhooks/{webhook_id}/rotate", response_model=SignedWebhook)
async def rotate_webhook_secret(
    request_context: Admin,
    body: Annotated[RotateSecretRequest, strict_body(RotateSecretRequest, code="bad_overlap")],
    webhook_id: WebhookId,
) -> Response:
    """Rotate the signing secret. The old one stays valid for a while. The answer shows the new one once."""
    async with request_context.writing() as database:
        secret, rotated = await store.rotate_secret(
            database,
            webhook_id,
            workspace=request_context.workspace,
            overlap_seconds=body.overlap_seconds,
            actor=request_context.actor,
        )
    return Answer(SignedWebhook(**asdict(rotated), secret=secret.reveal()))


@routes.post("/webhooks/{webhook_id}/ping", response_model=WebhookDelivery)
async def ping_webhook(request_context: Operator, webhook_id: WebhookId) -> Response:
    """Send a test event to a webhook."""
    async with request_context.writing() as database:
        seq = await store.ping_webhook(
            database, webhook_id, workspace=request_context.workspace, actor=request_context.actor
        )
        return Answer(
            await delivery.read_delivery(database, webhook_id, seq, workspace=request_context.workspace)
        )


@routes.get("/webhooks/{webhook_id}/deliveries", response_model=PageOf[WebhookDelivery])
async def list_deliveries(
    request_context: Reader,
    webhook_id: WebhookId,
    state: Annotated[list[State] | None, Query(description="Only those that are there.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List a webhook's deliveries, the latest first."""
    async with request_context.reading() as database:
        return answer(
            await delivery.list_deliveries(
                database,
                webhook_id,
                workspace=request_context.workspace,
                states=state,
                limit=limit,
                after=None if cursor is None else number_in(cursor),
            )
        )


@routes.get("/webhooks/{webhook_id}/deliveries/{seq}", response_model=WebhookDelivery)
async def read_delivery(request_context: Reader, webhook_id: WebhookId, seq: Number) -> Response:
    """Return a delivery. The event itself is in the event log."""
    async with request_context.reading() as database:
        return Answer(
            await delivery.read_delivery(database, webhook_id, seq, workspace=request_context.workspace)
        )


@routes.post("/webhooks/{webhook_id}/deliveries/{seq}/resend", response_model=WebhookDelivery)
async def resend_delivery(request_context: Operator, webhook_id: WebhookId, seq: Number) -> Response:
    """Send a delivery again, with the same id."""
    async with request_context.writing() as database:
        return Answer(
            await delivery.resend_delivery(
                database, webhook_id, seq, workspace=request_context.workspace, actor=request_context.actor
            )
        )


def _answer(request_context: RequestContext, found: Webhook) -> Answer:
    return Answer(_shown(request_context, found), headers=etag(str(found.version)))


def _shown(request_context: RequestContext, found: Webhook) -> Webhook:
    if request_context.principal.may("admin", request_context.workspace):
        return found
    return replace(found, url=place(found.url))


def _version(edition: str | None) -> int | None:
    if edition is None:
        return None
    if not (edition.isascii() and edition.isdecimal() and len(edition) < 10):
        raise InvalidInputError("bad_if_match", 'If-Match is the ETag of a webhook, as "3"')
    return int(edition)
