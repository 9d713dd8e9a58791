"""Budgets: what tasks may use in a day or a month."""

from __future__ import annotations

from collections.abc import Sequence

from grns.errors import InvalidInputError, NotFoundError
from grns.model import subjects
from grns.model.budget import MOST_COST, MOST_TOKENS, Budget, BudgetAction, Period, allowance, budget_spec
from grns.postgres import audit_log
from grns.postgres.database import Connection, Database, Session, run

MOST_BUDGETS = 100  # of a workspace: the scheduler looks at each of them every two seconds


class Budgets:
    """The budgets of a workspace: `client.budgets`."""

    def __init__(self, database: Database | Session, workspace: str, actor: str | None) -> None:
        self._database = database
        self._workspace = workspace
        self._actor = actor or "client"

    async def put(
        self,
        name: str,
        *,
        pool: str | None = None,
        period: Period = "month",
        max_cost: float | None = None,
        max_tokens: int | None = None,
        action: BudgetAction = "warn",
    ) -> Budget:
        """Create a budget, or replace the one of its name. What was used of it before counts.

        Args:
            name: name of the budget, 1 to 64 characters of `A-Za-z0-9_-`.
            pool: name of the pool whose tasks it is for. Defaults to all tasks of the workspace.
            period: `day` or `month`, in UTC.
            max_cost: US dollars that may be used in each period.
            max_tokens: tokens of input and output that may be used.
            action: what happens once it is used up: `warn` writes the event `evt.budget.exceeded`, as the
                others do; `refuse` refuses submissions with OverBudgetError; `ask` pauses the pools that have
                used of it until more is allowed, or the period ends.

        Raises:
            InvalidInputError: an argument is invalid (`bad_budget`), or the workspace has 100 budgets.

        Example:
            await client.budgets.put("writing", pool="writers", max_cost=200, action="ask")
        """
        spec = budget_spec(
            agent_type=pool, period=period, max_cost=max_cost, max_tokens=max_tokens, action=action
        )
        subjects.token(name, name="name")
        async with self._database.transaction() as connection:
            if not await run(
                connection, "put_budget", self._workspace, name, spec.agent_type or "", spec.period,
                _text(spec.max_cost), spec.max_tokens, spec.action, self._actor, MOST_BUDGETS,
            ):  # fmt: skip
                raise InvalidInputError("bad_budget", f"a workspace has at most {MOST_BUDGETS} budgets")
            await self._note(
                connection, name, "put", agent_type=spec.agent_type, period=spec.period, action=spec.action,
                cost=spec.max_cost, tokens=spec.max_tokens,
            )  # fmt: skip
        return await self.get(name)

    async def get(self, name: str) -> Budget:
        """Return a budget, and what was used of it in the present period.

        Raises:
            NotFoundError: the workspace has no budget of this name.
        """
        rows = await self._database.fetch(Budget, "list_budgets", self._workspace, name)
        if not rows:
            raise self._unknown(name)
        return rows[0]

    async def list(self) -> Sequence[Budget]:
        """Return all budgets of the workspace, by name."""
        return await self._database.fetch(Budget, "list_budgets", self._workspace, None)

    async def allow(self, name: str, *, cost: float | None = None, tokens: int | None = None) -> Budget:
        """Allow more of a budget until its period ends. Pools that it has paused resume, if that is enough.

        Args:
            name: name of the budget.
            cost: US dollars to add.
            tokens: tokens to add.

        Raises:
            NotFoundError: the workspace has no budget of this name.
            InvalidInputError: an argument is invalid (`bad_budget`).

        Example:
            await client.budgets.allow("writing", cost=50)
        """
        more = allowance(cost=cost, tokens=tokens)
        async with self._database.transaction() as connection:
            if not await run(
                connection, "allow_budget", self._workspace, name, _text(more.cost or 0.0), more.tokens or 0,
                self._actor, _text(MOST_COST), MOST_TOKENS,
            ):  # fmt: skip
                await self.get(name)
                raise InvalidInputError(
                    "bad_budget", f"the budget {name} has no such amount: see what it has"
                )
            await self._note(connection, name, "allowed", cost=more.cost, tokens=more.tokens)
        return await self.get(name)

    async def delete(self, name: str) -> None:
        """Delete a budget. Pools that it has paused are resumed.

        Raises:
            NotFoundError: the workspace has no budget of this name.
        """
        async with self._database.transaction() as connection:
            if not await run(connection, "delete_budget", self._workspace, name):
                raise self._unknown(name)
            await self._note(connection, name, "deleted")

    async def _note(self, connection: Connection, name: str, change: str, **fields: object) -> None:
        await audit_log.note(
            connection, workspace=self._workspace, kind="evt.budget.changed", actor=self._actor,
            payload={"name": name, "change": change, **fields},
        )  # fmt: skip

    def _unknown(self, name: str) -> NotFoundError:
        return NotFoundError(f"workspace {self._workspace} has no budget {name[:100]}")


def _text(cost: float | None) -> str | None:
    """Return a cost as Postgres keeps it."""
    return None if cost is None else f"{cost:.8f}"
