"""Where settings come from: secret files, `grns.toml`, and what `grns dev` announces."""

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
# Written by `grns dev` while it runs, so that a second terminal finds the servers.
ANNOUNCED = Path(".grns/dev.toml")


class SecretFiles(PydanticBaseSettingsSource):
    """Reads `GRNS_<NAME>FILE`: the setting's value is that file's content."""

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
        found = (
            (name, self.get_field_value(field, name)[0])
            for name, field in self.settings_cls.model_fields.items()
        )
        return {name: value for name, value in found if value is not None}


class TomlFile(TomlConfigSettingsSource):
    """Reads one file; what it says wrong is told with its name."""

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
    """Return the files to read, the nearest first: of each name, the first one found upwards."""
    found = [(depth, path) for name in (FILE, ANNOUNCED) for depth, path in _nearest(name)]
    return [path for _, path in sorted(found, key=lambda one: one[0])]


def announced() -> Path | None:
    """Return the file in which the nearest `grns dev`, here or above, says where its servers are."""
    return next((path for _, path in _nearest(ANNOUNCED)), None)


def _nearest(name: Path) -> Iterator[tuple[int, Path]]:
    """Yield the first such file upwards, if there is one, and how far up it is."""
    try:
        here = Path.cwd()
    except OSError:  # a directory that has been deleted has no files, and is below nothing
        return
    if is_trusted(name):  # as a relative path, which is how its reader is told of it
        yield 0, name
        return
    for depth, directory in enumerate(here.parents, 1):
        if is_trusted(directory / name):
            yield depth, directory / name
            return


def is_trusted(path: Path) -> bool:
    """Tell whether the file exists and only this user or root can have written it.

    Any user may put a file into a shared directory, such as /tmp, and so name the servers that get our tasks.
    """
    try:
        facts = path.stat()
    except OSError:
        return False
    return (
        stat.S_ISREG(facts.st_mode) and facts.st_uid in (os.getuid(), 0) and not facts.st_mode & stat.S_IWOTH
    )


def with_hint(sentence: str, path: Path) -> SettingsError:
    """Return the error with the advice to edit the file."""
    error = SettingsError(sentence)
    error.add_note(f"edit {path}")
    return error
