"""Create workflows, and add tasks to those that are open."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from grns.client.arguments import known_id
from grns.client.workflow import LastTask, Workflow, WorkflowHandle, left_open
from grns.tasks.announce import announce
from grns.tasks.secrets import seal_payloads
from grns.tasks.submit import submit_in

if TYPE_CHECKING:
    from grns.client.arguments import SubmissionReader
    from grns.client.handle import TaskHandle
    from grns.errors import ConflictError
    from grns.model.submission import Failures
    from grns.nats import JetStream
    from grns.postgres.database import Database, Session
    from grns.tasks.submit import Prepared, Submissions, Submitted
    from grns.tasks.workflow_plan import PlannedWorkflow
    from grns.telemetry.spans import Spans


class WorkflowMethods:
    """The part of a client that creates workflows."""

    _database: Database | Session
    _reader: SubmissionReader
    _spans: Spans
    _submissions: Submissions
    _transport: JetStream
    _actor: str | None
    if TYPE_CHECKING:

        def _handles(
            self, answers: Sequence[Submitted | ConflictError], submissions: Sequence[Any]
        ) -> list[TaskHandle[Any]]: ...

    def workflow(self, name: str, *, fail_after: Failures | None = None, is_open: bool = False) -> Workflow:
        """Return an empty workflow: tasks that need each other, which are submitted together.

        Args:
            name: 1 to 255 printable ASCII characters. Several workflows may have the same one.
            fail_after: how many tasks may fail before the others are stopped, or a task is submitted.
                Defaults to any number.
            is_open: whether more tasks may be added after `submit`, until the workflow is sealed: see
                `WorkflowHandle.submit`. Defaults to False.

        Example:
            flow = client.workflow("report")
            pages = [flow.task(fetch_page, Page(url=url)) for url in urls]
            flow.task(write_report, needs=pages)
            run = await flow.submit()
            text = await run.tasks["write_report"].result(timeout=60)
        """
        return Workflow(self, self._reader, name, fail_after, is_open=is_open)  # type: ignore[arg-type]

    def workflow_handle(self, workflow_id: str) -> WorkflowHandle:
        """Return a handle of a workflow that exists; its `tasks` are empty."""
        return WorkflowHandle(known_id(workflow_id), {}, self)  # type: ignore[arg-type]

    @asynccontextmanager
    async def batch(
        self,
        name: str,
        *,
        on_success: LastTask = None,
        on_failure: LastTask = None,
        on_end: LastTask = None,
        fail_after: Failures | None = None,
    ) -> AsyncIterator[WorkflowHandle]:
        """Create an open workflow, and seal it at the end of the block.

        Tasks that you add run at once. If the block raises, the workflow stays open: add the rest to it, or
        seal or cancel it.

        Args:
            name, fail_after: as of `workflow`.
            on_success: handler that runs once the batch is sealed and all of its tasks have succeeded; or
                the arguments of `submit`, as a mapping.
            on_failure: the same, if one of them has not succeeded.
            on_end: the same, in any case.

        Raises:
            InvalidInputError: an argument is invalid; nothing was created.
            UnavailableError: Postgres cannot be reached.

        Example:
            async with client.batch("import", on_end=tell_support) as batch:
                async for rows in read_rows():
                    await batch.submit_many({"task": import_row, "payload": row} for row in rows)
        """
        flow = self.workflow(name, fail_after=fail_after, is_open=True)
        flow.add_last(on_success=on_success, on_failure=on_failure, on_end=on_end)
        batch = await flow.submit()
        with left_open(batch.id):
            yield batch
            await batch.seal()

    async def _seal(self, batch: Sequence[Prepared]) -> None:
        """Seal the secrets of tasks that are created in a transaction of the caller.

        Without a key, only those are looked at whose handlers say that they have secrets.
        """
        is_blind = self._database.vault.keys is None
        await seal_payloads(self._database, [one for one in batch if one.secret or not is_blind])

    async def _submit_workflow(
        self, plan: PlannedWorkflow, tasks: Sequence[Any], connection: Any
    ) -> list[TaskHandle[Any]]:
        with self._spans.submitting_many(len(plan.tasks)):
            if connection is None:
                made = await self._submissions.submit_workflow(plan.tasks, plan.workflow)
                await announce(self._transport, plan.tasks)
            else:
                await self._seal(plan.tasks)
                made = await submit_in(connection, plan.tasks, actor=self._actor, workflow=plan.workflow)
        return self._handles(made, [{"task": task} for task in tasks])
