"""Execute the commands of other systems, end their deliveries, and answer requests.

A command is acknowledged once its effect has committed, and comes again until then; a request comes once,
and the sender gets the outcome, or asks again under the same message id. Nothing is done twice.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress

import orjson

from grns.dead_letters.queue import DeadLetterQueue
from grns.dead_letters.store import RejectedMessage, store_rejected
from grns.errors import (
    BrokerRefusedError,
    ConflictError,
    GrnsError,
    InvalidInputError,
    NotFoundError,
    OutcomeUnknownError,
    OverBudgetError,
    UnavailableError,
)
from grns.gateway import task_command as command
from grns.gateway.command_store import CancelCommand, CommandResult, CommandStore, SubmitCommand
from grns.gateway.task_command import MailOrder, TaskCommand
from grns.model import problem, subjects
from grns.model.events import TaskCancel, TaskSignalRequest, TaskSubmit, Truncated
from grns.model.json import Limits
from grns.model.mail import Sent
from grns.model.task import Task
from grns.nats import JetStream
from grns.nats.delivery import Delivery, Request
from grns.postgres.batch import Batch
from grns.postgres.database import Database
from grns.tasks import read
from grns.tasks.announce import announce
from grns.tasks.mail import Mailbox
from grns.tasks.signals import send_signal
from grns.tasks.submit import prepare
from grns.telemetry import failpoint
from grns.telemetry.signal import Emit
from grns.telemetry.spans import NO_SPANS, Spans
from grns.telemetry.task_signals import CommandHandled, DeliveryDeferred, RejectedMessageStored
from grns.worker.executor import UNKNOWN_TASK_DELAYS

_COMMAND, _REQUEST = "command", "request"
_READ_AT_ONCE = 20  # tasks with all that is in them
_REJECTED_AT_ONCE = 20
_UNKEPT_SECONDS = 5.0
_NO_REPLY = "no inbox to answer to: send it as a command, cmd. instead of req."
_JSON = {"Content-Type": "application/json"}
_PROBLEM = {"Content-Type": "application/problem+json"}


class CommandHandler:
    """Takes one order from its message to the end; any number at a time."""

    def __init__(
        self,
        *,
        database: Database,
        transport: JetStream,
        commands: CommandStore,
        envelope_limits: Limits,
        payload_limits: Limits,
        emit: Emit,
        spans: Spans = NO_SPANS,
    ) -> None:
        self._database = database
        self._transport = transport
        self._commands = commands
        self._envelope_limits = envelope_limits
        self._payload_limits = payload_limits
        self._emit = emit
        self._spans = spans
        self._tasks: Batch[tuple[str, str], Task | None] = Batch(self._read_tasks, limit=_READ_AT_ONCE)
        self._rejected: Batch[RejectedMessage, None] = Batch(self._reject_all, limit=_REJECTED_AT_ONCE)

    async def follow(self, delivery: Delivery) -> float:
        """Carry out a command and end its delivery.

        Returns for how long nothing else is to be taken in its place, in seconds: while Postgres is away,
        that would only be given back as well.
        """
        try:
            wanted = command.read(delivery.body, subject=delivery.subject, limits=self._envelope_limits)
            carried = await self._carry_out(wanted)
        except (InvalidInputError, ConflictError, OverBudgetError) as error:
            code = problem.of(error).code
            if code == "unknown_need":
                return await self._wait_for_task(delivery, error, code)
            return await self._reject(delivery, code, error)
        except NotFoundError as error:
            is_mail = isinstance(wanted.wanted, MailOrder)
            return await self._wait_for_task(delivery, error, "unknown_agent" if is_mail else "unknown_task")
        except UnavailableError as error:
            return await self._put_off(delivery, error)
        failpoint.reach("commands.executed")
        self._note(wanted, _COMMAND, carried)
        with suppress(GrnsError):  # it comes again, and is known
            await delivery.ack()
        return 0.0

    async def answer(self, request: Request) -> None:
        """Carry out a request and send its answer: the task, or what is in its way."""
        if not request.is_awaited:
            await self._keep(request)
            return
        try:
            wanted = command.read(request.body, subject=request.subject, limits=self._envelope_limits)
            carried = await self._carry_out(wanted)
            failpoint.reach("commands.not_answered")
            if isinstance(wanted.wanted, MailOrder):
                with suppress(UnavailableError):  # the sender cannot be reached
                    sent = orjson.dumps(Sent(wanted.message_id))
                    request.answer(sent, _JSON | {"Grns-Answer": carried.answer})
            else:
                self._tell(request, carried, await self._read(wanted, carried))
        except Exception as error:
            self.refuse(request, error)
            if not isinstance(error, GrnsError):
                raise
            return
        self._note(wanted, _REQUEST, carried)

    def refuse(self, request: Request, error: Exception) -> None:
        """Say why a request is not met."""
        said = problem.of(error)
        self._emit(CommandHandled(_kind(request.subject), _REQUEST, said.code, None, None))
        headers = {"Nats-Service-Error-Code": str(said.status), "Nats-Service-Error": said.code}
        with suppress(GrnsError):  # the sender cannot be reached
            request.answer(orjson.dumps(said), _PROBLEM | headers)

    # What is asked for

    async def _carry_out(self, wanted: TaskCommand) -> CommandResult:
        if isinstance(wanted.wanted, TaskCancel):
            return await self._cancel(wanted, wanted.wanted)
        if isinstance(wanted.wanted, TaskSignalRequest):
            return await self._signal(wanted, wanted.wanted)
        if isinstance(wanted.wanted, MailOrder):
            return await self._send(wanted, wanted.wanted)
        return await self._submit(wanted, wanted.wanted)

    async def _submit(self, wanted: TaskCommand, submission: TaskSubmit) -> CommandResult:
        prepared = prepare(submission, self._payload_limits)
        with self._spans.submitting(
            task_id=prepared.id, task_type=submission.task_type, trace_id=prepared.trace_id
        ):
            carried = await self._commands.submit(SubmitCommand(wanted.message_id, prepared))
        if carried.answer == "created":
            await announce(self._transport, [prepared])
        return carried

    async def _cancel(self, wanted: TaskCommand, cancellation: TaskCancel) -> CommandResult:
        carried = await self._commands.cancel(
            CancelCommand(wanted.message_id, wanted.workspace, cancellation.task_id, cancellation.reason)
        )
        if carried.agent_id is not None:
            await self._transport.nudge(subjects.lease_nudge(carried.agent_id))
        if carried.answer == "cancelled":
            await self._transport.nudge(subjects.RELAY_NUDGE)
        return carried

    async def _signal(self, wanted: TaskCommand, signal: TaskSignalRequest) -> CommandResult:
        """Send a signal: the message's id names it, so it is sent once."""
        answer = await send_signal(
            self._database, self._transport, signal.task_id, signal.name, signal.value,
            signal_id=wanted.message_id, workspace=wanted.workspace, actor=self._commands.actor,
        )  # fmt: skip
        return CommandResult(answer, signal.task_id)

    async def _send(self, wanted: TaskCommand, mail: MailOrder) -> CommandResult:
        """Send mail to an agent: the message's id names it, so it is sent once."""
        mailbox = Mailbox(self._database, self._transport, wanted.workspace, self._commands.actor)
        await mailbox.send(mail.type, mail.payload, to=mail.agent, message_id=wanted.message_id)
        return CommandResult("sent", None)

    def _note(self, wanted: TaskCommand, way: str, carried: CommandResult) -> None:
        self._emit(CommandHandled(wanted.kind, way, carried.answer, str(wanted.message_id), carried.task_id))

    # Commands

    async def _reject(self, delivery: Delivery, reason: str, error: GrnsError) -> float:
        self._emit(CommandHandled(_kind(delivery.subject), _COMMAND, reason, None, None))
        dead_letters = DeadLetterQueue(self._database, emit=self._emit)
        is_kept = False
        with suppress(GrnsError):  # it comes again, and is kept once
            is_kept = await dead_letters.reject(delivery, reason, str(error))
        return 0.0 if is_kept else _UNKEPT_SECONDS

    async def _wait_for_task(self, delivery: Delivery, error: GrnsError, reason: str) -> float:
        """Give back what names a task that may still be uncommitted; finally keep it as a dead letter."""
        if delivery.delivery_count > len(UNKNOWN_TASK_DELAYS):
            return await self._reject(delivery, reason, error)
        with suppress(GrnsError):
            await delivery.nak(UNKNOWN_TASK_DELAYS[delivery.delivery_count - 1])
        return 0.0

    async def _put_off(self, delivery: Delivery, error: UnavailableError) -> float:
        delay_seconds = random.uniform(1.0, 5.0)
        self._emit(DeliveryDeferred("", type(error).__name__, str(error)[:200], delay_seconds))
        with suppress(GrnsError):
            await delivery.nak(delay_seconds)
        return delay_seconds

    # Requests

    async def _read(self, wanted: TaskCommand, carried: CommandResult) -> Task:
        """Return the task that an order is about, as it is now."""
        task: Task | None = None
        if carried.task_id is not None:
            try:
                task = await self._tasks.ask((wanted.workspace, carried.task_id))
            except UnavailableError as error:
                raise OutcomeUnknownError(f"it was carried out, and cannot be read now: {error}") from error
        if task is None:
            raise NotFoundError(
                f"message {wanted.message_id} was handled before: what it was about has been deleted since,"
                " or had another idempotency_key"
            )
        return task

    def _tell(self, request: Request, carried: CommandResult, task: Task) -> None:
        """Send the task, or where the broker is too small for it, what to look it up by."""
        headers = _JSON | {"Grns-Answer": carried.answer}
        stub = Truncated(ref=f"db://tasks/{task.id}", task_id=task.id)
        with suppress(UnavailableError):  # the sender cannot be reached
            try:
                # asyncpg's ids are of a class of their own, which orjson does not know
                request.answer(orjson.dumps(task, default=str, option=orjson.OPT_UTC_Z), headers)
            except BrokerRefusedError:
                request.answer(stub.model_dump_json().encode(), headers)

    async def _keep(self, request: Request) -> None:
        """Keep what cannot be answered, as far as possible: there is no other copy."""
        self._emit(CommandHandled(_kind(request.subject), _REQUEST, "no_reply", None, None))
        self._emit(RejectedMessageStored("no_reply", request.subject, 0, _NO_REPLY))
        rejected = RejectedMessage(
            "no_reply", _NO_REPLY, request.subject, "", 0, 1, request.headers, request.body
        )
        with suppress(GrnsError):
            await self._rejected.ask(rejected)

    # What goes together

    async def _read_tasks(self, wanted: Sequence[tuple[str, str]]) -> list[Task | None]:
        found: dict[tuple[str, str], Task] = {}
        for workspace in {workspace for workspace, _ in wanted}:
            ids = [task_id for owner, task_id in wanted if owner == workspace]
            tasks = await read.tasks(self._database, ids, workspace)
            found |= {(workspace, task_id): task for task_id, task in tasks.items()}
        return [found.get(one) for one in wanted]

    async def _reject_all(self, rejected: Sequence[RejectedMessage]) -> list[None]:
        await store_rejected(self._database, rejected)
        return [None] * len(rejected)


def _kind(subject: str) -> str:
    """Return what a message on this subject asks for."""
    return subjects.parse(subjects.command_of(subject)).kind
