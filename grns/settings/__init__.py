"""Settings: flag > environment (`GRNS_*`) > secret file (`GRNS_*FILE`) > `grns.toml` > default.

`grns.toml`, and what `grns dev` announces, are looked for here and in the directories above.
"""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from grns.errors import SettingsError
from grns.model import server_url, subjects
from grns.model import wakeup_url as nudge_url
from grns.model.envelope import first_problem
from grns.model.json import Limits
from grns.model.url_policy import UrlPolicy, guard
from grns.settings.export import reveal, variables
from grns.settings.sources import (
    ANNOUNCED,
    FILE,
    PREFIX,
    SecretFiles,
    TomlFile,
    announced,
    files,
    is_trusted,
    with_hint,
)

__all__ = ["PREFIX", "Settings", "announced", "files", "load", "misspelt", "reveal", "variables"]

_OTHER_VARIABLES = frozenset({"GRNS_DEBUG", "GRNS_DIGEST_ROOT", "GRNS_FAILPOINTS"})
_ALIKE = 0.85
_LONG_SECRET = re.compile(r"[A-Za-z0-9_-]{32,200}")

Seconds = Annotated[float, Field(gt=0, le=366 * 24 * 3600, allow_inf_nan=False)]
Bytes = Annotated[int, Field(gt=0)]
Days = Annotated[float, Field(gt=0, le=36500, allow_inf_nan=False)]


def _number(text: object) -> object:
    """Return the number that the environment, which knows only text, means."""
    return int(text) if isinstance(text, str) and text.isdecimal() else text


class Settings(BaseSettings):
    """All settings of grns. Durations are in seconds, sizes in bytes."""

    # A variable that is empty counts as unset: container files cannot leave one out.
    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, extra="ignore", frozen=True)

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
    nats_max_consumers: int = Field(20_000, gt=0, description="maximum durable consumers per stream")
    nats_startup_seconds: Seconds = Field(30.0, description="time to wait for NATS at startup")

    workspace: str = Field(subjects.DEFAULT_WORKSPACE, description="workspace of this worker or client")

    lease_seconds: float = Field(15.0, ge=1, le=86_400, description="lease of a claim; workers renew it")
    concurrency: int = Field(
        10, ge=1, le=100_000, description="maximum concurrent handlers per worker process"
    )
    shutdown_grace_seconds: float = Field(
        30.0, ge=0, description="grace period for running tasks after SIGTERM"
    )
    claim_batch: int = Field(100, ge=1, le=1000, description="maximum tasks per claim or finish statement")
    poll_after_seconds: Seconds = Field(
        2.0, description="time without a delivery before a worker polls PostgreSQL"
    )
    poll_max_seconds: Seconds = Field(10.0, description="maximum time between two polls")
    poll_busy_age_seconds: Seconds = Field(
        60.0, description="a busy worker polls for tasks queued longer than this"
    )

    reaper_interval_seconds: Seconds | None = Field(
        None, description="interval of the reaper; defaults to min(2, lease / 5)"
    )
    scheduler_interval_seconds: Seconds = Field(1.0, description="interval of the retry scheduler")
    operations_interval_seconds: Seconds = Field(
        1.0, description="interval of the operation runner while nothing is due"
    )
    relay_busy_seconds: Seconds = Field(0.1, description="poll interval of a busy relay")
    relay_idle_seconds: Seconds = Field(0.3, description="poll interval of an idle relay")
    relay_window: int = Field(1000, ge=1, le=100_000, description="maximum messages of the relay in flight")
    relay_lease_seconds: Seconds = Field(2.0, description="leader lease of the relay")
    relay_replay_seconds: Seconds = Field(
        3600.0, description="time range of events to publish again after the broker lost some"
    )
    stats_interval_seconds: Seconds = Field(0.5, description="interval of the stats aggregator")
    janitor_interval_seconds: Seconds = Field(10.0, description="interval of the janitor")
    request_window: int = Field(
        1000,
        ge=1,
        le=100_000,
        description="maximum requests in progress per command gateway",
    )

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
    log_partition_rows: int = Field(
        2_000_000, ge=1000, description="minimum rows per partition of the event log"
    )
    verify_interval_seconds: Seconds = Field(
        86_400.0, description="interval at which the janitor verifies all tasks against the event log"
    )
    stuck_after_seconds: Seconds = Field(300.0, description="time after which a due task counts as stuck")
    unserved_after_seconds: Seconds = Field(
        3600.0, description="age at which a command without a worker becomes a dead letter"
    )

    webhook_interval_seconds: Seconds = Field(0.5, description="interval of the webhook sender")
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
    webhook_retention_days: Days = Field(30.0, description="retention of webhook deliveries")
    webhook_allow_http: bool = Field(False, description="allow webhook URLs with http://")
    webhook_allow_networks: str = Field(
        "", description="private networks that webhooks may use, such as 10.0.0.0/8, separated by commas"
    )
    webhook_ca_file: Path | None = Field(None, description="file of additional CA certificates for webhooks")

    payload_max_bytes: Bytes = Field(
        256 * 1024, description="maximum payload of a task; `grns admin db upgrade` sets it for SQL"
    )
    result_max_bytes: Bytes = Field(256 * 1024, description="maximum result of a task")
    envelope_max_bytes: Bytes = Field(512 * 1024, description="maximum message size")

    api_host: str = Field("127.0.0.1", description="address of the HTTP API")
    api_port: int = Field(8080, ge=0, le=65535, description="port of the HTTP API; 0 chooses a free one")
    http_lease_seconds: float = Field(60.0, ge=1, le=86_400, description="lease of HTTP workers")
    http_wait_seconds: float = Field(
        60.0, gt=0, le=300, description="maximum wait of an HTTP worker's claim request"
    )
    wakeup_hosts: str = Field(
        "",
        description="hosts that HTTP workers may name for wakeups, separated by commas: name or name:port",
    )
    session_secret: SecretStr | None = Field(
        None,
        description="signs dashboard sessions, at least 32 characters; use the same value on every API "
        "process. Defaults to a random value per process: a restart logs users out",
    )
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

    @field_validator("workspace")
    @classmethod
    def _workspace_is_a_token(cls, value: str) -> str:
        return subjects.token(value, name="workspace")

    @field_validator("wakeup_hosts")
    @classmethod
    def _hosts_are_hosts(cls, value: str) -> str:
        nudge_url.hosts(value)
        return value

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

    @field_validator("webhook_allow_networks")
    @classmethod
    def _networks_are_networks(cls, value: str) -> str:
        guard(value, allows_http=False)
        return value

    @field_validator("session_secret")
    @classmethod
    def _secret_is_long(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not _LONG_SECRET.fullmatch(value.get_secret_value()):
            raise PydanticCustomError("secret", "no secret of 32 to 200 letters, digits, - and _")
        return value

    @field_validator("nats_url")
    @classmethod
    def _broker_is_nats(cls, value: SecretStr) -> SecretStr:
        for url in value.get_secret_value().split(","):
            server_url.check(url.strip(), ("nats", "tls", "ws", "wss"))
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order the sources; the first that has a value wins."""
        read = [TomlFile(settings_cls, path) for path in files()]
        return (init_settings, env_settings, SecretFiles(settings_cls), *read)

    @property
    def reap_tick_seconds(self) -> float:
        """How often the reaper looks."""
        return self.reaper_interval_seconds or min(2.0, self.lease_seconds / 5)

    @property
    def remembered_days(self) -> float:
        """How long handled message ids are remembered: all that the log can bring back, by default."""
        return self.processed_retention_days or self.log_retention_days

    @property
    def renew_seconds(self) -> float:
        """How often a worker renews its leases."""
        return self.lease_seconds / 3

    @property
    def ack_wait_seconds(self) -> float:
        """How long the broker waits for a sign of life before it delivers again."""
        return min(30.0, self.lease_seconds)

    @property
    def nats_prefix(self) -> str:
        """What the names of all streams and subjects begin with at the broker."""
        return "" if self.nats_namespace is None else f"{self.nats_namespace}_"

    @property
    def webhook_guard(self) -> UrlPolicy:
        """What webhooks may name, and be sent to."""
        return guard(self.webhook_allow_networks, allows_http=self.webhook_allow_http)

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
        """Limits of a message: a little more room than a payload, for the fields around it."""
        return Limits(document_bytes=self.envelope_max_bytes, depth=66, nodes=10_100)

    def require_database_url(self) -> str:
        """Return the database URL; `SettingsError` says how to give one."""
        if self.database_url is None:
            raise SettingsError(
                "no database is named: no `grns dev` runs in this directory or above;"
                " start one, or set GRNS_DATABASE_URL=postgresql://…"
            )
        return self.database_url.get_secret_value()

    def database_host(self) -> str:
        """Return where the database is: host, port and name, and no user or password."""
        return "" if self.database_url is None else server_url.place(self.database_url.get_secret_value())

    def nats_hosts(self) -> str:
        """Return where the broker is: hosts and ports, and no user, password or token."""
        return " ".join(server_url.place(url) for url in self.nats_servers())

    def nats_servers(self) -> list[str]:
        """Return the broker's URLs, each server once: nats-py counts failures for the first of its name."""
        urls = self.nats_url.get_secret_value().split(",")
        return server_url.distinct(url.strip() for url in urls if url.strip())


def load(**flags: Any) -> Settings:
    """Return the settings; flags that are None do not count. `SettingsError` names what is wrong."""
    try:
        return Settings(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as error:
        raise _unfit(error, flags) from error
    except ValueError as error:  # a secret's file that is no text
        raise SettingsError(f"cannot read the settings: {error}") from error


def _unfit(error: ValidationError, flags: dict[str, Any]) -> SettingsError:
    """Return what is wrong with a value, with the place where it was set and can be mended."""
    name, _, problem = first_problem(error).partition(": ")
    if flags.get(name) is not None:
        return SettingsError(f"{name}: {problem}")
    variable = f"{PREFIX}{name.upper()}"
    for place in (variable, f"{variable}_FILE"):
        if os.environ.get(place):
            found = SettingsError(f"{place}: {problem}")
            found.add_note(f"unset {place}")
            return found
    for path in files():
        if name in TomlFile(Settings, path).toml_data:
            return with_hint(f"{path}: {name}: {problem}", path)
    return SettingsError(f"{name}: {problem}")


def misspelt() -> list[str]:
    """Return a sentence for each variable that looks like one of ours, and each file that is not read."""
    names = [f"{PREFIX}{name.upper()}" for name in Settings.model_fields]
    known = {*names, *(f"{name}_FILE" for name in names), *_OTHER_VARIABLES}
    found = [
        f"{name} is not read: it belongs to another user, or every user may write to it"
        for name in (FILE, ANNOUNCED)
        if name.is_file() and not is_trusted(name)
    ]
    return found + [
        f"{variable} is set, and there is no such setting: did you mean {near[0]}?"
        for variable in sorted(os.environ)
        if variable.upper().startswith(PREFIX)
        and variable.upper() not in known
        and (near := get_close_matches(variable.upper(), sorted(known), n=1, cutoff=_ALIKE))
    ]
