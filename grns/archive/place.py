"""Where archives are: a directory, or a bucket of an object store."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from grns.errors import NotFoundError, SettingsError, UnavailableError

SCHEMES = ("s3", "gs", "az")
_PART = ".part"
_ANSWER_SECONDS = 10


class ArchivePlace(Protocol):
    """Keeps files by name, such as `tasks/2026-11-29/one.jsonl.gz`. Its methods block: call them in a thread.

    Each raises `UnavailableError` where the place cannot be reached, is full, or refuses.
    """

    def write(self, name: str, content: bytes) -> None:
        """Keep a file, whole or not at all; when it returns, the file survives a power cut."""

    def read(self, name: str) -> bytes:
        """Return the content of a file; raises `NotFoundError`."""

    def names(self, folder: str) -> list[str]:
        """Return the names of all files in a folder and its folders, in order."""


def open_place(url: str) -> ArchivePlace:
    """Return the place that a setting names: a directory, or such as `s3://bucket/prefix`.

    Raises:
        SettingsError: it is neither; or the object store needs `pip install 'grns[s3]'`.

    Example:
        place = open_place("/var/lib/grns/archive")
    """
    scheme = urlsplit(url).scheme
    if not scheme:
        return DirectoryPlace(Path(url))
    if scheme not in SCHEMES:
        raise SettingsError(f"GRNS_ARCHIVE: {url} is neither a directory nor {', '.join(SCHEMES)}://…")
    return BucketPlace(url)


class DirectoryPlace:
    """A directory, which all janitors share."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def write(self, name: str, content: bytes) -> None:
        """Keep a file: it gets its name once it is on disk."""
        path = self._root / name
        beside = path.with_name(f"{path.name}.{secrets.token_hex(4)}{_PART}")
        try:
            missing = [folder for folder in (path.parent, *path.parents) if not folder.exists()]
            path.parent.mkdir(parents=True, exist_ok=True)
            with beside.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
            for folder in dict.fromkeys([path.parent, *(folder.parent for folder in missing)]):
                _keep_entries(folder)
        except OSError as error:
            raise UnavailableError(f"cannot write the archive {path}: {error}") from error

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError as error:
            raise NotFoundError(f"{self._root} has no {name}") from error
        except OSError as error:
            raise UnavailableError(f"cannot read the archive: {error}") from error

    def names(self, folder: str) -> list[str]:
        """Return the names of all files below."""
        try:
            found = [path for path in (self._root / folder).rglob("*") if path.is_file()]
        except OSError as error:
            raise UnavailableError(f"cannot read the archive: {error}") from error
        return sorted(path.relative_to(self._root).as_posix() for path in found if path.suffix != _PART)


class BucketPlace:
    """A bucket of an object store. Credentials, region and endpoint are those of the environment (AWS_…)."""

    def __init__(self, url: str) -> None:
        try:
            import obstore
        except ModuleNotFoundError as error:
            raise SettingsError(f"GRNS_ARCHIVE={url} needs obstore: pip install 'grns[s3]'") from error
        self._obstore: Any = obstore
        try:
            self._store: Any = obstore.store.from_url(
                url,
                client_options={"timeout": f"{_ANSWER_SECONDS}s"},
                retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=_ANSWER_SECONDS)},
            )
        except (ValueError, obstore.exceptions.BaseError) as error:
            raise SettingsError(f"GRNS_ARCHIVE={url}: {_first_line(error)}") from error

    def write(self, name: str, content: bytes) -> None:
        """Keep a file: an object store keeps it whole, or not at all."""
        try:
            self._obstore.put(self._store, name, content)
        except self._obstore.exceptions.BaseError as error:
            raise UnavailableError(f"cannot write the archive {name}: {_first_line(error)}") from error

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        try:
            return bytes(self._obstore.get(self._store, name).bytes())
        except (FileNotFoundError, self._obstore.exceptions.NotFoundError) as error:
            raise NotFoundError(f"the archive has no {name}") from error
        except self._obstore.exceptions.BaseError as error:
            raise UnavailableError(f"cannot read the archive: {_first_line(error)}") from error

    def names(self, folder: str) -> list[str]:
        """Return the names of all files below."""
        try:
            parts: Iterable[list[dict[str, Any]]] = self._obstore.list(self._store, prefix=folder)
            return sorted(one["path"] for part in parts for one in part)
        except self._obstore.exceptions.BaseError as error:
            raise UnavailableError(f"cannot read the archive: {_first_line(error)}") from error


def _keep_entries(folder: Path) -> None:
    """Have the names of files in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
