"""What requests are answered with: connections, limits, and what they share."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from grns.access import isolation as access
from grns.access.limiter import WorkspaceLimiter
from grns.access.token_keys import TokenKeys
from grns.api.doctor_cache import DoctorCache
from grns.api.event_tail import EventTail
from grns.api.health import HealthProbe
from grns.api.invitation import Invitation
from grns.api.key_watch import KeyWatch
from grns.errors import RateLimitedError
from grns.gateway.attempts import HttpAttempts
from grns.gateway.claim_secrets import ClaimSecrets
from grns.gateway.claims import HttpClaims
from grns.gateway.outputs import HttpOutputs
from grns.gateway.steps import HttpSteps
from grns.model.json import Limits
from grns.model.url_policy import UrlPolicy
from grns.nats import JetStream
from grns.postgres.database import Database
from grns.tasks.agents import Heartbeats
from grns.tasks.output import OutputHub
from grns.tasks.submit import Submissions
from grns.telemetry.signal import Emit
from grns.telemetry.spans import NO_SPANS, Spans

_MOST_ACTORS = 1000
_PATIENCE_SECONDS = 5.0
_MOST_UPLOADS = 2  # of a workspace: each is in memory
_MOST_READERS, _MOST_READERS_OF_ONE = 1000, 250
# Requests of one workspace, of those under way and those that wait for their turn.
_MOST_OF_WORKSPACE = 200


@dataclass
class ApiContext:
    """What the routes of one process share. `workspace` is for keys of all workspaces that name none.

    `metrics` are those of the process, as Prometheus reads them. Agents wait for a task no longer than
    `http_wait_seconds`, and have it for `http_lease_seconds` where they do not say otherwise. Without
    a key, only the token of the `invitation` is admitted.
    """

    database: Database
    transport: JetStream
    workspace: str
    payload_limits: Limits
    result_limits: Limits
    envelope_limits: Limits
    batch_limit: int
    agent_claims: HttpClaims
    agent_writes: HttpAttempts
    agent_steps: HttpSteps
    agent_outputs: HttpOutputs
    agent_secrets: ClaimSecrets
    http_wait_seconds: float
    http_lease_seconds: float
    webhook_guard: UrlPolicy
    emit: Emit
    metrics: Callable[[], bytes]
    rounds: DoctorCache
    invitation: Invitation = field(default_factory=Invitation)
    spans: Spans = NO_SPANS
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    uploads: QueryLimiter = field(init=False)
    health: HealthProbe = field(init=False)
    tail: EventTail = field(init=False)
    key_watch: KeyWatch = field(init=False)
    isolation: IsolationState = field(init=False)
    token_keys: TokenKeys = field(init=False)
    submitters: Submitters = field(init=False)
    outputs: OutputHub = field(init=False)
    heartbeats: Heartbeats = field(init=False)
    output_readers: WorkspaceLimiter = field(init=False)
    turns: QueryLimiter = field(init=False)
    attempt_turns: QueryLimiter = field(init=False)

    def __post_init__(self) -> None:
        self.health = HealthProbe(self.database)
        self.tail = EventTail(self.database)
        self.key_watch = KeyWatch(self.database, emit=self.emit)
        self.isolation = IsolationState(self.database)
        self.token_keys = TokenKeys(self.database)
        self.submitters = Submitters(self.database, batch_limit=self.batch_limit)
        self.outputs = OutputHub(self.database, self.transport)
        self.heartbeats = Heartbeats(self.database)
        self.output_readers = WorkspaceLimiter(
            "output streams", most=_MOST_READERS, most_of_one=_MOST_READERS_OF_ONE
        )
        self.turns = QueryLimiter(max(1, self.database.size // 2))
        self.uploads = QueryLimiter(_MOST_UPLOADS)
        # Else a lease expires while its renewal waits behind a search.
        self.attempt_turns = QueryLimiter(max(1, self.database.size // 4))


class IsolationState:
    """Whether the database itself keeps workspaces apart. Asked once: see `grns admin workspace isolate`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._is_there: bool | None = None

    async def is_there(self) -> bool:
        """Return whether keys of one workspace can be confined to it."""
        if self._is_there is None:
            self._is_there = await access.obstacle(self._database) is None
        return self._is_there


class QueryLimiter:
    """How many requests of one workspace may ask the database at a time: the others have the rest of it.

    A filter may have much to scan: clients that use it again and again do not hold up other workspaces.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, asyncio.Semaphore] = {}
        self._asking: Counter[str] = Counter()

    @asynccontextmanager
    async def of(self, workspace: str) -> AsyncIterator[None]:
        """Be one of those who ask, when it is one's turn; `RateLimitedError` where that takes too long."""
        if self._asking[workspace] >= _MOST_OF_WORKSPACE:
            raise RateLimitedError(f"{_MOST_OF_WORKSPACE} requests of {workspace} are under way")
        turns = self._known.setdefault(workspace, asyncio.Semaphore(self._most))
        self._asking[workspace] += 1
        try:
            try:
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    await turns.acquire()
            except TimeoutError as error:
                raise RateLimitedError(f"requests of {workspace} wait for one another") from error
            try:
                yield
            finally:
                turns.release()
        finally:
            self._asking[workspace] -= 1
            if not self._asking[workspace]:
                del self._asking[workspace], self._known[workspace]


class Submitters:
    """Submissions per actor: requests of one actor that arrive together share a statement."""

    def __init__(self, database: Database, *, batch_limit: int) -> None:
        self._database = database
        self._batch_limit = batch_limit
        self._known: OrderedDict[str, Submissions] = OrderedDict()

    def of(self, actor: str) -> Submissions:
        """Return the submissions of an actor."""
        found = self._known.get(actor)
        if found is None:
            found = self._known[actor] = Submissions(
                self._database, batch_limit=self._batch_limit, actor=actor
            )
            if len(self._known) > _MOST_ACTORS:
                self._known.popitem(last=False)  # requests that wait there keep their reference
        self._known.move_to_end(actor)
        return found
