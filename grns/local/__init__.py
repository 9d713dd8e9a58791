"""Run real Postgres and NATS servers beside the program: for tests, `grns dev` and benchmarks.

>>> with LocalStack(Path(".grns")) as stack:  # doctest: +SKIP
...     connection = await asyncpg.connect(stack.postgres.url)
...     client = await nats.connect(stack.nats.url)
"""

from grns.local.nats import LocalNats
from grns.local.postgres import LocalPostgres
from grns.local.stack import LocalStack

__all__ = ["LocalNats", "LocalPostgres", "LocalStack"]
