"""What a client has besides tasks: a service for each noun."""

from __future__ import annotations

from grns.client.arguments import SubmissionReader
from grns.client.limits import TaskLimits
from grns.client.schedules import Schedules
from grns.nats import JetStream
from grns.postgres.database import Database, Session
from grns.tasks.agents import Agents
from grns.tasks.blobs import Blobs
from grns.tasks.budgets import Budgets
from grns.tasks.follow_ups import FollowUps
from grns.tasks.mail import Mailbox
from grns.tasks.questions import Questions
from grns.tasks.usage import UsageRecords


class ServiceMethods:
    """The part of `Client` that are services, each for a noun."""

    _database: Database | Session
    _transport: JetStream
    _workspace: str
    _actor: str | None
    _reader: SubmissionReader

    @property
    def schedules(self) -> Schedules:
        """Tasks that are submitted again and again: create, list, pause and delete their schedules."""
        return Schedules(self._database, self._transport, self._reader, self._actor or "client")

    @property
    def limits(self) -> TaskLimits:
        """How many tasks run at once, and how many begin in a time: create, list, pause and delete limits."""
        return TaskLimits(self._database, self._workspace, self._actor or "client")

    @property
    def questions(self) -> Questions:
        """What handlers ask people: list and answer it."""
        return Questions(self._database, self._transport, self._workspace, self._actor)

    @property
    def agents(self) -> Agents:
        """Agents by name: register and list them, and tell them to end."""
        return Agents(self._database, self._workspace, self._actor)

    @property
    def mail(self) -> Mailbox:
        """Mail between agents: send, poll and acknowledge it."""
        return Mailbox(self._database, self._transport, self._workspace, self._actor)

    @property
    def usage(self) -> UsageRecords:
        """What tasks have used: tokens, time and money."""
        return UsageRecords(self._database, self._workspace)

    @property
    def budgets(self) -> Budgets:
        """What tasks may use in a day or a month: set, list and delete budgets, and allow more."""
        return Budgets(self._database, self._workspace, self._actor)

    @property
    def follow_ups(self) -> FollowUps:
        """What is submitted when tasks of a pool have ended: list it, declare it for workers over HTTP."""
        return FollowUps(self._database, self._workspace, self._actor)

    @property
    def blobs(self) -> Blobs:
        """Bytes that payloads, results and messages refer to: put, read and list them."""
        return Blobs(self._database, self._workspace)
