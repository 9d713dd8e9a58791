"""A Postgres server on this machine."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from pathlib import Path

from grns.dev.servers.cluster import DATABASE, OWNER, PASSWORDS, SUPERUSER, Installation, create_cluster
from grns.dev.servers.identity import choose, postgres_directory
from grns.dev.servers.port import HOST, postgres_serves
from grns.dev.servers.process import Process
from grns.dev.servers.server import Server
from grns.errors import LocalServerError

# For steady throughput: with 1 GB, the default, checkpoints of a busy queue follow each other.
THROUGHPUT = {
    "max_wal_size": "8GB",
    "checkpoint_timeout": "15min",
    "wal_compression": "on",
    "shared_buffers": "256MB",
}
_SETTINGS = {
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "dynamic_shared_memory_type": "mmap",  # a server that is killed leaves nothing outside its directory
}


class LocalPostgres(Server):
    """Run Postgres on 127.0.0.1 with its cluster and log under the directory `data`.

    `port` is fixed; without it a free one is found at the first start (`preferred_port`, when it is
    free) and kept for later starts. `bin_directory` holds `postgres` and `initdb`; by default those
    of the extra `grns[dev]`, then the system's. `settings` are server settings by name and win over
    ours. Connections need a random password of this cluster, which `url` and `admin_url` contain. `kill` ends
    the postmaster; its backends then end too.
    """

    _stop_signal = signal.SIGINT
    # An earlier server on the same data may need a moment to end: its backends hold the shared memory, or the
    # watchdog is about to kill the postmaster.
    _passing = ("pre-existing shared memory block", 'lock file "postmaster.pid" already exists')

    def __init__(
        self,
        data: Path,
        *,
        port: int | None = None,
        preferred_port: int | None = None,
        bin_directory: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(data, port=port, preferred_port=preferred_port)
        self.log = self.data / "postgres.log"
        self._cluster = self.data / "cluster"
        self._pid_file = self._cluster / "postmaster.pid"
        self._bin_directory = bin_directory
        self._settings = _SETTINGS | dict(settings or {})
        self._installation: Installation | None = None

    @property
    def url(self) -> str:
        """Return the URL of the database `grns`, with its owner's password; the owner is not a superuser.

        Raises LocalServerError before the first start.
        """
        return self._url(OWNER, DATABASE)

    @property
    def admin_url(self) -> str:
        """Return the URL of the database `postgres`, with the superuser's password."""
        return self._url(SUPERUSER, "postgres")

    def _url(self, role: str, database: str) -> str:
        try:
            password = json.loads((self._cluster / PASSWORDS).read_text())[role]
        except FileNotFoundError as error:
            raise LocalServerError("the server has no password before its first start") from error
        return f"postgresql://{role}:{password}@{HOST}:{self.port}/{database}"

    def _prepare(self) -> None:
        installation = self._found()
        if not self._cluster.is_dir():
            create_cluster(installation, self._cluster, log=self.log)
        elif not (self._cluster / PASSWORDS).is_file():
            raise LocalServerError(
                f"the cluster in {self._cluster} has no passwords: an earlier version of grns created it; "
                "move it away to start with a new one"
            )
        installation.identity.own(self._cluster)

    def _start_on(self, port: int) -> None:
        installation = self._found()
        process = Process(
            [
                installation.program("postgres"),
                *("-D", str(self._cluster), "-h", HOST, "-p", str(port), "-k", ""),
                *(f"--{name}={value}" for name, value in self._settings.items()),
            ],
            log=self.log,
            identity=installation.identity,
            environment=self._without_stale_pid(),
        )
        self._launch(
            process,
            lambda: postgres_serves(
                port, user=OWNER, database=DATABASE, pid_file=self._pid_file, pid=process.pid
            ),
        )

    def _found(self) -> Installation:
        if self._installation is None:
            programs = postgres_directory(self._bin_directory)
            self._installation = Installation(bin_directory=programs, identity=choose(programs, self.data))
        return self._installation

    def _without_stale_pid(self) -> dict[str, str]:
        """Return an environment in which Postgres ignores a pid file of a process that is not Postgres.

        After a crash, another program can get the process id, and Postgres would take it for a live server.
        It does not if the process is called its grandparent. Unlike deleting the file, this keeps the check
        for shared memory that orphaned backends use.
        """
        try:
            pid = self._pid_file.read_text().split(maxsplit=1)[0]
            command = Path(f"/proc/{int(pid)}/cmdline").read_bytes()
        except (OSError, ValueError, IndexError):
            return {}
        return {} if str(self._cluster).encode() in command else {"PG_GRANDPARENT_PID": pid}
