"""Settings: flag > environment (`GRNS_*`) > secret file (`GRNS_*FILE`) > `grns.toml` > default.

`grns.toml` and the file of a running `grns dev` are read from this directory or the nearest one above.
"""

from __future__ import annotations

import os
from difflib import get_close_matches
from typing import Any

from pydantic import SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from grns.errors import SettingsError
from grns.model.envelope import first_problem
from grns.settings.groups import (
    ApiSettings,
    ConnectionSettings,
    JanitorSettings,
    RelaySettings,
    SearchSettings,
    TelemetrySettings,
    WebhookSettings,
    WorkerSettings,
)
from grns.settings.sources import (
    ANNOUNCED,
    FILE,
    PREFIX,
    SecretFiles,
    TomlFile,
    announced,
    files,
    is_trusted,
    with_hint,
)

__all__ = ["PREFIX", "Settings", "announced", "files", "load", "misspelt", "reveal", "variables"]

_OTHER_VARIABLES = frozenset({"GRNS_DEBUG", "GRNS_DIGEST_ROOT", "GRNS_FAILPOINTS"})
_ALIKE = 0.85


# The order of the bases is the reverse of the order of the fields.
class Settings(
    TelemetrySettings,
    ApiSettings,
    WebhookSettings,
    JanitorSettings,
    SearchSettings,
    RelaySettings,
    WorkerSettings,
    ConnectionSettings,
    BaseSettings,
):
    """All settings of grns."""

    # A variable that is empty counts as unset: container files cannot leave one out.
    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, extra="ignore", frozen=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order the sources; the first that has a value wins."""
        read = [TomlFile(settings_cls, path) for path in files()]
        return (init_settings, env_settings, SecretFiles(settings_cls), *read)


def load(**flags: Any) -> Settings:
    """Return the settings; flags that are None do not count. Raises SettingsError with the wrong setting."""
    for name in flags.keys() - Settings.model_fields.keys():
        like = get_close_matches(name, Settings.model_fields, 1)
        raise SettingsError(f"{name}: not a setting" + (f": did you mean {like[0]}?" if like else ""))
    try:
        return Settings(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as error:
        raise _invalid(error, flags) from error
    except ValueError as error:  # a secret file that is not text
        raise SettingsError(f"cannot read the settings: {error}") from error


def _invalid(error: ValidationError, flags: dict[str, Any]) -> SettingsError:
    """Return the error of a value, with the place where it is set."""
    name, _, problem = first_problem(error).partition(": ")
    if flags.get(name) is not None:
        return SettingsError(f"{name}: {problem}")
    variable = f"{PREFIX}{name.upper()}"
    for place in (variable, f"{variable}_FILE"):
        if os.environ.get(place):
            invalid = SettingsError(f"{place}: {problem}")
            invalid.add_note(f"unset {place}")
            return invalid
    for path in files():
        if name in TomlFile(Settings, path).toml_data:
            return with_hint(f"{path}: {name}: {problem}", path)
    return SettingsError(f"{name}: {problem}")


def misspelt() -> list[str]:
    """Return a warning for each variable that resembles a setting and each file that is not read."""
    names = [f"{PREFIX}{name.upper()}" for name in Settings.model_fields]
    known = {*names, *(f"{name}_FILE" for name in names), *_OTHER_VARIABLES}
    warnings = [
        f"{name} is not read: it belongs to another user, or every user may write to it"
        for name in (FILE, ANNOUNCED)
        if name.is_file() and not is_trusted(name)
    ]
    return warnings + [
        f"{variable} is not a setting: did you mean {near[0]}?"
        for variable in sorted(os.environ)
        if variable.upper().startswith(PREFIX)
        and variable.upper() not in known
        and (near := get_close_matches(variable.upper(), sorted(known), n=1, cutoff=_ALIKE))
    ]


def reveal(settings: BaseSettings) -> dict[str, Any]:
    """Return all settings as JSON values, secrets included, for another process of grns."""
    values = settings.model_dump(mode="json")
    for name, value in settings:
        if isinstance(value, SecretStr):
            values[name] = value.get_secret_value()
    return values


def variables(settings: BaseSettings) -> dict[str, str]:
    """Return all settings as environment variables, secrets included, for a process that reads no others."""
    return {
        f"{PREFIX}{name.upper()}": "" if value is None else str(value)
        for name, value in reveal(settings).items()
    }
