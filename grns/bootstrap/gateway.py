"""Wiring of the gateway for HTTP workers."""

from __future__ import annotations

from grns.bootstrap.app import App
from grns.dead_letters.queue import DeadLetterQueue
from grns.gateway.attempts import HttpAttempts
from grns.gateway.claims import HttpClaims
from grns.gateway.long_poll import LongPollQueue, PollIntervals
from grns.gateway.registry import WorkerRegistry
from grns.gateway.wakeups import SpawnTarget, Wakeups
from grns.model import wakeup_url
from grns.nats import JetStream
from grns.postgres.database import Database
from grns.webhooks.http import HttpSender
from grns.worker.claims import Claimant, Claims
from grns.worker.executor import Claimer

_WAKEUP_SECONDS = 5.0


class GatewayFactory:
    """Wiring of the gateway for HTTP workers."""

    def __init__(self, app: App, database: Database, transport: JetStream) -> None:
        self.settings = app.settings
        self.emit = app.telemetry.emit
        self.database, self.transport = database, transport
        self.registry = WorkerRegistry(database, emit=self.emit)
        self.pace = PollIntervals(
            after_seconds=self.settings.poll_after_seconds,
            longest_pause_seconds=self.settings.poll_max_seconds,
            busy_age_seconds=self.settings.poll_busy_age_seconds,
        )

    def claims(self) -> HttpClaims:
        """Return the claims of HTTP workers."""
        return HttpClaims(
            database=self.database,
            make_claimer=self.claimer,
            make_queue=self.queue,
            registry=self.registry,
            nudges=Wakeups(
                database=self.database,
                hosts=wakeup_url.hosts(self.settings.wakeup_hosts),
                http=HttpSender(policy=wakeup_url.POLICY, timeout_seconds=_WAKEUP_SECONDS, agent="grns"),
                emit=self.emit,
                spawn=self.spawn_target(),
            ),
            pace=self.pace,
            emit=self.emit,
        )

    def spawn_target(self) -> SpawnTarget | None:
        """Return where sessions of agents are begun."""
        url, secret = self.settings.spawn_url, self.settings.spawn_secret
        return None if url is None else SpawnTarget(wakeup_url.POLICY.destination(url), secret)

    def writes(self) -> HttpAttempts:
        """Return the attempts of HTTP workers."""
        return HttpAttempts(registry=self.registry, emit=self.emit)

    def claimer(self, claims: Claims, claimant: Claimant) -> Claimer:
        """Return the claimer of one HTTP worker."""
        return Claimer(
            claims=claims,
            dead_letters=DeadLetterQueue(self.database, emit=self.emit),
            envelope_limits=self.settings.envelope_limits,
            task_types=list(claimant.handled),
            emit=self.emit,
        )

    def queue(self, claimant: Claimant) -> LongPollQueue:
        """Return the long-poll queue of one pool."""
        return LongPollQueue(
            claimant=claimant,
            claimer=self.claimer(Claims(self.database, claimant, batch_limit=1), claimant),
            database=self.database,
            transport=self.transport,
            pace=self.pace,
            emit=self.emit,
        )
