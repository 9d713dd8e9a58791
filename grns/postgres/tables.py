"""SQLAlchemy Core tables for dynamic reads. The migrations create them."""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    TIMESTAMP,
    BigInteger,
    Column,
    Double,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    Text,
)
from sqlalchemy.dialects.postgresql import BYTEA, JSONB, UUID

metadata = MetaData(schema="grns")

_INSTANT = TIMESTAMP(timezone=True)

tasks = Table(
    "tasks",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workspace", Text),
    Column("task_type", Text),
    Column("agent_type", Text),
    Column("priority", SmallInteger),
    Column("status", Text),
    Column("payload", JSONB),
    Column("owner_agent_id", Text),
    Column("lease_id", UUID),
    Column("lease_until", _INSTANT),
    Column("attempt", Integer),
    Column("max_attempts", Integer),
    Column("attempt_limit", Integer),
    Column("uncounted_attempts", Integer),
    Column("released", Integer),
    Column("next_attempt_at", _INSTANT),
    Column("waits_for", Text),
    Column("limits", ARRAY(Text)),
    Column("last_error", JSONB),
    Column("fingerprint", Text),
    Column("result", JSONB),
    Column("result_ref", Text),
    Column("idempotency_key", Text),
    Column("trace_id", Text),
    Column("causation_id", UUID),
    Column("last_message_id", UUID),
    Column("queued_reason", Text),
    Column("cancel_requested_at", _INSTANT),
    Column("cancel_reason", Text),
    Column("discarded_at", _INSTANT),
    Column("discarded_by", Text),
    Column("version", Integer),
    Column("created_at", _INSTANT),
    Column("queued_at", _INSTANT),
    Column("started_at", _INSTANT),
    Column("finished_at", _INSTANT),
    Column("updated_at", _INSTANT),
)

labels = Table(
    "labels",
    metadata,
    Column("task_id", Text, primary_key=True),
    Column("workspace", Text),
    Column("title", Text),
    Column("tags", ARRAY(Text)),
    Column("created_by", Text),
)

tags = Table("tags", metadata, Column("workspace", Text), Column("tag", Text), Column("task_id", Text))

texts = Table(
    "texts",
    metadata,
    Column("owner", Text, primary_key=True),
    Column("workspace", Text),
    Column("words", ARRAY(Text)),
)

owners_of_words = Table(
    "words", metadata, Column("workspace", Text), Column("word", Text), Column("owner", Text)
)

needs = Table("needs", metadata, Column("task_id", Text), Column("needs", Text))

progress = Table(
    "progress",
    metadata,
    Column("task_id", Text, primary_key=True),
    Column("attempt", Integer),
    Column("percent", Double),
    Column("step", Text),
)

dead_letters = Table(
    "dead_letters",
    metadata,
    Column("id", UUID, primary_key=True),
    Column("workspace", Text),
    Column("reason", Text),
    Column("detail", Text),
    Column("subject", Text),
    Column("stream", Text),
    Column("stream_seq", BigInteger),
    Column("delivery_count", Integer),
    Column("headers", JSONB),
    Column("body", BYTEA),
    Column("body_sha256", Text),
    Column("state", Text),
    Column("created_at", _INSTANT),
    Column("updated_at", _INSTANT),
)
