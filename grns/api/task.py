"""Tasks: create, list, show, edit, cancel, redrive, discard; what happened to each."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import Header, Path, Query
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from grns.api.access import Operator, Reader, RequestContext, Revealer
from grns.api.answer import Answer, etag
from grns.api.page import Cursor, Limit, PageOf, answer
from grns.api.request import ReasonBody, around, strict_body
from grns.api.route import router
from grns.errors import InvalidInputError, NotFoundError
from grns.model.field_types import Reason as ReasonText
from grns.model.filter import Filter, parse
from grns.model.submission import Edit, edit, edition
from grns.model.task import Task
from grns.model.timeline import Attempt
from grns.outbox import events as event
from grns.outbox.events import LogEvent
from grns.postgres.database import Database, Session
from grns.postgres.paging import Page
from grns.tasks import read as store
from grns.tasks import saved_filters as saved_filter
from grns.tasks import search as task_page
from grns.tasks.search import TaskSummary
from grns.tasks.secrets import reveal

routes = router("tasks")

TaskId = Annotated[str, Path(pattern="^[A-Za-z0-9_-]{1,64}$", description="The task's id.")]
FilterText = Annotated[str, Query(alias="filter", description="Which ones, as `status:dead type:fetch_*`.")]
SavedName = Annotated[
    str | None, Query(pattern="^[A-Za-z0-9_-]{1,64}$", description="And as a filter says that was saved.")
]
_TRANSITIONS_AT_ONCE = 1000
_EDITION = re.compile(r'"([!#-~]{0,100})"')


class TaskCount(BaseModel):
    """The number of tasks that match a filter; a lower bound if it is not exact."""

    count: int
    is_exact: bool


class TaskEdit(Edit):
    """Changes to a task that is not running, and the reason."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: ReasonText | None = None


class ActionResponse(BaseModel):
    """The outcome of the request, and the task."""

    answer: str
    task: Task


class RevealedPayload(BaseModel):
    """The payload of a task, with its secrets."""

    id: str
    payload: dict[str, Any]


@routes.get("/tasks", response_model=PageOf[TaskSummary])
async def list_tasks(
    request_context: Reader,
    text: FilterText = "",
    saved: SavedName = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List the tasks that match a filter, the latest first. Without a filter, list all."""
    async with request_context.reading() as database:
        wanted = await together(request_context, database, text, saved)
        return answer(
            await task_page.list_tasks(
                database, workspace=request_context.workspace, wanted=wanted, limit=limit, after=cursor
            )
        )


@routes.get("/tasks/count", response_model=TaskCount)
async def count_found(request_context: Reader, text: FilterText = "", saved: SavedName = None) -> Response:
    """Count the tasks that match a filter. The count is a lower bound beyond some thousands."""
    async with request_context.reading() as database:
        wanted = await together(request_context, database, text, saved)
        found = await task_page.count(database, workspace=request_context.workspace, wanted=wanted)
    return Answer({"count": found.number, "is_exact": found.is_exact})


@routes.get("/tasks/{task_id}", response_model=Task)
async def read_task(request_context: Reader, task_id: TaskId) -> Response:
    """Return a task. Its ETag changes with each change."""
    async with request_context.reading() as database:
        return shown(await one(request_context, database, task_id))


@routes.patch("/tasks/{task_id}", response_model=Task)
async def edit_task(
    request_context: Operator,
    body: Annotated[
        TaskEdit, strict_body(TaskEdit, lambda context: around(context.payload_limits), code="bad_edit")
    ],
    task_id: TaskId,
    if_match: Annotated[str | None, Header(description="Only while its ETag is still this one.")] = None,
) -> Response:
    """Change the priority, delay, payload or agent of a task that is not running."""
    wanted = edit(**body.model_dump(exclude={"reason"}, exclude_unset=True))
    async with request_context.writing() as database:
        changed = await request_context.triage(database).edit(
            task_id,
            wanted,
            actor=request_context.actor,
            reason=body.reason,
            seen_edition=edition_in(if_match),
        )
    return shown(changed)


@routes.post("/tasks/{task_id}/reveal", response_model=RevealedPayload)
async def reveal_task(request_context: Revealer, body: ReasonBody, task_id: TaskId) -> Response:
    """Return the payload of a task with its secrets. The log says who has seen it."""
    async with request_context.writing() as database:
        payload = await reveal(
            database, task_id, workspace=request_context.workspace, actor=request_context.actor,
            reason=body.reason,
        )  # fmt: skip
    return Answer({"id": task_id, "payload": payload})


@routes.post("/tasks/{task_id}/cancel", response_model=ActionResponse)
async def cancel_task(request_context: Operator, body: ReasonBody, task_id: TaskId) -> Response:
    """Cancel a task. A running task is asked to stop (`requested`) and can still succeed."""
    async with request_context.writing() as database:
        said = await request_context.client(database).cancel(task_id, reason=body.reason)
        return await _outcome(request_context, database, task_id, said)


@routes.post("/tasks/{task_id}/redrive", response_model=ActionResponse)
async def redrive_task(request_context: Operator, body: ReasonBody, task_id: TaskId) -> Response:
    """Redrive a dead, failed or cancelled task: run it again, with its attempts reset."""
    async with request_context.writing() as database:
        said = await request_context.client(database).redrive(task_id, reason=body.reason)
        return await _outcome(request_context, database, task_id, said)


@routes.post("/tasks/{task_id}/pause", response_model=ActionResponse)
async def pause_task(request_context: Operator, body: ReasonBody, task_id: TaskId) -> Response:
    """Pause a task that does not run: it waits until it is resumed."""
    async with request_context.writing() as database:
        said = await request_context.client(database).pause_task(task_id, reason=body.reason)
        return await _outcome(request_context, database, task_id, said)


@routes.post("/tasks/{task_id}/resume", response_model=ActionResponse)
async def resume_task(request_context: Operator, body: ReasonBody, task_id: TaskId) -> Response:
    """Resume a paused task."""
    async with request_context.writing() as database:
        said = await request_context.client(database).resume_task(task_id, reason=body.reason)
        return await _outcome(request_context, database, task_id, said)


@routes.post("/tasks/{task_id}/discard", response_model=ActionResponse)
async def discard_task(request_context: Operator, body: ReasonBody, task_id: TaskId) -> Response:
    """Discard a dead, failed or cancelled task: hide it from lists."""
    async with request_context.writing() as database:
        answers = await request_context.triage(database).discard(
            [task_id], actor=request_context.actor, reason=body.reason
        )
        if task_id not in answers:
            raise _missing(request_context, task_id)
        return await _outcome(request_context, database, task_id, answers[task_id])


@routes.get("/tasks/{task_id}/events", response_model=PageOf[LogEvent])
async def list_task_events(
    request_context: Reader, task_id: TaskId, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """List a task's events in order."""
    behind = 0 if cursor is None else event.place(cursor)
    async with request_context.reading() as database:
        return answer(await _events(request_context, database, task_id, behind=behind, limit=limit))


@routes.get("/tasks/{task_id}/attempts", response_model=PageOf[Attempt])
async def list_attempts(request_context: Reader, task_id: TaskId, cursor: Cursor = None) -> Response:
    """List the latest attempts in the event log, in order. A cursor leads to earlier ones."""
    before = None if cursor is None else event.place(cursor)
    async with request_context.reading() as database:
        page = await event.read_attempts(
            database, task_id, workspace=request_context.workspace, limit=_TRANSITIONS_AT_ONCE, before=before
        )
        if not page.rows:
            await one(request_context, database, task_id)
    return answer(page)


async def together(
    request_context: RequestContext, database: Database | Session, text: str, saved: str | None
) -> Filter:
    """Return a filter and what was saved under a name as one."""
    wanted = parse(text)
    if saved is None:
        return wanted
    kept = await saved_filter.read(database, workspace=request_context.workspace, name=saved)
    return parse(f"{kept} {wanted}")


async def one(request_context: RequestContext, database: Database | Session, task_id: str) -> Task:
    """Return a task of theirs; `NotFoundError`."""
    found = await store.tasks(database, [task_id], request_context.workspace)
    if task_id not in found:
        raise _missing(request_context, task_id)
    return found[task_id]


def shown(task: Task) -> Answer:
    """Return a task as it is sent, with its edition."""
    return Answer(task, headers=etag(edition(task)))


def edition_in(if_match: str | None) -> str | None:
    """Return the edition that an If-Match names, None where any will do."""
    if if_match is None or if_match.strip() == "*":
        return None
    found = _EDITION.fullmatch(if_match.strip())
    if found is None:
        raise InvalidInputError("bad_if_match", 'If-Match is one ETag, as "3-20260206210000000000"')
    return found[1]


async def _outcome(
    request_context: RequestContext, database: Database | Session, task_id: str, said: str
) -> Answer:
    return Answer({"answer": said, "task": await one(request_context, database, task_id)})


async def _events(
    request_context: RequestContext, database: Database | Session, task_id: str, *, behind: int, limit: int
) -> Page[LogEvent]:
    """Return events of a task of theirs; `NotFoundError` where there is neither an event nor the task."""
    page = await event.list_task_events(
        database, task_id, workspace=request_context.workspace, limit=limit, behind=behind
    )
    if not page.rows:
        await one(request_context, database, task_id)
    return page


def _missing(request_context: RequestContext, task_id: str) -> NotFoundError:
    return NotFoundError(f"there is no task {task_id} in workspace {request_context.workspace}")
