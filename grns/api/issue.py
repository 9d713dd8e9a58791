"""Issues: failures that a person would call the same, and what people say of them."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Header, Path, Query
from starlette.responses import Response

from grns.api.access import Operator, Reader
from grns.api.answer import Answer, etag
from grns.api.page import Cursor, Limit, PageOf, answer
from grns.api.request import Body, Moment, strict_body
from grns.api.route import router
from grns.api.task import FilterText, SavedName, edition_in, together
from grns.errors import InvalidInputError
from grns.model.filter import parse
from grns.stats.issues import Issue, IssueDetail, IssueUpdate, State, change_issue
from grns.stats.issues import list_issues as store_list
from grns.stats.issues import read_issue as store_read
from grns.tasks import search as task_page
from grns.tasks.search import TaskSummary

routes = router("issues")

Fingerprint = Annotated[str, Path(pattern="^[A-Za-z0-9_-]{1,64}$", description="The issue's fingerprint.")]


class UpdateIssueRequest(Body):
    """Changes to an issue. Fields that are left out stay; null removes a value."""

    state: State | None = None
    note: str | None = None
    owner: str | None = None
    snoozed_until: Moment | None = None


@routes.get("/issues", response_model=PageOf[Issue])
async def list_issues(
    request_context: Reader,
    state: Annotated[list[State] | None, Query(description="Only those that are there.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List issues, the latest seen first."""
    async with request_context.reading() as database:
        return answer(
            await store_list(
                database, workspace=request_context.workspace, state=state, limit=limit, after=cursor
            )
        )


@routes.get("/issues/{fingerprint}", response_model=IssueDetail)
async def read_issue(request_context: Reader, fingerprint: Fingerprint) -> Response:
    """Return an issue: an example, how often and where it was seen."""
    async with request_context.reading() as database:
        return _shown(
            await store_read(database, workspace=request_context.workspace, fingerprint=fingerprint)
        )


@routes.patch("/issues/{fingerprint}", response_model=IssueDetail)
async def edit_issue(
    request_context: Operator,
    body: Annotated[UpdateIssueRequest, strict_body(UpdateIssueRequest, code="bad_issue")],
    fingerprint: Fingerprint,
    if_match: Annotated[str | None, Header(description="Only while its ETag is still this one.")] = None,
) -> Response:
    """Change an issue: acknowledge, ignore or resolve it, set its note or owner."""
    change = cast(IssueUpdate, body.model_dump(exclude_unset=True))
    async with request_context.writing() as database:
        changed = await change_issue(
            database,
            workspace=request_context.workspace,
            fingerprint=fingerprint,
            actor=request_context.actor,
            version=_version(edition_in(if_match)),
            **change,
        )
    return _shown(changed)


@routes.get("/issues/{fingerprint}/tasks", response_model=PageOf[TaskSummary])
async def list_issue_tasks(
    request_context: Reader,
    fingerprint: Fingerprint,
    text: FilterText = "",
    saved: SavedName = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List the dead and failed tasks of an issue, the latest first."""
    async with request_context.reading() as database:
        wanted = await together(request_context, database, text, saved)
        found = parse(f"status:dead,failed fingerprint:{fingerprint} {wanted}")
        return answer(
            await task_page.list_tasks(
                database, workspace=request_context.workspace, wanted=found, limit=limit, after=cursor
            )
        )


def _shown(issue: IssueDetail) -> Answer:
    return Answer(issue, headers=etag(str(issue.version)))


def _version(edition: str | None) -> int | None:
    if edition is None:
        return None
    if not (edition.isascii() and edition.isdecimal() and len(edition) < 10):
        raise InvalidInputError("bad_if_match", 'If-Match is the ETag of an issue, as "3"')
    return int(edition)
