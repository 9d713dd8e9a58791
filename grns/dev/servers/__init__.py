"""Real Postgres and NATS servers on this machine, for tests, `grns dev` and benchmarks.

>>> with LocalStack(Path(".grns")) as stack:  # doctest: +SKIP
...     connection = await asyncpg.connect(stack.postgres.url)
...     client = await nats.connect(stack.nats.url)
"""

from grns.dev.servers.nats import LocalNats
from grns.dev.servers.postgres import LocalPostgres
from grns.dev.servers.stack import LocalStack

__all__ = ["LocalNats", "LocalPostgres", "LocalStack"]
