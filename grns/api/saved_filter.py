"""Filters: what one may ask for, and those that were saved under a name."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from grns.api.access import Operator, Reader
from grns.api.answer import Answer
from grns.api.page import Cursor, Limit, PageOf, answer
from grns.api.request import Body, strict_body
from grns.api.route import router
from grns.model.filter import LONGEST, complete, parse
from grns.model.filter_kinds import TERMS, Kind
from grns.tasks import saved_filters as saved_filter
from grns.tasks.saved_filters import SavedFilter

routes = router("filters")

Name = Annotated[str, Path(pattern="^[A-Za-z0-9_-]{1,64}$", description="The filter's name.")]


class SaveFilterRequest(Body):
    """A filter to save."""

    text: Annotated[str, Field(max_length=LONGEST)]


class NamedFilter(BaseModel):
    """A filter and its name. The text is normalized."""

    name: str
    text: str


class FilterCompletion(BaseModel):
    """A completion of a term, with its meaning."""

    text: str
    says: str


class Terms(BaseModel):
    """All terms, and the completions of an incomplete one."""

    items: list[Kind]
    completions: list[FilterCompletion]


@routes.get("/terms", response_model=Terms)
async def list_terms(
    _visit: Reader,
    beginning: Annotated[str | None, Query(max_length=1000, description="Of a term, as `status:de`.")] = None,
) -> Response:
    """List the terms of filters, for help and completion."""
    found = [] if beginning is None else complete(beginning)
    completions = [{"text": text, "says": says} for text, says in found]
    return Answer({"items": TERMS, "completions": completions})


@routes.get("/filters", response_model=PageOf[SavedFilter])
async def list_filters(request_context: Reader, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """List saved filters by name."""
    async with request_context.reading() as database:
        return answer(
            await saved_filter.list_saved(
                database, workspace=request_context.workspace, limit=limit, after=cursor
            )
        )


@routes.get("/filters/{name}", response_model=NamedFilter)
async def read_filter(request_context: Reader, name: Name) -> Response:
    """Return a saved filter."""
    async with request_context.reading() as database:
        found = await saved_filter.read(database, workspace=request_context.workspace, name=name)
    return Answer({"name": name, "text": str(found)})


@routes.put("/filters/{name}", response_model=NamedFilter)
async def save_filter(
    request_context: Operator,
    body: Annotated[SaveFilterRequest, strict_body(SaveFilterRequest, code="bad_filter")],
    name: Name,
) -> Response:
    """Save a filter under a name, for the parameter `saved`. It replaces a filter of that name."""
    wanted = parse(body.text)
    async with request_context.writing() as database:
        await saved_filter.save(
            database,
            workspace=request_context.workspace,
            name=name,
            wanted=wanted,
            actor=request_context.actor,
        )
    return Answer({"name": name, "text": str(wanted)})


@routes.delete("/filters/{name}", response_model=NamedFilter)
async def delete_filter(request_context: Operator, name: Name) -> Response:
    """Delete a saved filter, and return it."""
    async with request_context.writing() as database:
        found = await saved_filter.read(database, workspace=request_context.workspace, name=name)
        await saved_filter.delete(
            database, workspace=request_context.workspace, name=name, actor=request_context.actor
        )
    return Answer({"name": name, "text": str(found)})
