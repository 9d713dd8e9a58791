"""Settings by component. Durations are in seconds, sizes in bytes.

Each service takes its own group; `Settings` has all of them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, field_validator
from pydantic_core import PydanticCustomError

from grns.errors import InvalidInputError, SettingsError
from grns.model import server_url, subjects, wakeup_url
from grns.model.json import Limits
from grns.model.url_policy import UrlPolicy, guard

_DAY_SECONDS = 86_400.0
_LONG_SECRET = re.compile(r"[A-Za-z0-9_-]{32,200}")

Seconds = Annotated[float, Field(gt=0, le=366 * 24 * 3600, allow_inf_nan=False)]
Bytes = Annotated[int, Field(gt=0)]
Days = Annotated[float, Field(gt=0, le=36500, allow_inf_nan=False)]


def _number(text: object) -> object:
    """Return the number that a text of the environment stands for."""
    return int(text) if isinstance(text, str) and text.isdecimal() else text


class SettingsGroup(BaseModel):
    """Settings of one component."""

    model_config = ConfigDict(frozen=True)


class ConnectionSettings(SettingsGroup):
    """The connections to PostgreSQL and NATS."""

    database_url: SecretStr | None = Field(None, description="postgresql:// URL of the database")
    database_pool_size: int = Field(
        8,
        ge=2,
        le=1000,
        description="PostgreSQL connections per process; a worker's handlers get as many again",
    )
    database_startup_params: bool = Field(
        True,
        description="send planner settings when connecting; set false if a pooler refuses them (the server's "
        "default_transaction_isolation must then be read committed)",
    )
    nats_url: SecretStr = Field(
        SecretStr("nats://127.0.0.1:4222"), description="one or more NATS URLs, separated by commas"
    )
    nats_credentials_file: Path | None = Field(None, description="credentials file of the NATS user")
    nats_inbox_prefix: str = Field(
        "_INBOX",
        pattern=r"^_INBOX[A-Za-z0-9_-]{0,100}$",
        description="prefix of reply subjects; `grns admin nats-config` prints it for each user",
    )
    nats_manage: Literal["apply", "verify"] = Field(
        "apply", description="create streams and durable consumers, or only verify them and report drift"
    )
    nats_namespace: str | None = Field(
        None, description="prefix of streams and subjects, for installations that share a NATS account"
    )
    nats_replicas: Annotated[Literal[1, 3, 5], BeforeValidator(_number)] = Field(
        1, description="replicas of each stream"
    )
    nats_cmd_max_per_subject: int = Field(
        1_000_000, gt=0, description="maximum commands per priority subject"
    )
    nats_cmd_max_bytes: Bytes = Field(8 * 1024**3, description="maximum size of GRNS_CMD in bytes")
    nats_evt_max_bytes: Bytes = Field(8 * 1024**3, description="maximum size of GRNS_EVT in bytes")
    nats_dlq_max_bytes: Bytes = Field(4 * 1024**3, description="maximum size of GRNS_DLQ in bytes")
    nats_out_max_bytes: Bytes = Field(
        64 * 1024**2, description="maximum size of GRNS_OUT, which is in the broker's memory, in bytes"
    )
    nats_max_consumers: int = Field(20_000, gt=0, description="maximum durable consumers per stream")
    nats_startup_seconds: Seconds = Field(30.0, description="time to wait for NATS at startup")
    workspace: str = Field(subjects.DEFAULT_WORKSPACE, description="workspace of this worker or client")
    keys_file: Path | None = Field(
        None, description="file of the keys that seal secrets; `grns admin secret new-key` writes one"
    )

    @field_validator("workspace")
    @classmethod
    def _workspace_is_a_token(cls, value: str) -> str:
        return subjects.token(value, name="workspace")

    @field_validator("nats_namespace")
    @classmethod
    def _namespace_is_a_token(cls, value: str | None) -> str | None:
        return None if value is None else subjects.token(value, name="nats_namespace")

    @field_validator("database_url")
    @classmethod
    def _database_is_postgres(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            server_url.check(value.get_secret_value(), ("postgresql", "postgres"))
        return value

    @field_validator("nats_url")
    @classmethod
    def _broker_is_nats(cls, value: SecretStr) -> SecretStr:
        for url in value.get_secret_value().split(","):
            server_url.check(url.strip(), ("nats", "tls", "ws", "wss"))
        return value

    @property
    def nats_prefix(self) -> str:
        """Prefix of all streams and subjects at the broker."""
        return "" if self.nats_namespace is None else f"{self.nats_namespace}_"

    def require_database_url(self) -> str:
        """Return the database URL. Raises SettingsError if it is not set."""
        if self.database_url is None:
            raise SettingsError(
                "no database is named: no `grns dev` runs in this directory or above;"
                " start one, or set GRNS_DATABASE_URL=postgresql://…"
            )
        return self.database_url.get_secret_value()

    def database_host(self) -> str:
        """Return host, port and name of the database, without user and password."""
        return "" if self.database_url is None else server_url.place(self.database_url.get_secret_value())

    def nats_hosts(self) -> str:
        """Return hosts and ports of the broker, without user, password and token."""
        return " ".join(server_url.place(url) for url in self.nats_servers())

    def nats_servers(self) -> list[str]:
        """Return the URLs of the broker, each server once: nats-py counts failures by name."""
        urls = self.nats_url.get_secret_value().split(",")
        return server_url.distinct(url.strip() for url in urls if url.strip())


class LimitSettings(SettingsGroup):
    """The sizes of payloads, results and messages."""

    payload_max_bytes: Bytes = Field(
        256 * 1024, description="maximum payload of a task; `grns admin db upgrade` sets it for SQL"
    )
    result_max_bytes: Bytes = Field(256 * 1024, description="maximum result of a task")
    envelope_max_bytes: Bytes = Field(512 * 1024, description="maximum message size")
    blob_max_bytes: int = Field(64 * 1024**2, gt=0, le=512 * 1024**2, description="maximum size of a blob")
    blobs_max_bytes: Bytes = Field(1024**3, description="maximum size of all blobs of a workspace together")
    blob_store: str = Field(
        "", description="directory or s3://bucket/prefix for blobs over 64 KiB; Postgres by default"
    )

    @property
    def payload_limits(self) -> Limits:
        """Limits of a task's payload."""
        return Limits(document_bytes=self.payload_max_bytes)

    @property
    def result_limits(self) -> Limits:
        """Limits of a task's result."""
        return Limits(document_bytes=self.result_max_bytes)

    @property
    def envelope_limits(self) -> Limits:
        """Limits of a message: those of a payload and the fields around it."""
        return Limits(document_bytes=self.envelope_max_bytes, depth=66, nodes=10_100)


class LeaseSettings(SettingsGroup):
    """The leases of tasks, and how often they are renewed and reaped."""

    lease_seconds: float = Field(15.0, ge=1, le=86_400, description="lease of a claim; workers renew it")
    http_lease_seconds: float = Field(60.0, ge=1, le=86_400, description="lease of HTTP workers")
    reaper_interval_seconds: Seconds | None = Field(
        None, description="interval of the reaper; defaults to min(2, lease / 5)"
    )
    overdue_after_seconds: float = Field(
        1800.0, ge=0, description="how long after its estimate an attempt counts as overdue, and grns warns"
    )
    agent_grace_seconds: Seconds = Field(
        30.0, description="time after which tasks are taken from an agent that was told to stop"
    )
    overdue_stall_seconds: Seconds = Field(
        600.0, description="an overdue attempt that reports no progress for so long is ended"
    )

    @property
    def reap_tick_seconds(self) -> float:
        """Interval of the reaper."""
        return self.reaper_interval_seconds or min(2.0, self.lease_seconds / 5)

    @property
    def renew_seconds(self) -> float:
        """Interval at which a worker renews its leases."""
        return self.lease_seconds / 3

    @property
    def ack_wait_seconds(self) -> float:
        """Time after which the broker delivers a command again unless the worker reports progress."""
        return min(30.0, self.lease_seconds)


class WorkerSettings(LeaseSettings):
    """How a worker claims and ends tasks."""

    concurrency: int = Field(
        10, ge=1, le=100_000, description="maximum concurrent handlers per worker process"
    )
    shutdown_grace_seconds: float = Field(
        30.0, ge=0, description="grace period for running tasks after SIGTERM"
    )
    agent: str | None = Field(None, description="name of the agent that this worker is: see `grns agent`")
    claim_batch: int = Field(100, ge=1, le=1000, description="maximum tasks per claim or finish statement")
    task_log_level: Literal["debug", "info", "warn", "error", "critical"] = Field(
        "info", description="lowest level of what handlers log that is kept with their tasks"
    )
    poll_after_seconds: Seconds = Field(
        2.0, description="time without a delivery before a worker polls PostgreSQL"
    )
    poll_max_seconds: Seconds = Field(10.0, description="maximum time between two polls")
    poll_busy_age_seconds: Seconds = Field(
        60.0, description="a busy worker polls for tasks queued longer than this"
    )

    @field_validator("agent")
    @classmethod
    def _agent_is_a_token(cls, value: str | None) -> str | None:
        return None if value is None else subjects.token(value, name="agent")


class RelaySettings(LimitSettings):
    """How the relay publishes the event log."""

    relay_window: int = Field(1000, ge=1, le=100_000, description="maximum messages of the relay in flight")
    relay_events_per_message: int = Field(
        1, ge=1, le=16, description="maximum events of one kind in a message, one JSON document a line"
    )
    relay_lease_seconds: Seconds = Field(2.0, description="leader lease of the relay")
    relay_replay_seconds: Seconds = Field(
        3600.0, description="time range of events to publish again after the broker lost some"
    )


class SearchSettings(SettingsGroup):
    """Which words of tasks are indexed."""

    search_payloads: bool = Field(
        False, description="index the words of payloads of up to 64 KiB, too, for the filter term `text:`"
    )


class JanitorSettings(SettingsGroup):
    """Retention and intervals of the janitor."""

    janitor_interval_seconds: Seconds = Field(10.0, description="interval of the janitor")
    log_retention_days: Days = Field(30.0, description="retention of the event log")
    task_retention_days: Days = Field(30.0, description="retention of succeeded and cancelled tasks")
    dead_retention_days: Days = Field(
        90.0, description="retention of dead and failed tasks, and of closed rejected messages"
    )
    rejected_max_messages: int = Field(
        10_000, ge=1, description="maximum open rejected messages per workspace; the oldest are deleted"
    )
    rejected_max_bytes: int = Field(
        256 * 1024**2,
        ge=16 * 1024**2,
        description="maximum size of open rejected messages per workspace, in bytes",
    )
    stats_retention_days: Days = Field(7.0, description="retention of statistics per minute")
    processed_retention_days: Days | None = Field(
        None, description="retention of handled message ids; defaults to that of the event log"
    )
    webhook_retention_days: Days = Field(30.0, description="retention of webhook deliveries")
    blob_grace_seconds: Seconds = Field(86_400.0, description="retention of blobs that nothing refers to")
    archive: str = Field(
        "",
        description="directory or s3://bucket/prefix where tasks, mail, events and blobs go before deletion",
    )
    verify_interval_seconds: Seconds = Field(
        86_400.0, description="interval at which the janitor verifies all tasks against the event log"
    )
    stuck_after_seconds: Seconds = Field(300.0, description="time after which a due task counts as stuck")
    unserved_after_seconds: Seconds = Field(
        3600.0, description="age at which a command without a worker becomes a dead letter"
    )

    @property
    def remembered_days(self) -> float:
        """Retention of handled message ids: by default as long as the event log can bring them back."""
        return self.processed_retention_days or self.log_retention_days


class WebhookSettings(SettingsGroup):
    """Delivery of webhooks and the URLs they may have."""

    webhook_window: int = Field(
        50, ge=1, le=1000, description="maximum deliveries in flight per webhook sender"
    )
    webhook_timeout_seconds: Seconds = Field(15.0, description="timeout of a webhook request")
    webhook_attempts: int = Field(11, ge=1, le=100, description="maximum attempts per delivery")
    webhook_failing_days: Days = Field(
        5.0, description="time without a successful delivery after which a webhook is disabled"
    )
    webhook_max_pending: int = Field(
        100_000, ge=1, le=10_000_000, description="pending deliveries after which a webhook is disabled"
    )
    webhook_allow_http: bool = Field(False, description="allow webhook URLs with http://")
    webhook_allow_networks: str = Field(
        "", description="private networks that webhooks may use, such as 10.0.0.0/8, separated by commas"
    )
    webhook_ca_file: Path | None = Field(None, description="file of additional CA certificates for webhooks")

    @field_validator("webhook_allow_networks")
    @classmethod
    def _networks_are_networks(cls, value: str) -> str:
        guard(value, allows_http=False)
        return value

    @property
    def webhook_failing_seconds(self) -> float:
        """Time without a successful delivery after which a webhook is disabled."""
        return self.webhook_failing_days * _DAY_SECONDS

    @property
    def webhook_guard(self) -> UrlPolicy:
        """URLs and addresses that webhooks may use."""
        return guard(self.webhook_allow_networks, allows_http=self.webhook_allow_http)


class ApiSettings(SettingsGroup):
    """The HTTP API, its workers and the dashboard."""

    request_window: int = Field(
        1000,
        ge=1,
        le=100_000,
        description="maximum requests in progress per command gateway",
    )
    api_host: str = Field("127.0.0.1", description="address of the HTTP API")
    api_port: int = Field(8080, ge=0, le=65535, description="port of the HTTP API; 0 chooses a free one")
    http_wait_seconds: float = Field(
        60.0, gt=0, le=300, description="maximum wait of an HTTP worker's claim request"
    )
    wakeup_hosts: str = Field(
        "",
        description="hosts of the URLs of agents that may be woken, separated by commas: name or name:port",
    )
    spawn_url: str | None = Field(
        None, description="URL at which sessions of agents are begun: .../api/agents/spawn"
    )
    spawn_secret: SecretStr | None = Field(None, description="bearer token for the spawn URL")
    session_secret: SecretStr | None = Field(
        None,
        description="signs dashboard sessions, at least 32 characters; use the same value on every API "
        "process. Defaults to a random value per process: a restart logs users out",
    )

    @field_validator("wakeup_hosts")
    @classmethod
    def _hosts_are_hosts(cls, value: str) -> str:
        wakeup_url.hosts(value)
        return value

    @field_validator("spawn_url")
    @classmethod
    def _spawn_url_is_one(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                wakeup_url.POLICY.destination(value)
            except InvalidInputError as error:
                raise ValueError(str(error)) from error
        return value

    @field_validator("session_secret")
    @classmethod
    def _secret_is_long(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _LONG_SECRET.fullmatch(value.get_secret_value()):
            raise PydanticCustomError("secret", "not a secret of 32 to 200 letters, digits, - and _")
        return value


class TelemetrySettings(SettingsGroup):
    """Logs, metrics and traces of a process."""

    metrics_port: int | None = Field(
        None, ge=0, le=65535, description="port of Prometheus metrics; defaults to none"
    )
    metrics_host: str = Field("127.0.0.1", description="address of the Prometheus endpoint")
    otlp_endpoint: SecretStr | None = Field(None, description="URL of an OTLP/HTTP collector of traces")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="lowest log level")
    log_format: Literal["auto", "json", "console"] = Field(
        "auto", description="auto is console on a terminal, else JSON"
    )
    loop: Literal["auto", "asyncio"] = Field("auto", description="auto uses uvloop if it is installed")
