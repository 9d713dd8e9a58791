"""The Django app: with `GRNS_MIGRATE`, `manage.py migrate` also upgrades the schema of grns."""

from __future__ import annotations

import asyncio
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models.signals import post_migrate

from grns.integrations.django import database_url
from grns.postgres import migrate


class GrnsConfig(AppConfig):  # type: ignore[misc]  # Django has no types of its own
    """The app `grns.integrations.django`."""

    name = "grns.integrations.django"
    label = "grns"

    def ready(self) -> None:
        """Check the database, and upgrade after Django's own migrations."""
        checks.register(_check_database)
        post_migrate.connect(_upgrade, sender=self)


def _check_database(**_: Any) -> list[checks.Error]:
    """Return an error where the database cannot have the tables of grns, and tasks are not eager."""
    engine = connections[DEFAULT_DB_ALIAS].vendor
    if engine == "postgresql" or getattr(settings, "GRNS_EAGER", False):
        return []
    wrong = f'grns needs PostgreSQL, and DATABASES["default"] is {engine}'
    return [checks.Error(wrong, hint='"ENGINE": "django.db.backends.postgresql"', id="grns.E001")]


def _upgrade(*, using: str, **_: Any) -> None:
    if getattr(settings, "GRNS_MIGRATE", False):
        asyncio.run(migrate.upgrade(database_url(using)))
