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

    database_url: SecretStr | None = Field(
        None, description="postgresql:// URL of the database that holds the truth"
    )
    database_pool_size: int = Field(
        8,
        ge=2,
        le=1000,
        description="connections of one process to Postgres; a worker's handlers get as many of their own",
    )
    database_tuned: bool = Field(
        True,
        description="send planner settings when connecting; false behind a pooler that refuses them"
        " (then the server's default_transaction_isolation must be read committed)",
    )
    nats_url: SecretStr = Field(
        SecretStr("nats://127.0.0.1:4222"), description="one or more servers, by commas"
    )
    nats_credentials_file: Path | None = Field(None, description="credentials file of the NATS user")
    nats_inbox_prefix: str = Field(
        "_INBOX",
        pattern=r"^_INBOX[A-Za-z0-9_-]{0,100}$",
        description="how subjects for answers begin; `grns nats-config` says it for each user",
    )
    nats_manage: Literal["apply", "verify"] = Field(
        "apply", description="make streams and durables, or only check them and report the drift"
    )
    nats_namespace: str | None = Field(
        None, description="name before those of streams and subjects, where installations share an account"
    )
    nats_replicas: Annotated[Literal[1, 3, 5], BeforeValidator(_number)] = Field(
        1, description="copies of each stream"
    )
    nats_cmd_max_per_subject: int = Field(1_000_000, gt=0, description="commands that one lane may hold")
    nats_cmd_max_bytes: Bytes = Field(8 * 1024**3, description="size of GRNS_CMD")
    nats_evt_max_bytes: Bytes = Field(8 * 1024**3, description="size of GRNS_EVT")
    nats_dlq_max_bytes: Bytes = Field(4 * 1024**3, description="size of GRNS_DLQ")
    nats_max_consumers: int = Field(20_000, gt=0, description="durables that one stream may have")
    nats_startup_seconds: Seconds = Field(
        30.0, description="how long a service waits for the broker at its start"
    )

    workspace: str = Field(
        subjects.DEFAULT_WORKSPACE, description="the workspace that this worker or client serves"
    )

    lease_seconds: float = Field(15.0, ge=1, le=86_400, description="how long a claim lasts unless renewed")
    concurrency: int = Field(10, ge=1, le=100_000, description="handlers that a worker runs at a time")
    shutdown_grace_seconds: float = Field(
        30.0, ge=0, description="how long running tasks may go on after SIGTERM"
    )
    claim_batch: int = Field(
        100, ge=1, le=1000, description="tasks that one statement claims or finishes at most"
    )
    poll_after_seconds: Seconds = Field(
        2.0, description="silence of the broker after which a worker asks Postgres"
    )
    poll_max_seconds: Seconds = Field(10.0, description="longest pause between two such questions")
    poll_busy_age_seconds: Seconds = Field(
        60.0, description="a busy worker asks for tasks queued longer than this"
    )

    reap_seconds: Seconds | None = Field(None, description="reaper's tick; min(2, lease / 5) where unset")
    promote_seconds: Seconds = Field(1.0, description="retry scheduler's tick")
    operation_seconds: Seconds = Field(1.0, description="operation runner's tick while nothing is due")
    relay_busy_seconds: Seconds = Field(0.1, description="relay's poll while there is something to do")
    relay_idle_seconds: Seconds = Field(0.3, description="relay's poll otherwise")
    relay_window: int = Field(
        1000, ge=1, le=100_000, description="messages of the relay that await the broker's answer"
    )
    relay_lease_seconds: Seconds = Field(2.0, description="how long a relay leads without renewing")
    relay_replay_seconds: Seconds = Field(
        3600.0, description="how far back from the last ones events are replayed to a broker that lost them"
    )
    count_seconds: Seconds = Field(0.5, description="counter's tick")
    janitor_seconds: Seconds = Field(10.0, description="janitor's tick")
    request_window: int = Field(
        1000,
        ge=1,
        le=100_000,
        description="requests that a request desk takes in before it has answered others",
    )

    log_retention_days: Days = Field(30.0, description="how long events stay in the log")
    task_retention_days: Days = Field(30.0, description="how long succeeded and cancelled tasks stay")
    dead_retention_days: Days = Field(
        90.0, description="how long dead and failed tasks stay, and rejected messages once they are closed"
    )
    rejected_max_messages: int = Field(
        10_000, ge=1, description="open rejected messages that a workspace keeps; the oldest ones are deleted"
    )
    rejected_max_bytes: int = Field(
        256 * 1024**2,
        ge=16 * 1024**2,
        description="size of the open rejected messages that a workspace keeps",
    )
    minutes_retention_days: Days = Field(
        7.0, description="how long it is known what happened in which minute"
    )
    processed_retention_days: Days | None = Field(
        None, description="how long handled message ids are remembered; as long as the log where unset"
    )
    log_partition_rows: int = Field(
        2_000_000, ge=1000, description="rows of one partition of the log, at least"
    )
    inspect_seconds: Seconds = Field(
        86_400.0, description="how often the janitor holds all tasks against the log"
    )
    patience_seconds: Seconds = Field(
        300.0, description="how long what is due may wait before it counts as stuck"
    )
    unserved_seconds: Seconds = Field(
        3600.0, description="age at which a command that nobody serves is a dead letter"
    )

    webhook_seconds: Seconds = Field(0.5, description="webhook sender's tick")
    webhook_window: int = Field(
        50, ge=1, le=1000, description="deliveries that one webhook sender has under way"
    )
    webhook_timeout_seconds: Seconds = Field(15.0, description="how long a webhook may take to answer")
    webhook_attempts: int = Field(11, ge=1, le=100, description="how often a delivery is attempted")
    webhook_failing_days: Days = Field(
        5.0, description="how long nothing may be delivered to a webhook until it is disabled"
    )
    webhook_most_pending: int = Field(
        100_000, ge=1, le=10_000_000, description="deliveries that may wait until a webhook is disabled"
    )
    webhook_retention_days: Days = Field(30.0, description="how long it is known what was sent to webhooks")
    webhook_allow_http: bool = Field(False, description="let URLs of webhooks begin with http://")
    webhook_allow_networks: str = Field(
        "", description="networks that webhooks may be in besides public ones, as 10.0.0.0/8, by commas"
    )
    webhook_ca_file: Path | None = Field(
        None, description="certificates that webhooks may show besides those that the system believes"
    )

    payload_max_bytes: Bytes = Field(
        256 * 1024, description="largest payload of a task; `grns db upgrade` sets it for SQL"
    )
    result_max_bytes: Bytes = Field(256 * 1024, description="largest result of a task")
    envelope_max_bytes: Bytes = Field(512 * 1024, description="largest message")

    api_host: str = Field("127.0.0.1", description="address of the HTTP API")
    api_port: int = Field(8080, ge=0, le=65535, description="port of the HTTP API; 0: a free one")
    agent_lease_seconds: float = Field(
        60.0, ge=1, le=86_400, description="how long an agent over HTTP has a task unless it renews"
    )
    agent_wait_seconds: float = Field(
        60.0, gt=0, le=300, description="how long an agent over HTTP may wait for a task at a time"
    )
    agent_nudge_hosts: str = Field(
        "",
        description="hosts to whose URLs agents may ask to be nudged, by commas: a name, or name:port",
    )
    web_secret: SecretStr | None = Field(
        None,
        description="what the dashboard's sessions are signed with, 32 letters or digits at least, the same"
        " for all that serve it; unset: one of each process, and its end is theirs",
    )
    metrics_port: int | None = Field(None, ge=0, le=65535, description="Prometheus' port; unset: none")
    metrics_host: str = Field("127.0.0.1", description="address of the Prometheus endpoint")
    otlp_endpoint: SecretStr | None = Field(None, description="URL of an OTLP/HTTP collector of traces")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="least severe lines shown"
    )
    log_format: Literal["auto", "json", "console"] = Field(
        "auto", description="auto: console on a terminal, else JSON"
    )
    loop: Literal["auto", "asyncio"] = Field("auto", description="auto: uvloop where it can be imported")

    @field_validator("workspace")
    @classmethod
    def _workspace_is_a_token(cls, value: str) -> str:
        return subjects.token(value, name="workspace")

    @field_validator("agent_nudge_hosts")
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

    @field_validator("web_secret")
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
        return self.reap_seconds or min(2.0, self.lease_seconds / 5)

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
