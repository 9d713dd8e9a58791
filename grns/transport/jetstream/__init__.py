"""NATS JetStream as a transport, on the core of nats-py."""

from grns.transport.jetstream.client import JetStream

__all__ = ["JetStream"]
