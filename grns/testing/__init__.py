"""Test handlers and the code that submits tasks, without servers.

The pytest plugin has fixtures with real servers: `docs/testing.md`.
"""

from grns.testing.context import LocalContext, context, run
from grns.testing.eager import EagerClient, eager
from grns.testing.eager_sync import SyncEagerClient, eager_sync

__all__ = ["EagerClient", "LocalContext", "SyncEagerClient", "context", "eager", "eager_sync", "run"]
