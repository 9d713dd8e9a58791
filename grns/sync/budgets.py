"""Budgets of synchronous applications."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grns.model.budget import Budget

if TYPE_CHECKING:
    from grns.sync.client import SyncClient


@dataclass(frozen=True, slots=True)
class SyncBudgets:
    """What tasks may use: the methods of `grns.Client.budgets`, without `await`."""

    _client: SyncClient

    def put(self, name: str, **options: Any) -> Budget:
        """Create a budget, or replace the one of its name; options are those of `Budgets.put`."""
        return self._client.ask(lambda client: client.budgets.put(name, **options))

    def get(self, name: str) -> Budget:
        """Return a budget. Raises NotFoundError if there is none."""
        return self._client.ask(lambda client: client.budgets.get(name))

    def list(self) -> Sequence[Budget]:
        """Return all budgets of the workspace, by name."""
        return self._client.ask(lambda client: client.budgets.list())

    def allow(self, name: str, *, cost: float | None = None, tokens: int | None = None) -> Budget:
        """Allow more of a budget until its present period ends: see `Budgets.allow`."""
        return self._client.ask(lambda client: client.budgets.allow(name, cost=cost, tokens=tokens))

    def delete(self, name: str) -> None:
        """Delete a budget. Pools that it has paused are resumed."""
        self._client.ask(lambda client: client.budgets.delete(name))
