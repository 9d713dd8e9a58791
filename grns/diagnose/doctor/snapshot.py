"""What a doctor reads of an installation. What could not be read is None, and `troubles` says why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from grns.model.daemon_status import DaemonStatus
from grns.settings import Settings

if TYPE_CHECKING:
    from grns.nats.report import StreamReport


@dataclass(frozen=True, slots=True)
class Postgres:
    """A server: its version, what durability hangs on, and its longest transaction, if there is one."""

    version: str
    version_number: int
    is_standby: bool = False
    fsync: bool = True
    full_page_writes: bool = True
    synchronous_commit: str = "on"
    isolation: str = "read committed"
    connections: int = 0
    max_connections: int = 100
    transaction_seconds: float | None = None
    transaction_pid: int | None = None
    transaction_name: str | None = None
    transaction_state: str | None = None


@dataclass(frozen=True, slots=True)
class Schema:
    """At which revision the schema is, and at which this version of grns needs it."""

    found: str | None
    needed: str
    isolation_obstacle: str | None = None
    is_isolation_relied_on: bool = False  # keys of single workspaces exist
    payload_bytes: int | None = None  # the largest that SQL takes


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of the log. `newest_seconds` is the age of its newest row, None where it has none."""

    name: str
    lower_seq: int
    upper_seq: int
    is_ahead: bool = False
    is_done_with: bool = True
    is_detaching: bool = False
    newest_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Log:
    """The log's partitions, oldest first, the highest number given out, and tables that were left behind."""

    partitions: Sequence[Partition]
    high: int
    orphans: int = 0

    @property
    def ahead(self) -> int:
        """How many partitions lie ahead of what is written."""
        return sum(one.is_ahead for one in self.partitions)

    @property
    def rows_left(self) -> int:
        """How many rows may be written before the last partition is full."""
        return max((one.upper_seq for one in self.partitions), default=0) - 1 - self.high


@dataclass(frozen=True, slots=True)
class ClockSkew:
    """How far a server's clock is ahead of this machine's, give or take half of the way there and back."""

    name: str
    ahead_seconds: float
    error_seconds: float


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """The workers of one pool: those that live, and how many are silent though they did not end in order."""

    workspace: str
    agent_type: str
    workers: int
    slots: int
    silent: int = 0
    shortest_lease_seconds: float | None = None
    longest_lease_seconds: float | None = None
    versions: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Unserved:
    """Tasks that wait in the queue of a pool in which no worker handles their type."""

    agent_type: str
    task_type: str
    count: int
    oldest_seconds: float


@dataclass(frozen=True, slots=True)
class Broker:
    """The broker: its version, and the streams of grns with their durables."""

    version: str
    streams: Sequence[StreamReport]
    is_changed_by_hand: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All of it. `troubles` are sentences, by what could not be read; `stuck` counts by invariant."""

    settings: Settings
    version: str
    at: datetime
    postgres: Postgres | None = None
    schema: Schema | None = None
    log: Log | None = None
    pulse: DaemonStatus | None = None
    stuck: Mapping[str, int] | None = None
    workers_by_pool: Sequence[WorkerStats] | None = None
    unserved: Sequence[Unserved] | None = None
    broker: Broker | None = None
    clocks: Sequence[ClockSkew] = ()
    troubles: Mapping[str, str] = field(default_factory=dict)
