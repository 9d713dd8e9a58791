"""Where files are kept: a directory, or a bucket of an object store."""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

from grns.errors import GrnsError, NotFoundError, SettingsError, UnavailableError

SCHEMES = ("s3", "gs", "az")
_PART = ".part"
_ANSWER_SECONDS = 50
_CALL_SECONDS = 60.0
_PATIENCE_SECONDS = 5.0
_LOOK_SECONDS = 0.02
Given = ParamSpec("Given")
Result = TypeVar("Result")


class FilePlace(Protocol):
    """Keeps files by name, such as `tasks/2026-11-29/one.jsonl.gz`. Its methods block: call them in a thread.

    Each raises `UnavailableError` where the place cannot be reached, is full, or refuses.
    """

    def write(self, name: str, content: bytes) -> None:
        """Keep a file, whole or not at all; when it returns, the file survives a power cut."""

    def read(self, name: str) -> bytes:
        """Return the content of a file; raises `NotFoundError`."""

    def read_part(self, name: str, start: int, length: int) -> bytes:
        """Return up to so many bytes of a file, from one on that it has; raises `NotFoundError`."""

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""

    def names(self, folder: str) -> list[str]:
        """Return the names of all files in a folder and its folders, in order."""

    def sync(self, folder: str) -> None:
        """Have all files of a folder that `names` shows survive a power cut."""


def open_place(url: str, setting: str, *, must_exist: bool = True) -> FilePlace:
    """Return the place that a setting says: a directory, or such as `s3://bucket/prefix`.

    Raises:
        SettingsError: it is neither; or the object store needs `pip install 'grns[s3]'`.

    Example:
        place = open_place("/var/lib/grns/archive", "GRNS_ARCHIVE")
    """
    scheme, is_url, _ = url.partition("://")
    if is_url and scheme in SCHEMES:
        return BucketPlace(url, setting)
    path = Path(url)
    if is_url or not path.is_absolute():
        raise SettingsError(
            f"{setting}={url} is neither the absolute path of a directory nor {', '.join(SCHEMES)}://…"
        )
    if must_exist and not path.is_dir():
        raise SettingsError(f"{setting}={url}: the directory does not exist; create it, or mount its volume")
    return DirectoryPlace(path)


class DirectoryPlace:
    """A directory, which all processes that use it share."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def _path(self, name: str) -> Path:
        """Return where a file is. Raises UnavailableError for a name that leads out of the directory."""
        if name.startswith("/") or ".." in name.split("/"):
            raise UnavailableError(f"{ascii(name)[:200]} is not a valid file name")
        return self._root / name

    def write(self, name: str, content: bytes) -> None:
        """Keep a file: it gets its name once it is on disk."""
        path = self._path(name)
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
            raise UnavailableError(f"cannot write {path}: {error}") from error

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError as error:
            raise NotFoundError(f"{self._root} has no {name}") from error
        except OSError as error:
            raise UnavailableError(f"cannot read {self._root / name}: {error}") from error

    def read_part(self, name: str, start: int, length: int) -> bytes:
        """Return a part of a file."""
        try:
            with self._path(name).open("rb") as file:
                file.seek(start)
                return file.read(length)
        except FileNotFoundError as error:
            if not self._root.is_dir():  # what is not mounted has not lost it
                raise UnavailableError(f"cannot read {self._root / name}: {error}") from error
            raise NotFoundError(f"{self._root} has no {name}") from error
        except OSError as error:
            raise UnavailableError(f"cannot read {self._root / name}: {error}") from error

    def delete(self, name: str) -> None:
        """Delete a file."""
        try:
            os.listdir(self._root)  # what is not mounted has not lost it
            self._path(name).unlink(missing_ok=True)
        except OSError as error:
            raise UnavailableError(f"cannot delete {self._root / name}: {error}") from error

    def names(self, folder: str) -> list[str]:
        """Return the names of all files below."""
        try:
            os.listdir(self._root)  # what is missing or may not be read is not empty
            found = [path for path in (self._root / folder).rglob("*") if path.is_file()]
        except OSError as error:
            raise UnavailableError(f"cannot read {self._root}: {error}") from error
        return sorted(path.relative_to(self._root).as_posix() for path in found if path.suffix != _PART)

    def sync(self, folder: str) -> None:
        """Have the names in a folder, and its own, survive a power cut."""
        try:
            if (path := self._root / folder).is_dir():
                for each in (path, *path.parents):
                    if each.is_relative_to(self._root):
                        _keep_entries(each)
        except OSError as error:
            raise UnavailableError(f"cannot write {self._root}: {error}") from error


class BucketPlace:
    """A bucket of an object store. Credentials, region and endpoint are those of the environment (AWS_…)."""

    def __init__(self, url: str, setting: str) -> None:
        self._url = url
        try:
            import obstore
        except ModuleNotFoundError as error:
            raise SettingsError(f"{setting}={url} needs obstore: pip install 'grns[s3]'") from error
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
            raise SettingsError(f"{setting}={url}: {_first_line(error)}") from error

    def write(self, name: str, content: bytes) -> None:
        """Keep a file: an object store keeps it whole, or not at all."""
        try:
            self._obstore.put(self._store, name, content, max_concurrency=2)
        except self._errors as error:
            raise self._failed("write", name, error) from error

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        try:
            return bytes(self._obstore.get(self._store, name).bytes())
        except (FileNotFoundError, self._obstore.exceptions.NotFoundError) as error:
            raise NotFoundError(f"{self._url} has no {name}") from error
        except self._errors as error:
            raise self._failed("read", name, error) from error

    def read_part(self, name: str, start: int, length: int) -> bytes:
        """Return a part of a file."""
        try:
            return bytes(self._obstore.get_range(self._store, name, start=start, length=length))
        except (FileNotFoundError, self._obstore.exceptions.NotFoundError) as error:
            raise NotFoundError(f"{self._url} has no {name}") from error
        except self._errors as error:
            raise self._failed("read", name, error) from error

    def delete(self, name: str) -> None:
        """Delete a file."""
        try:
            self._obstore.delete(self._store, name)
        except (FileNotFoundError, self._obstore.exceptions.NotFoundError):
            return
        except self._errors as error:
            raise self._failed("delete", name, error) from error

    def names(self, folder: str) -> list[str]:
        """Return the names of all files below."""
        try:
            parts: Iterable[list[dict[str, Any]]] = self._obstore.list(self._store, prefix=folder)
            return sorted(one["path"] for part in parts for one in part)
        except self._errors as error:
            raise self._failed("read", folder, error) from error

    def sync(self, folder: str) -> None:
        """Do nothing: what an object store shows, it keeps."""

    def _failed(self, what: str, name: str, error: Exception) -> UnavailableError:
        return UnavailableError(f"cannot {what} {name} of {self._url}: {_first_line(error)}")


class PlaceCalls:
    """Calls what reads or writes a place, each call in a thread of its own. `name` is what it is in errors.

    A disk or network that hangs holds up nothing for ever: not the caller, nor threads of others, nor the end
    of the process. Up to `most` calls run at once, others wait for a few seconds. Once `most_late` calls that
    nothing waits for any more have not ended, others fail at once.
    """

    def __init__(self, name: str, *, most: int, most_late: int) -> None:
        self._name = name
        self._most = most
        self._most_late = most_late
        self._running: list[threading.Thread] = []
        self._late: list[threading.Thread] = []

    async def __call__(
        self, function: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
    ) -> Result:
        """Call a function, for a minute at most.

        Raises:
            UnavailableError: it took longer, failed, or too many earlier calls have not ended.
        """
        return await self.within(_CALL_SECONDS, function, *args, **kwargs)

    async def within(
        self, seconds: float, function: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
    ) -> Result:
        """Call a function that may take so many seconds. Raises UnavailableError."""
        await self._wait_for_turn()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Result] = loop.create_future()

        def call() -> None:
            try:
                settle = partial(self._settle, answer, function(*args, **kwargs), None)
            except Exception as error:
                settle = partial(self._settle, answer, None, error)
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(settle)

        thread = threading.Thread(target=call, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise UnavailableError(f"the {self._name} cannot be asked: {error}") from error
        self._running.append(thread)
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError as error:
            raise UnavailableError(f"the {self._name} did not answer within {seconds:g} s") from error
        finally:
            if not answer.done() or answer.cancelled():
                self._late.append(thread)

    async def _wait_for_turn(self) -> None:
        until = time.monotonic() + _PATIENCE_SECONDS
        while True:
            self._late = [thread for thread in self._late if thread.is_alive()]
            self._running = [thread for thread in self._running if thread.is_alive()]
            if len(self._late) >= self._most_late:
                raise UnavailableError(
                    f"the {self._name} does not answer: an earlier request still waits for it"
                )
            if len(self._running) < self._most:
                return
            if time.monotonic() > until:
                raise UnavailableError(f"too many requests wait for the {self._name}")
            await asyncio.sleep(_LOOK_SECONDS)

    def _settle(self, answer: asyncio.Future[Any], value: Any, error: Exception | None) -> None:
        if answer.done():  # it is not waited for any more
            return
        if error is None:
            answer.set_result(value)
        elif isinstance(error, GrnsError):
            answer.set_exception(error)
        else:
            answer.set_exception(
                UnavailableError(f"the {self._name} failed: {type(error).__name__}: {error}")
            )


def _keep_entries(folder: Path) -> None:
    """Have the names of files in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
