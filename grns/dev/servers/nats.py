"""A NATS server with JetStream on this machine."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
from pathlib import Path

from grns.dev.servers.identity import nats_server
from grns.dev.servers.port import HOST, free_port, nats_serves
from grns.dev.servers.process import Process
from grns.dev.servers.secret import kept_secret, write_private
from grns.dev.servers.server import Server
from grns.errors import LocalServerError


class LocalNats(Server):
    """Run nats-server on 127.0.0.1 with its configuration, store and log under the directory `data`.

    `port` is fixed; without it a free one is found at the first start (`preferred_port`, when it is
    free) and kept for later starts. With `monitor` its HTTP monitoring listens too. `extra_config`
    is appended to the configuration. Clients need a random token, which `url` contains and the file
    `token` under `data` keeps; with `has_token=False`, `extra_config` must authorize clients.
    `binary` is the server program; by default that of the extra `grns[dev]`, then the system's.
    """

    _stop_signal = signal.SIGTERM

    def __init__(
        self,
        data: Path,
        *,
        port: int | None = None,
        preferred_port: int | None = None,
        monitor: bool = False,
        extra_config: str = "",
        has_token: bool = True,
        binary: Path | None = None,
    ) -> None:
        super().__init__(data, port=port, preferred_port=preferred_port)
        self.log = self.data / "nats.log"
        self.store = self.data / "store"
        # Constant and unique: it excludes another program on our port.
        self.name = "grns-" + hashlib.sha256(str(self.data).encode()).hexdigest()[:12]
        self._monitor = monitor
        self._monitor_port: int | None = None
        self._extra_config = extra_config
        self._has_token = has_token
        self._binary = binary

    @property
    def url(self) -> str:
        """Return the URL for clients, with the token."""
        token = f"{self._token}@" if self._has_token else ""
        return f"nats://{token}{HOST}:{self.port}"

    @property
    def _token(self) -> str:
        return kept_secret(self.data / "token")

    @property
    def monitor_url(self) -> str:
        """Return the base URL of the monitoring; raises LocalServerError without `monitor` or a start."""
        if self._monitor_port is None:
            raise LocalServerError("this NATS server has no monitoring")
        return f"http://{HOST}:{self._monitor_port}"

    def freeze(self) -> None:
        """Suspend the server: connections stay open and nothing is answered until `thaw`."""
        if self._process is not None:
            self._process.freeze()

    def thaw(self) -> None:
        """Resume a frozen server."""
        if self._process is not None:
            self._process.thaw()

    def wipe(self) -> None:
        """Crash the server, lose everything it stored, and start it again on the same port."""
        self.kill()
        if self.store.exists():
            shutil.rmtree(self.store)
        self.start()

    def _prepare(self) -> None:
        self._program = nats_server(self._binary)

    def _start_on(self, port: int) -> None:
        if self._monitor and not self._port.proven:
            self._monitor_port = free_port()
        config = self.data / "nats.conf"
        write_private(config, self._config(port))
        process = Process([str(self._program), "--config", str(config)], log=self.log)
        self._launch(process, lambda: nats_serves(port, name=self.name))

    def _config(self, port: int) -> str:
        monitoring = f"http: {HOST}:{self._monitor_port}\n" if self._monitor else ""
        token = f'authorization {{ token: "{self._token}" }}\n' if self._has_token else ""
        return f"""\
server_name: {self.name}
listen: {HOST}:{port}
{token}{monitoring}max_payload: 1MB
ping_interval: "20s"
write_deadline: "10s"
jetstream {{
    store_dir: {json.dumps(str(self.store), ensure_ascii=False)}
    max_file_store: 1TB
    limits {{ default_max_consumers: -1 }}
}}
{self._extra_config}
"""
