"""Sources of settings: secret files, `grns.toml`, and the file of a running `grns dev`."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, TomlConfigSettingsSource

from grns.errors import SettingsError

PREFIX = "GRNS_"
FILE = Path("grns.toml")
# `grns dev` writes it while it runs, so that commands in other terminals find the servers.
ANNOUNCED = Path(".grns/dev.toml")


class SecretFiles(PydanticBaseSettingsSource):
    """Reads `GRNS_<NAME>_FILE`: the value of the setting is the content of that file."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        path = os.environ.get(f"{PREFIX}{field_name.upper()}_FILE")
        if not path:
            return None, field_name, False
        try:
            return Path(path).read_text(encoding="utf-8").strip(), field_name, False
        except OSError as error:
            raise SettingsError(
                f"{PREFIX}{field_name.upper()}_FILE: cannot read {path}: {error.strerror}"
            ) from error

    def __call__(self) -> dict[str, Any]:
        fields = self.settings_cls.model_fields.items()
        values = ((name, self.get_field_value(field, name)[0]) for name, field in fields)
        return {name: value for name, value in values if value is not None}


class TomlFile(TomlConfigSettingsSource):
    """Reads one file; its errors name it."""

    def __init__(self, settings_cls: type[BaseSettings], path: Path) -> None:
        try:
            super().__init__(settings_cls, toml_file=path)
        except OSError as error:
            raise with_hint(f"{path}: {error.strerror}", path) from error
        except ValueError as error:
            raise with_hint(f"{path}: {error}", path) from error
        unknown = sorted(self.toml_data.keys() - settings_cls.model_fields.keys())
        if unknown:
            raise with_hint(f"{path}: there is no setting {unknown[0][:100]!r}", path)


def files() -> list[Path]:
    """Return the files to read, the nearest first: of each name, the nearest file."""
    nearest = [entry for name in (FILE, ANNOUNCED) for entry in _nearest(name)]
    return [path for _, path in sorted(nearest, key=lambda entry: entry[0])]


def announced() -> Path | None:
    """Return the file of the nearest `grns dev`, in this directory or above, with the URLs of its servers."""
    return next((path for _, path in _nearest(ANNOUNCED)), None)


def _nearest(name: Path) -> Iterator[tuple[int, Path]]:
    """Yield the nearest file of a name, in this directory or above, and how many directories up it is."""
    try:
        here = Path.cwd()
    except OSError:  # the directory was deleted
        return
    if is_trusted(name):  # a relative path, for messages
        yield 0, name
        return
    for depth, directory in enumerate(here.parents, 1):
        if is_trusted(directory / name):
            yield depth, directory / name
            return


def is_trusted(path: Path) -> bool:
    """Return whether the file exists and only this user or root can have written it.

    Any user may put a file into a shared directory such as /tmp, and so name the servers that get the tasks.
    """
    try:
        info = path.stat()
    except OSError:
        return False
    return stat.S_ISREG(info.st_mode) and info.st_uid in (os.getuid(), 0) and not info.st_mode & stat.S_IWOTH


def with_hint(sentence: str, path: Path) -> SettingsError:
    """Return an error that advises to edit the file."""
    error = SettingsError(sentence)
    error.add_note(f"edit {path}")
    return error
