"""The command line: noun, then verb. A command's module is imported when the command is called."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click
from click.shell_completion import get_completion_class, shell_complete

from grns.cli import failure
from grns.cli.group import CliState, Command, LazyCommand, LazyGroup, shared_options

COMPLETE = "_GRNS_COMPLETE"

daemon_group = LazyGroup(
    "daemon",
    {
        "Daemons": [
            LazyCommand("api", "Serve the HTTP API and the dashboard.", "daemon:api"),
            LazyCommand("relay", "Publish the event log to NATS.", "daemon:relay"),
            LazyCommand(
                "command-server", "Handle requests over NATS: submit, cancel.", "daemon:command_server"
            ),
            LazyCommand("reaper", "Queue tasks again whose lease expired.", "daemon:reaper"),
            LazyCommand("scheduler", "Queue due tasks; submit those of schedules.", "daemon:scheduler"),
            LazyCommand("stats", "Count tasks and issues from the event log.", "daemon:stats"),
            LazyCommand("janitor", "Maintain partitions, retention, gauges and checks.", "daemon:janitor"),
            LazyCommand("operations", "Run bulk operations: redrive, discard, cancel.", "daemon:operations"),
            LazyCommand("webhooks", "Send events to webhooks.", "daemon:webhooks"),
        ]
    },
    help="Run one daemon alone, instead of all of them with `grns server`.",
)

worker_group = LazyGroup(
    "worker",
    {
        "Commands": [
            LazyCommand("start", "Run a pool's handlers.", "worker:start"),
            LazyCommand(
                "list", "List workers by pool, HTTP workers and silent workers included.", "pool:list_workers"
            ),
            LazyCommand(
                "show",
                "Show a worker: its slots, task types, process and last heartbeat.",
                "pool:show_worker",
            ),
        ]
    },
    help="Start a worker; list and show workers.",
)

admin_group = LazyGroup(
    "admin",
    {
        "Commands": [
            LazyCommand("key", "Create, list and revoke API keys.", "access:key"),
            LazyCommand("workspace", "Create and isolate workspaces.", "access:workspace"),
            LazyCommand("secret", "Make the keys that seal secrets; rotate them.", "secret:secret"),
            LazyCommand("db", "Create and upgrade the database schema.", "admin:db"),
            LazyCommand("broker", "Create and show the streams of NATS.", "broker:broker"),
            LazyCommand("nats-config", "Print NATS users, one per component.", "broker:nats_config"),
            LazyCommand("config", "Show the settings and where they come from.", "admin:config"),
            LazyCommand("schema", "Write the schemas of all messages.", "admin:schema"),
            LazyCommand("verify", "Check every task against its history; find stuck tasks.", "verify:verify"),
            LazyCommand("bench", "Measure grns on your PostgreSQL and NATS.", "bench:bench"),
        ]
    },
    help="Set up PostgreSQL and NATS; manage keys and workspaces; show settings; measure.",
)

root = LazyGroup(
    "grns",
    {
        "Get started": [
            LazyCommand("init", "Write a starter project: a pool, its tests, containers.", "init:init"),
            LazyCommand("dev", "Run everything here, to try grns: servers, daemons, a worker.", "dev:dev"),
            LazyCommand("demo", "Run a thousand tasks, kill a worker, check every result.", "dev:demo"),
        ],
        "Tasks": [
            LazyCommand("task", "Submit, list, show, edit, cancel, redrive and discard tasks.", "task:task"),
            LazyCommand("workflow", "Submit, list and show tasks that need each other.", "workflow:workflow"),
            LazyCommand(
                "schedule",
                "Submit tasks again and again: by the clock, or in intervals.",
                "schedule:schedule",
            ),
            LazyCommand(
                "operation", "Show, pause, resume and cancel bulk operations.", "operation:operation"
            ),
            LazyCommand("pool", "List, pause and resume pools.", "pool:pool"),
            LazyCommand("blob", "Keep files that payloads and results refer to.", "blob:blob"),
            LazyCommand("archive", "List, show and restore what retention has deleted.", "archive:archive"),
            LazyCommand("events", "Follow, export and replay events.", "event:events"),
            LazyCommand(
                "webhook", "Create and edit webhooks; list and resend deliveries.", "webhook:webhook"
            ),
        ],
        "Triage": [
            LazyCommand("issue", "List and triage failures, grouped by fingerprint.", "issue:issue"),
            LazyCommand("dlq", "List dead letters; resend, discard and export messages.", "dlq:dlq"),
        ],
        "Run": [
            LazyCommand("server", "Run all daemons in one process.", "daemon:server"),
            LazyCommand("daemon", "Run one daemon: relay, reaper, scheduler, api, …", ":daemon_group"),
            LazyCommand("worker", "Start a worker; list and show workers.", ":worker_group"),
            LazyCommand("agent", "Register, list, show and terminate agents.", "agent:agent"),
            LazyCommand("mcp", "Serve tools of the API to a program that speaks MCP.", "mcp:mcp"),
        ],
        "Administer": [
            LazyCommand("admin", "Set up PostgreSQL and NATS; manage keys and workspaces.", ":admin_group"),
            LazyCommand("completion", "Print the completion script of your shell.", ":completion"),
        ],
        "Troubleshoot": [
            LazyCommand(
                "explain", "Explain why a task has its status, and what happened to it.", "diagnose:explain"
            ),
            LazyCommand("doctor", "Check the installation, and say what to do.", "diagnose:doctor"),
            LazyCommand("top", "Show live status: counts, rates, pools, workers.", "top:top"),
        ],
    },
    help="A durable task queue. PostgreSQL is the source of truth; NATS JetStream delivers.",
    params=shared_options(),
)
click.version_option(package_name="grns", prog_name="grns")(root)


@click.command(cls=Command, examples=["grns completion bash >> ~/.bashrc", "grns completion zsh >> ~/.zshrc"])
@click.argument("shell", metavar="SHELL", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of SHELL: bash, zsh or fish.

    Add it to the start file of your shell, for example ~/.bashrc.
    """
    if kind := get_completion_class(shell):
        click.echo(kind(root, {}, "grns", COMPLETE).source())


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    state = CliState()
    return failure.guarded(lambda: _execute(arguments, state), state)


def _execute(arguments: Sequence[str], state: CliState) -> int:
    if instruction := os.environ.get(COMPLETE):
        return shell_complete(root, {"obj": state}, "grns", COMPLETE, instruction)
    with root.make_context("grns", list(arguments), obj=state) as context:
        root.invoke(context)
    return 0


def main() -> NoReturn:
    """Run the command line of this process."""
    sys.exit(run(sys.argv[1:]))
