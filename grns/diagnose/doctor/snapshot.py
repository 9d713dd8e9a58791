"""The state of an installation. Parts that could not be read are None, and `troubles` has the reason."""

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
    """A Postgres server: version, durability settings, and its longest transaction, if there is one."""

    version: str
    version_number: int
    is_standby: bool = False
    fsync: bool = True
    full_page_writes: bool = True
    synchronous_commit: str = "on"
    isolation: str = "read committed"
    connections: int = 0
    max_connections: int = 100
    max_wal_megabytes: int = 8192
    transaction_seconds: float | None = None
    transaction_pid: int | None = None
    transaction_name: str | None = None
    transaction_state: str | None = None


@dataclass(frozen=True, slots=True)
class Schema:
    """The revision of the schema, and the one that this release needs."""

    found: str | None
    needed: str
    isolation_obstacle: str | None = None
    is_isolation_relied_on: bool = False  # keys of single workspaces exist
    payload_bytes: int | None = None  # maximum payload of submissions in SQL


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of the event log. `newest_seconds` is the age of its newest row, None without rows."""

    name: str
    lower_seq: int
    upper_seq: int
    is_ahead: bool = False
    is_done_with: bool = True
    is_detaching: bool = False
    newest_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Log:
    """The partitions, oldest first, the highest `seq`, and the number of detached partitions."""

    partitions: Sequence[Partition]
    high: int
    orphans: int = 0

    @property
    def ahead(self) -> int:
        """Number of partitions above the highest `seq`."""
        return sum(one.is_ahead for one in self.partitions)

    @property
    def rows_left(self) -> int:
        """Number of rows until the last partition is full."""
        return max((one.upper_seq for one in self.partitions), default=0) - 1 - self.high


@dataclass(frozen=True, slots=True)
class ClockSkew:
    """Difference of a server's clock to this machine's; the error is half of the round trip."""

    name: str
    ahead_seconds: float
    error_seconds: float


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """The live workers of a pool, and the number that became silent without a shutdown."""

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
    """Queued tasks of a type that no live worker of their pool handles."""

    agent_type: str
    task_type: str
    count: int
    oldest_seconds: float


@dataclass(frozen=True, slots=True)
class Broker:
    """The broker: version, and streams with their durable consumers."""

    version: str
    streams: Sequence[StreamReport]
    is_changed_by_hand: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole state. `troubles` has a sentence per part that could not be read."""

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
    orphans: Sequence[tuple[str, str]] | None = None  # schedules, and pools that no longer declare them
    broker: Broker | None = None
    clocks: Sequence[ClockSkew] = ()
    troubles: Mapping[str, str] = field(default_factory=dict)
