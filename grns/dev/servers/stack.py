"""Both servers together, in a directory that only one program uses at a time."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from grns.dev.servers.nats import LocalNats
from grns.dev.servers.postgres import LocalPostgres
from grns.errors import InUseError


class LocalStack:
    """Run Postgres under `root`/postgres and NATS under `root`/nats, from `start` to `stop`.

    The ports are remembered in `root`/ports.json and used again while they are free, so URLs stay
    the same between runs. The keywords go to LocalPostgres (`bin_directory`, `settings`) and to
    LocalNats (`monitor`, `extra_config`).
    """

    def __init__(
        self,
        root: Path,
        *,
        bin_directory: Path | None = None,
        settings: Mapping[str, str] | None = None,
        monitor: bool = False,
        extra_config: str = "",
    ) -> None:
        self.root = root.absolute()
        self._lock: int | None = None  # the kernel releases it when this process ends
        ports = _read_ports(self._ports_file)
        self.postgres = LocalPostgres(
            self.root / "postgres",
            preferred_port=ports.get("postgres"),
            bin_directory=bin_directory,
            settings=settings,
        )
        self.nats = LocalNats(
            self.root / "nats",
            preferred_port=ports.get("nats"),
            monitor=monitor,
            extra_config=extra_config,
        )

    def start(self) -> None:
        """Start both servers side by side and return when both are ready; may be called again.

        Raises LocalServerError when one cannot start (the other is stopped then), InUse when another
        living program uses the same root.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        self._acquire()
        try:
            with ThreadPoolExecutor(2, thread_name_prefix="grns-local") as pool:
                starts = [pool.submit(server.start) for server in (self.postgres, self.nats)]
            for start in starts:
                start.result()
            self._remember_ports()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop NATS, then Postgres, and release the root; may be called again."""
        with ExitStack() as rest:
            rest.callback(self._release)
            rest.callback(self.postgres.stop)
            rest.callback(self.nats.stop)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _acquire(self) -> None:
        if self._lock is not None:
            return
        lock = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(lock, 20).decode().strip() or "unknown"
            os.close(lock)
            raise InUseError(str(self.root), holder) from None
        os.ftruncate(lock, 0)
        os.write(lock, f"{os.getpid()}\n".encode())
        self._lock = lock

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def _ports_file(self) -> Path:
        return self.root / "ports.json"

    def _remember_ports(self) -> None:
        ports = {"postgres": self.postgres.port, "nats": self.nats.port}
        draft = self._ports_file.with_suffix(".new")
        draft.write_text(json.dumps(ports) + "\n")
        draft.replace(self._ports_file)


def _read_ports(path: Path) -> dict[str, int]:
    try:
        ports = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(ports, dict):
        return {}
    return {name: port for name, port in ports.items() if isinstance(port, int)}
