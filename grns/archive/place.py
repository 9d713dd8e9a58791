"""Where archives are: a directory, or a bucket of an object store."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from grns.errors import NotFoundError, SettingsError, UnavailableError

SCHEMES = ("s3", "gs", "az")
_PART = ".part"
_ANSWER_SECONDS = 50


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

    def sync(self, folder: str) -> None:
        """Have all files of a folder that `names` shows survive a power cut."""


def open_place(url: str) -> ArchivePlace:
    """Return the place that a setting names: a directory, or such as `s3://bucket/prefix`.

    Raises:
        SettingsError: it is neither; or the object store needs `pip install 'grns[s3]'`.

    Example:
        place = open_place("/var/lib/grns/archive")
    """
    scheme, is_url, _ = url.partition("://")
    if is_url and scheme in SCHEMES:
        return BucketPlace(url)
    path = Path(url)
    if is_url or not path.is_absolute():
        raise SettingsError(
            f"GRNS_ARCHIVE={url} is neither the absolute path of a directory nor {', '.join(SCHEMES)}://…"
        )
    if not path.is_dir():
        raise SettingsError(
            f"GRNS_ARCHIVE={url}: the directory does not exist; create it, or mount its volume"
        )
    return DirectoryPlace(path)


class DirectoryPlace:
    """A directory, which all janitors share."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def write(self, name: str, content: bytes) -> None:
        """Keep a file: it gets its name once it is on disk."""
        path = self._root / name
        folders = [folder for folder in path.parents if folder.is_relative_to(self._root)]  # up to the root
        beside = path.with_name(f"{path.name}.{secrets.token_hex(4)}{_PART}")
        try:
            for folder in folders[-2::-1]:  # not the root: where it is gone, its disk is not mounted
                folder.mkdir(exist_ok=True)
            try:
                with beside.open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                beside.replace(path)
            finally:
                beside.unlink(missing_ok=True)
            for folder in folders:
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
            os.listdir(self._root)  # what is missing or may not be read is not empty
            found = [path for path in (self._root / folder).rglob("*") if path.is_file()]
        except OSError as error:
            raise UnavailableError(f"cannot read the archive: {error}") from error
        return sorted(path.relative_to(self._root).as_posix() for path in found if path.suffix != _PART)

    def sync(self, folder: str) -> None:
        """Have the names in a folder, and its own, survive a power cut."""
        try:
            if (path := self._root / folder).is_dir():
                for each in (path, *path.parents):
                    if each.is_relative_to(self._root):
                        _keep_entries(each)
        except OSError as error:
            raise UnavailableError(f"cannot write the archive: {error}") from error


class BucketPlace:
    """A bucket of an object store. Credentials, region and endpoint are those of the environment (AWS_…)."""

    def __init__(self, url: str) -> None:
        try:
            import obstore
        except ModuleNotFoundError as error:
            raise SettingsError(f"GRNS_ARCHIVE={url} needs obstore: pip install 'grns[s3]'") from error
        self._obstore: Any = obstore
        self._errors: tuple[type[Exception], ...] = (obstore.exceptions.BaseError, OSError, ValueError)
        try:
            stores: Any = obstore.store
            self._store = stores.from_url(
                url,
                client_options={
                    "connect_timeout": "5s",
                    "timeout": f"{_ANSWER_SECONDS}s",
                    "allow_http": os.environ.get("AWS_ALLOW_HTTP", "false"),
                },
                retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=_ANSWER_SECONDS)},
            )
        except self._errors as error:
            raise SettingsError(f"GRNS_ARCHIVE={url}: {_first_line(error)}") from error

    def write(self, name: str, content: bytes) -> None:
        """Keep a file: an object store keeps it whole, or not at all."""
        try:
            self._obstore.put(self._store, name, content, max_concurrency=2)
        except self._errors as error:
            raise UnavailableError(f"cannot write the archive {name}: {_first_line(error)}") from error

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        try:
            return bytes(self._obstore.get(self._store, name).bytes())
        except (FileNotFoundError, self._obstore.exceptions.NotFoundError) as error:
            raise NotFoundError(f"the archive has no {name}") from error
        except self._errors as error:
            raise UnavailableError(f"cannot read the archive: {_first_line(error)}") from error

    def names(self, folder: str) -> list[str]:
        """Return the names of all files below."""
        try:
            parts: Iterable[list[dict[str, Any]]] = self._obstore.list(self._store, prefix=folder)
            return sorted(one["path"] for part in parts for one in part)
        except self._errors as error:
            raise UnavailableError(f"cannot read the archive: {_first_line(error)}") from error

    def sync(self, folder: str) -> None:
        """Do nothing: what an object store shows, it keeps."""


def _keep_entries(folder: Path) -> None:
    """Have the names of files in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
