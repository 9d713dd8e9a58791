"""Limits of a client: how many tasks run at once, and how many begin in a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grns.limits import service
from grns.limits.model import LimitKey, TaskLimit, limit_spec
from grns.postgres.database import Database, Session
from grns.postgres.paging import Page


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """Create, read, pause and delete limits: `client.limits`."""

    _database: Database | Session
    _workspace: str
    _actor: str

    async def put(
        self,
        name: str,
        *,
        pool: str,
        tasks: Sequence[str] | None = None,
        key: str | None = None,
        max: int | None = None,
        rate: str | None = None,
        burst: int | None = None,
    ) -> TaskLimit:
        """Create a limit, or replace the one of its name, and set which tasks of a pool fall under it.

        Args:
            name: name of the limit, 1 to 64 characters of `A-Za-z0-9_-`. Several pools may share one.
            pool: name of the pool whose tasks fall under it.
            tasks: their task types. Defaults to all of the pool.
            key, max, rate, burst: see `Pool.limit`.

        Raises:
            InvalidInputError: an argument is invalid (`bad_limit`).

        Example:
            await client.limits.put("openai", pool="agents", rate="500/1m", burst=50)
        """
        spec = limit_spec(
            name=name, agent_type=pool, task_types=None if tasks is None else list(tasks), key=key,
            max_tasks=max, rate=rate, burst=burst,
        )  # fmt: skip
        return await service.put(self._database, spec, workspace=self._workspace, actor=self._actor)

    async def get(self, name: str) -> TaskLimit:
        """Return a limit.

        Raises:
            NotFoundError: the workspace has no limit of this name.
        """
        return await service.read(self._database, name, workspace=self._workspace)

    async def list(self, *, limit: int = 50, after: str | None = None) -> Page[TaskLimit]:
        """Return limits by name, page by page: see `Client.list`."""
        return await service.list_limits(self._database, workspace=self._workspace, limit=limit, after=after)

    async def keys(self, name: str, *, limit: int = 50) -> Sequence[LimitKey]:
        """Return the keys of a limit that have tasks, those with the most waiting first.

        It reads all tasks that wait, are queued or run under limits.

        Raises:
            NotFoundError: the workspace has no limit of this name.
        """
        await self.get(name)
        return await service.list_keys(self._database, name, workspace=self._workspace, limit=limit)

    async def put_key(self, name: str, key: str, *, max: int | None = None, weight: float = 1.0) -> None:
        """Give one key of a limit numbers of its own, such as a customer who pays for more.

        Args:
            name: name of the limit.
            key: value of the key, at most 128 bytes.
            max: tasks of it that are queued or running. Defaults to the limit's.
            weight: turns that it has where another key has one, 0.01 to 100.

        Raises:
            NotFoundError: the workspace has no limit of this name.
            InvalidInputError: an argument is invalid (`bad_limit`).

        Example:
            await client.limits.put_key("tenant", "acme", max=20, weight=3)
        """
        await service.put_key(
            self._database, name, key, max_tasks=max, weight=weight, workspace=self._workspace,
            actor=self._actor,
        )  # fmt: skip

    async def delete_key(self, name: str, key: str) -> None:
        """Take the numbers of one key back.

        Raises:
            NotFoundError: the workspace has no limit of this name, or its key no numbers of its own.
        """
        await service.delete_key(self._database, name, key, workspace=self._workspace, actor=self._actor)

    async def pause(self, name: str, *, reason: str | None = None) -> TaskLimit:
        """Pause a limit: none of its tasks is queued until it is resumed. Those that are queued run.

        Raises:
            NotFoundError: the workspace has no limit of this name.
        """
        return await service.pause(
            self._database, name, workspace=self._workspace, actor=self._actor, reason=reason
        )

    async def resume(self, name: str) -> TaskLimit:
        """Resume a limit.

        Raises:
            NotFoundError: the workspace has no limit of this name.
        """
        return await service.resume(self._database, name, workspace=self._workspace, actor=self._actor)

    async def delete(self, name: str) -> None:
        """Delete a limit, for all pools. Tasks that wait for room in it alone are queued.

        Raises:
            NotFoundError: the workspace has no limit of this name.
        """
        await service.delete(self._database, name, workspace=self._workspace, actor=self._actor)
