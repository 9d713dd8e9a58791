"""The page of all settings, from the settings themselves."""

from __future__ import annotations

from typing import Any

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from grns.settings import PREFIX, Settings
from tests.site.text import GENERATED, code, table

_INTRODUCTION = """
Sources, the first wins: a command-line flag, `GRNS_*` in the environment, `GRNS_*_FILE` (the value is the
content of that file: for secrets), `grns.toml` in this directory or above (`lease_seconds = 30`), and what
`grns dev` announces. `grns admin config show --origin` shows each value with its source. Durations are in
seconds, sizes in bytes. An empty variable counts as unset. An unknown `GRNS_*` variable logs a warning.

"""


def page() -> str:
    """Return the page."""
    rows = [_row(name, field) for name, field in Settings.model_fields.items()]
    return f"# Settings\n\n{GENERATED}{_INTRODUCTION}" + table(("variable", "default", "means"), rows)


def _row(name: str, field: FieldInfo) -> tuple[str, str, str]:
    said = field.description or ""
    return code(PREFIX + name.upper()), _default(field.default), said + _bounds(field)


def _default(value: Any) -> str:
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if value is None or value == "":
        return ""
    return code(str(value).lower() if isinstance(value, bool) else str(value))


def _bounds(field: FieldInfo) -> str:
    """Say between what a number has to be, or which words there are."""
    found = {type(one).__name__: one for one in field.metadata}
    least = getattr(found.get("Ge"), "ge", None)
    most = getattr(found.get("Le"), "le", None)
    if least is not None and most is not None and (least, most) != (0, 65535):
        return f" ({least:,} to {most:,})"
    if least:
        return f" (at least {least:,})"
    words = [str(one) for one in getattr(field.annotation, "__args__", ()) if isinstance(one, str | int)]
    return f" ({', '.join(words)})" if words else ""
