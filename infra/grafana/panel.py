"""What dashboards are made of: queries on metrics of the registry, and panels as Grafana reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from grns.telemetry.metric import Metric, MetricKind

RATE = "$__rate_interval"
_SOURCE = {"type": "prometheus", "uid": "${source}"}
_COLUMNS = 24
_SIZES = {"stat": (6, 4), "timeseries": (12, 8)}


@dataclass(frozen=True)
class Query:
    """One query, and what its lines are called."""

    expr: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """One chart: its title, what it asks, and the unit of its axis, in Grafana's words."""

    title: str
    queries: Sequence[Query]
    unit: str
    help: str
    kind: str = "timeseries"


@dataclass(frozen=True)
class Dashboard:
    """One page. `variables` choose among the values of a label: the metric that has them, and the label."""

    uid: str
    title: str
    panels: Sequence[Panel]
    variables: Sequence[tuple[Metric, str]] = field(default=())


# ---------------------------------------------------------------- queries


def _require(metric: Metric, *labels: str, kind: MetricKind | None = None) -> None:
    """Refuse what would show nothing."""
    if kind not in (None, metric.kind):
        raise ValueError(f"{metric.name} is a {metric.kind}")
    for name in labels:
        if name not in metric.label_names:
            raise ValueError(f"{metric.name} has no label {name}")


def _matching(metric: Metric, chosen: Sequence[str], **fixed: str) -> str:
    """Return the selector of a metric: by the variables that it has labels for, and by fixed values."""
    _require(metric, *chosen, *fixed)
    parts = [f'{name}=~"${name}"' for name in chosen] + [
        f'{name}=~"{value}"' for name, value in fixed.items()
    ]
    return f"{{{','.join(parts)}}}" if parts else ""


def _grouped(metric: Metric, by: Sequence[str]) -> str:
    _require(metric, *by)
    return f" by ({', '.join(by)})" if by else ""


def rate(metric: Metric, *by: str, chosen: Sequence[str] = (), legend: str = "", **fixed: str) -> Query:
    """Return how often a second something happens, over all processes."""
    _require(metric, kind=MetricKind.COUNTER)
    expr = f"sum{_grouped(metric, by)} (rate({metric.name}{_matching(metric, chosen, **fixed)}[{RATE}]))"
    return Query(expr, legend or _legend(by) or metric.name)


def latest(metric: Metric, *by: str, chosen: Sequence[str] = (), legend: str = "", **fixed: str) -> Query:
    """Return a gauge: of what several janitors tell the highest, then the sum over what is left."""
    _require(metric, kind=MetricKind.GAUGE)
    inner = f"max{_grouped(metric, metric.label_names)} ({metric.name}{_matching(metric, chosen, **fixed)})"
    how = "max" if metric.name.endswith("_seconds") else "sum"
    is_all = set(by) == set(metric.label_names)
    return Query(
        inner if is_all else f"{how}{_grouped(metric, by)} ({inner})", legend or _legend(by) or metric.name
    )


def processes(metric: Metric, *by: str) -> Query:
    """Return how many processes show a series."""
    _require(metric, kind=MetricKind.GAUGE)
    return Query(f"count{_grouped(metric, by)} ({metric.name})", _legend(by))


def quantiles(metric: Metric, *, chosen: Sequence[str] = ()) -> list[Query]:
    """Return the usual quantiles of a histogram."""
    _require(metric, kind=MetricKind.HISTOGRAM)
    series = f"sum by (le) (rate({metric.name}_bucket{_matching(metric, chosen)}[{RATE}]))"
    return [Query(f"histogram_quantile({share}, {series})", name) for share, name in _QUANTILES]


def share(part: Metric, whole: Sequence[Metric], legend: str) -> Query:
    """Return how much of what happens is the one thing."""
    sums = " + ".join(f"sum(rate({metric.name}[{RATE}]))" for metric in whole)
    return Query(f"sum(rate({part.name}[{RATE}])) / ({sums})", legend)


_QUANTILES = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))


def _legend(by: Sequence[str]) -> str:
    return " ".join(f"{{{{{name}}}}}" for name in by)


def chart(title: str, *queries: Query, of: Metric, unit: str = "") -> Panel:
    """Return a chart; its unit and its words are the metric's, unless they are named."""
    return Panel(title, queries, unit or _unit(of), of.help)


def number(title: str, query: Query, *, of: Metric, unit: str = "") -> Panel:
    """Return one number that is to be seen at once."""
    return Panel(title, [query], unit or _unit(of), of.help, "stat")


def _unit(metric: Metric) -> str:
    if metric.kind is MetricKind.COUNTER:
        return "ops"
    return "s" if metric.name.endswith("_seconds") else "short"


# ---------------------------------------------------------------- as Grafana reads them


def document(dashboard: Dashboard) -> dict[str, Any]:
    """Return a dashboard as Grafana reads it."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["grns"],
        "schemaVersion": 39,
        "version": 1,
        "editable": False,
        "refresh": "10s",
        "timezone": "utc",
        "time": {"from": "now-1h", "to": "now"},
        "links": [{"type": "dashboards", "tags": ["grns"], "title": "grns", "keepTime": True}],
        "templating": {"list": [_SOURCE_VARIABLE, *(_variable(*one) for one in dashboard.variables)]},
        "panels": list(_laid_out(dashboard.panels)),
    }


_SOURCE_VARIABLE = {"name": "source", "type": "datasource", "query": "prometheus", "label": "Source"}


def _variable(metric: Metric, label: str) -> dict[str, Any]:
    return {
        "name": label,
        "label": label.replace("_", " "),
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": f"label_values({metric.name}, {label})", "refId": label},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _laid_out(panels: Sequence[Panel]) -> Iterator[dict[str, Any]]:
    """Return the panels from left to right, row by row; each row has one kind."""
    x, y, row = 0, 0, panels[0].kind
    for number, panel in enumerate(panels, start=1):
        width, height = _SIZES[panel.kind]
        if panel.kind != row or x + width > _COLUMNS:
            x, y, row = 0, y + _SIZES[row][1], panel.kind
        yield _panel(panel, number, {"x": x, "y": y, "w": width, "h": height})
        x += width


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.help,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": _SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
            }
            for at, query in enumerate(panel.queries)
        ],
    }
