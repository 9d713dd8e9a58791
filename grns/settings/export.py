"""Settings handed to another process, secrets included."""

from __future__ import annotations

from typing import Any

from pydantic import SecretStr
from pydantic_settings import BaseSettings

from grns.settings.sources import PREFIX


def variables(settings: BaseSettings) -> dict[str, str]:
    """Return all settings as variables, secrets included: for a process that is to have no others."""
    return {
        f"{PREFIX}{name.upper()}": "" if value is None else str(value)
        for name, value in reveal(settings).items()
    }


def reveal(settings: BaseSettings) -> dict[str, Any]:
    """Return all settings as JSON values, secrets included: for handing them to a process of our own."""
    values = settings.model_dump(mode="json")
    for name, value in settings:
        if isinstance(value, SecretStr):
            values[name] = value.get_secret_value()
    return values
