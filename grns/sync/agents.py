"""Agents by name, of synchronous applications."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grns.model.agent import Agent, AgentHealth, AgentWork
from grns.postgres.paging import Page

if TYPE_CHECKING:
    from grns.sync.client import SyncClient


@dataclass(frozen=True, slots=True)
class SyncAgents:
    """Register, list and end agents: the methods of `grns.Client.agents`, without `await`."""

    _client: SyncClient

    def put(self, name: str, *, pool: str, **profile: Any) -> Agent:
        """Register an agent, or replace what is registered: see `Agents.put`."""
        return self._client.ask(lambda client: client.agents.put(name, pool=pool, **profile))

    def get(self, name: str) -> Agent:
        """Return an agent. Raises NotFoundError."""
        return self._client.ask(lambda client: client.agents.get(name))

    def list(self, **options: Any) -> Page[Agent]:
        """Return a page of agents; options are those of `Agents.list`."""
        return self._client.ask(lambda client: client.agents.list(**options))

    def health(self, name: str) -> AgentHealth:
        """Return how an agent is. Raises NotFoundError."""
        return self._client.ask(lambda client: client.agents.health(name))

    def tasks(self, name: str, **options: Any) -> Sequence[AgentWork]:
        """Return the tasks that an agent runs, and those that wait for it alone: see `Agents.tasks`."""
        return self._client.ask(lambda client: client.agents.tasks(name, **options))

    def terminate(self, name: str, **options: Any) -> Agent:
        """Tell an agent to end: see `Agents.terminate`."""
        return self._client.ask(lambda client: client.agents.terminate(name, **options))

    def resume(self, name: str) -> Agent:
        """Take back the order that an agent was given: see `Agents.resume`."""
        return self._client.ask(lambda client: client.agents.resume(name))

    def delete(self, name: str) -> Agent:
        """Forget an agent that is not there: see `Agents.delete`."""
        return self._client.ask(lambda client: client.agents.delete(name))
