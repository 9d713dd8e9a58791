"""The command line: noun, then verb. Every command lives in a module of its own, loaded when it is called."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

# command: (module below grns.cli, its function, what the list of commands says)
_COMMANDS = {
    "worker": ("worker", "worker", "Run a pool's handlers."),
    "server": ("daemon", "server", "Run all daemons in one process."),
    "relay": ("daemon", "relay", "Run a relay: publishes the log."),
    "reaper": ("daemon", "reaper", "Run a reaper: takes back tasks whose worker is gone."),
    "retry-scheduler": ("daemon", "retry_scheduler", "Run a retry scheduler: queues what is due."),
    "janitor": ("daemon", "janitor", "Run a janitor: partitions and retention."),
}
_HIDDEN = {"keeper": ("worker", "keeper", "")}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = (_COMMANDS | _HIDDEN).get(cmd_name)
        if found is None:
            return None
        command: click.Command = getattr(import_module(f"grns.cli.{found[0]}"), found[1])
        return command


@click.command(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="grns")
def root() -> None:
    """Run agents' tasks on NATS JetStream, with PostgreSQL as the only truth."""


def main(**arguments: Any) -> None:
    """Run the command line."""
    root(**arguments)
