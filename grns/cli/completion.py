"""`grns completion SHELL`: a module of its own, because nothing else is imported for it."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from grns.cli import COMPLETE, root
from grns.cli.group import Command


@click.command(cls=Command, examples=["grns completion bash >> ~/.bashrc", "grns completion zsh >> ~/.zshrc"])
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of SHELL: bash, zsh or fish.

    Add it to the start file of your shell, for example ~/.bashrc.
    """
    kind = get_completion_class(shell)
    if kind is not None:
        click.echo(kind(root, {}, "grns", COMPLETE).source())
