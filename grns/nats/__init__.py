"""The NATS JetStream client, on the core of nats-py. Knows neither PostgreSQL nor tasks."""

from grns.nats.client import JetStream

__all__ = ["JetStream"]
