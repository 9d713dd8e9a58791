"""`grns demo`."""

from __future__ import annotations

import sys

import click

from grns.cli.group import Command


@click.command(cls=Command, examples=["grns demo", "grns demo --files 300"])
@click.option(
    "--files", type=click.IntRange(min=100), default=1200, show_default=True, help="Python files to digest."
)
def demo(files: int) -> None:
    """Run a thousand tasks on temporary servers, kill a worker, and check every result."""
    from grns.dev.demo.run import run

    sys.exit(run(files))
