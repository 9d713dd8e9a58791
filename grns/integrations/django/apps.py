"""The Django app: with `GRNS_MIGRATE`, `manage.py migrate` also upgrades the schema of grns."""

from __future__ import annotations

import asyncio
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.db.models.signals import post_migrate

from grns.integrations.django import database_url
from grns.postgres import migrate


class GrnsConfig(AppConfig):  # type: ignore[misc]  # Django has no types of its own
    """The app `grns.integrations.django`."""

    name = "grns.integrations.django"
    label = "grns"

    def ready(self) -> None:
        """Upgrade after Django's own migrations."""
        post_migrate.connect(_upgrade, sender=self)


def _upgrade(*, using: str, **_: Any) -> None:
    if getattr(settings, "GRNS_MIGRATE", False):
        asyncio.run(migrate.upgrade(database_url(using)))
