"""Test handlers and the code that submits tasks, without servers.

The pytest plugin (`grns.testing.plugin`) has fixtures with real servers.
"""

from grns.testing.context import LocalContext, context, run
from grns.testing.eager import EagerClient, eager

__all__ = ["EagerClient", "LocalContext", "context", "eager", "run"]
