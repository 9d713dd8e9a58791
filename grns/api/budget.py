"""Budgets: set, list and delete them, and allow more."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from pydantic import BaseModel
from starlette.responses import Response

from grns.api.access import Admin, Reader
from grns.api.answer import Answer
from grns.api.request import strict_body
from grns.api.route import router
from grns.model.budget import Allowance, Budget, BudgetSpec

routes = router("budgets")

BudgetName = Annotated[str, Path(pattern="^[A-Za-z0-9_-]{1,64}$", description="The budget's name.")]


class BudgetList(BaseModel):
    """All budgets of a workspace, by name."""

    items: list[Budget]


@routes.get("/budgets", response_model=BudgetList)
async def list_budgets(request_context: Reader) -> Response:
    """List budgets, with what was used of each in its present period."""
    async with request_context.reading() as database:
        return Answer({"items": await request_context.client(database).budgets.list()})


@routes.get("/budgets/{name}", response_model=Budget)
async def read_budget(request_context: Reader, name: BudgetName) -> Response:
    """Return a budget, and what was used of it in its present period."""
    async with request_context.reading() as database:
        return Answer(await request_context.client(database).budgets.get(name))


@routes.put("/budgets/{name}", response_model=Budget)
async def put_budget(
    request_context: Admin,
    body: Annotated[BudgetSpec, strict_body(BudgetSpec, code="bad_budget")],
    name: BudgetName,
) -> Response:
    """Create a budget, or replace the one of its name: what may be used in a day or a month."""
    async with request_context.writing() as database:
        budgets = request_context.client(database).budgets
        fields = body.model_dump()
        return Answer(await budgets.put(name, pool=fields.pop("agent_type"), **fields))


@routes.post("/budgets/{name}/allow", response_model=Budget)
async def allow_budget(
    request_context: Admin,
    body: Annotated[Allowance, strict_body(Allowance, code="bad_budget")],
    name: BudgetName,
) -> Response:
    """Allow more of a budget until its period ends. Pools that it has paused resume, if that is enough."""
    async with request_context.writing() as database:
        return Answer(await request_context.client(database).budgets.allow(name, **body.model_dump()))


@routes.delete("/budgets/{name}", response_model=Budget)
async def delete_budget(request_context: Admin, name: BudgetName) -> Response:
    """Delete a budget, and return it. Pools that it has paused are resumed."""
    async with request_context.writing() as database:
        budgets = request_context.client(database).budgets
        found = await budgets.get(name)
        await budgets.delete(name)
        return Answer(found)
