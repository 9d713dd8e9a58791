"""The dashboards: made of the registry, and what is in the tree is what is made."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from grns.telemetry.metrics import METRICS
from tests.repository.test_alerts import check, labels_of, metrics_of
from tests.support.harness import ROOT

PLACE = ROOT / "infra" / "grafana"


@pytest.fixture
def generate(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program that makes them."""
    monkeypatch.syspath_prepend(str(PLACE))
    return importlib.import_module("generate")


def dashboards() -> Iterator[dict[str, Any]]:
    """Return those in the tree."""
    for path in sorted((PLACE / "dashboards").glob("*.json")):
        yield json.loads(path.read_text())


def test_what_is_in_the_tree_is_what_is_made(generate: Any) -> None:
    """Mend it with: python infra/grafana/generate.py"""
    there = {path.name: path.read_text() for path in (PLACE / "dashboards").glob("*.json")}
    assert there == generate.texts()


def test_each_query_names_a_metric_that_exists() -> None:
    asked = set()
    for dashboard in dashboards():
        chosen = {one["name"] for one in dashboard["templating"]["list"]}
        for panel in dashboard["panels"]:
            assert panel["targets"], panel["title"]
            for target in panel["targets"]:
                assert metrics_of(target["expr"])
                check(target["expr"])
                asked |= {metric.name for metric in metrics_of(target["expr"])}
                named = {word.partition("}}")[0] for word in target["legendFormat"].split("{{")[1:]}
                assert named <= labels_of(target["expr"])
                for name in ("workspace", "task_type"):
                    assert f"${name}" not in target["expr"] or name in chosen
    assert asked == {metric.name for metric in METRICS}, "each metric is to be seen somewhere"


def test_panels_lie_beside_each_other() -> None:
    for dashboard in dashboards():
        taken: set[tuple[int, int]] = set()
        for panel in dashboard["panels"]:
            place = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            }
            assert not cells & taken, panel["title"]
            assert max(x for x, _ in cells) < 24
            taken |= cells


def test_a_query_on_what_is_not_there_cannot_be_made(generate: Any) -> None:
    with pytest.raises(ValueError, match="has no label"):
        generate.rate(generate.r.CLAIMS, "workspace")
    with pytest.raises(ValueError, match="is a gauge"):
        generate.rate(generate.r.TASKS)


def test_all_of_it_is_wired() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    services = compose["services"]
    config = yaml.safe_load((ROOT / "infra/prometheus/prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    (names,) = job["dns_sd_configs"]
    once = ("migrate", "streams")
    ours = {name for name, one in services.items() if one.get("image") == "grns:local" and name not in once}
    assert set(names["names"]) == ours, "each process is scraped"
    for name in ours:
        assert services[name]["environment"]["GRNS_METRICS_PORT"] == str(names["port"])
    for name in ("prometheus", "grafana"):
        for mount in services[name]["volumes"]:
            source = mount.partition(":")[0]
            assert source in compose["volumes"] or (ROOT / source).exists(), mount
        for port in services[name]["ports"]:
            assert port.startswith("127.0.0.1:"), "for this machine only"
    provided = yaml.safe_load((PLACE / "provisioning/dashboards/grns.yml").read_text())
    path = provided["providers"][0]["options"]["path"]
    assert any(mount.split(":")[1] == path for mount in services["grafana"]["volumes"])
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (PLACE / "dashboards" / home.rpartition("/")[2]).exists()
