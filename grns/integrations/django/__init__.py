"""Django: submit in the transaction of the request, and `manage.py grns_worker`.

```python
# settings.py
INSTALLED_APPS = [..., "grns.integrations.django"]
GRNS_POOL = "shop.tasks:pool"

# views.py
from grns.integrations.django import submit

with transaction.atomic():
    order.save()
    submit(send_receipt, {"order": order.id})
```

grns' tables live in the database `default`, in a schema of their own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode

from django.conf import settings
from django.core.signals import setting_changed
from django.db import DEFAULT_DB_ALIAS, close_old_connections, connections
from django.dispatch import receiver

from grns.cli.worker import load_pool
from grns.errors import UnusableError
from grns.sync import Client, TaskHandle
from grns.testing.eager_sync import SyncEagerClient

__all__ = ["client", "database_url", "submit"]


def client() -> Client:
    """Return the client of this process. It connects when it is first used, to the database `default`.

    With `GRNS_EAGER = True` in the settings, for tests, it is that of `grns.testing.eager_sync`: tasks run in
    place, and plain handlers see the rows of the open transaction.

    Example:
        result = client().handle(order.task_id).result(timeout=5)
    """
    return _eager_client() if getattr(settings, "GRNS_EAGER", False) else _client()


def options() -> dict[str, Any]:
    """Return the arguments of the client: `GRNS_OPTIONS`, and the URL of the database `default`."""
    return {"database_url": database_url(), **getattr(settings, "GRNS_OPTIONS", {})}


@functools.cache
def _client() -> Client:
    return Client(**options())


@functools.cache
def _eager_client() -> SyncEagerClient:
    target = getattr(settings, "GRNS_POOL", None)
    return SyncEagerClient(*([load_pool(target)] if target else []))


@receiver(setting_changed)  # type: ignore[untyped-decorator]
def _begin_anew(*, setting: str, **_: Any) -> None:
    """Forget the clients of other settings, and with `GRNS_EAGER` the tasks of the test before."""
    if setting.startswith("GRNS_"):
        _eager_client.cache_clear()


def submit(
    task: Any, payload: Any = None, *, using: str = DEFAULT_DB_ALIAS, **options: Any
) -> TaskHandle[Any]:
    """Create a task on Django's connection: within `transaction.atomic()` it exists if that commits.

    Args:
        task, payload, options: as in `grns.sync.Client.submit`.
        using: alias of the database.

    Raises:
        UnusableError: the database has no schema `grns`.
    """
    connection = connections[using]
    connection.ensure_connection()
    try:
        return client().submit(task, payload, connection=connection, **options)
    except UnusableError as error:
        hint = (
            "; in the settings of tests, GRNS_MIGRATE = True creates it, and GRNS_EAGER = True does without"
        )
        raise UnusableError(f"{error}{hint}") from error


def database_url(using: str = DEFAULT_DB_ALIAS) -> str:
    """Return the URL of a database of `settings.DATABASES`."""
    place = connections[using].settings_dict
    user = quote(str(place["USER"] or ""), safe="")
    password = f":{quote(str(place['PASSWORD']), safe='')}" if place["PASSWORD"] else ""
    host, port = str(place["HOST"] or "localhost"), f":{place['PORT']}" if place["PORT"] else ""
    options = {}
    if host.startswith("/"):  # a directory of sockets
        host, options = "", {"host": host}
    if mode := place.get("OPTIONS", {}).get("sslmode"):
        options["sslmode"] = mode
    query = f"?{urlencode(options)}" if options else ""
    return (
        f"postgresql://{user}{password}{'@' if user else ''}{host}{port}/{quote(str(place['NAME']))}{query}"
    )


def with_connections(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that closes old connections of its thread, as Django does around a request."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        close_old_connections()
        try:
            return function(*arguments, **named)
        finally:
            close_old_connections()

    return call
