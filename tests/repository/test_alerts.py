"""The alerts: about metrics that exist, each with a page that can be followed, and a test of when it fires.

Whether they fire as they should is `promtool test rules` (`make ops`).
"""

from __future__ import annotations

import re
import shlex
from itertools import product
from typing import Any

import click
import pytest
import yaml

from grns.cli import root
from grns.cli.group import CliState
from grns.telemetry.metric import Metric
from grns.telemetry.metrics import METRICS
from tests.support.harness import ROOT

PLACE = ROOT / "infra" / "prometheus"
BOOKS = ROOT / "docs" / "runbooks"
ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule
    for group in yaml.safe_load((PLACE / "rules.yml").read_text())["groups"]
    for rule in group["rules"]
}
TESTS: list[dict[str, Any]] = yaml.safe_load((PLACE / "rules.test.yml").read_text())["tests"]
# What everybody who runs this needs to hear of, and the alert that tells.
WANTED = {
    "dead above a threshold": "GrnsTasksDead",
    "lease expiries spiking": "GrnsLeasesExpire",
    "retry backlog growing": "GrnsRetryBacklogGrows",
    "retries not queued": "GrnsRetriesLate",
    "schedules late": "GrnsScheduleLate",
    "consumer lag": "GrnsConsumerLags",
    "queue lag": "GrnsQueueOld",
    "relay lag": "GrnsRelayLags",
    "no worker serves a type": "GrnsNoWorker",
    "invariant violations": "GrnsInvariantViolated",
    "waits repaired": "GrnsWaitsRepaired",
}
SERIES = {
    f"{metric.name}{suffix}": metric for metric, suffix in product(METRICS, ("", "_bucket", "_sum", "_count"))
}
# What Prometheus itself adds.
OF_A_SCRAPE = {"job", "instance", "process"}


def metrics_of(expr: str) -> list[Metric]:
    """Return the metrics that a query names; one that does not exist is an error."""
    return [SERIES[name] for name in re.findall(r"\bgrns_\w+", expr)]


def labels_of(expr: str) -> set[str]:
    """Return the labels that a query names, in selectors and in groupings."""
    found = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expr))
    for group in re.findall(r"\b(?:by|on|without)\s*\(([^)]*)\)", expr):
        found |= {name.strip() for name in group.split(",")}
    return found - {"le"}


def check(expr: str) -> None:
    """Check that a query names only what exists."""
    known = {name for metric in metrics_of(expr) for name in metric.label_names}
    assert labels_of(expr) <= known | OF_A_SCRAPE, expr


def test_there_is_an_alert_for_all_that_has_to_be_heard_of() -> None:
    assert set(WANTED.values()) <= ALERTS.keys()


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_is_about_metrics_that_exist(name: str) -> None:
    rule = ALERTS[name]
    assert metrics_of(rule["expr"]) or name == "GrnsProcessDown"
    check(rule["expr"])
    assert rule["labels"]["severity"] in ("page", "ticket")
    told = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    assert told <= labels_of(rule["expr"]) | OF_A_SCRAPE


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_is_shown_to_fire_and_to_be_silent(name: str) -> None:
    looks = [look for test in TESTS for look in test["alert_rule_test"] if look["alertname"] == name]
    assert {bool(look["exp_alerts"]) for look in looks} == {True, False}
    tested = {
        series for test in TESTS if any(look["alertname"] == name for look in test["alert_rule_test"])
        for series in re.findall(r"grns_\w+", str(test["input_series"]))
    }  # fmt: skip
    assert set(re.findall(r"grns_\w+", ALERTS[name]["expr"])) <= tested


def test_no_metric_has_a_label_that_a_scrape_adds() -> None:
    """Prometheus would call it `exported_…` then, and what asks for it would get the other."""
    for metric in METRICS:
        assert not OF_A_SCRAPE & set(metric.label_names), metric.name


def test_tests_of_alerts_feed_series_as_they_are_shown() -> None:
    for test in TESTS:
        for given in test["input_series"]:
            if given["series"].startswith("grns_"):
                (metric,) = metrics_of(given["series"].partition("{")[0])
                assert labels_of(given["series"]) - OF_A_SCRAPE == set(metric.label_names), given["series"]


# ---------------------------------------------------------------- runbooks


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_a_page(name: str) -> None:
    path = ROOT / ALERTS[name]["annotations"]["runbook"]
    page = path.read_text()
    assert page.startswith(f"# {name}\n")
    for section in ("Diagnose", "Fix", "Threshold"):
        assert f"\n## {section}\n" in page
    assert f"[{name}]({path.name})" in (BOOKS / "README.md").read_text()
    metrics_of(page)


def test_there_is_no_page_of_an_alert_that_is_not_there() -> None:
    pages = {path.name for path in BOOKS.glob("*.md")} - {"README.md"}
    assert pages == {rule["annotations"]["runbook"].rpartition("/")[2] for rule in ALERTS.values()}
    links = {
        link for path in BOOKS.glob("*.md") for link in re.findall(r"\]\(([\w-]+\.md)\)", path.read_text())
    }
    assert links <= pages


COMMANDS = sorted(
    {
        command.strip()
        for path in BOOKS.glob("*.md")
        for command in re.findall(r"(?:^|`)(grns [a-z][^`\n#]*)", path.read_text(), re.MULTILINE)
    }
)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_page_names_commands_that_there_are(line: str) -> None:
    """Their words and options; none of them is run here."""
    words = shlex.split(line.partition(" > ")[0])[1:]
    command: click.Command = root
    context = click.Context(root, obj=CliState())
    while isinstance(command, click.Group):
        _, found, words = command.resolve_command(context, words)
        assert found is not None, line
        command, context = found, click.Context(found, parent=context)
    command.make_parser(context).parse_args(words)
