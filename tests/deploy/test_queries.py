"""What the dashboard, KEDA and the guides ask of Prometheus, against the metrics that there are."""

import json
import re
from collections.abc import Iterator, Mapping

import pytest
from pydantic import JsonValue

from exporter.spec import Device, Mode, TowerName
from exporter.stages import Stage
from jobs.fleet.roster import Gpu, MemoryRoster, WorkerNotice
from jobs.fleet.tallies import MemoryTallies, Tally
from jobs.model import JobState
from jobs.stores.memory_store import MemoryJobStore
from service.metrics import render
from tests.architecture.tree import ROOT
from tests.deploy.conftest import MATRIX, Manifest, rendered
from tests.jobs.factories import CONFIG_TEXT, MINUTE, NOW, make_job

GRAFANA = ROOT / "deploy" / "grafana" / "slipway.json"
METRIC = re.compile(r"(slipway_\w+)(?:\{([^}]*)\})?")
SCRAPED = {"job", "namespace", "service"}  # what Prometheus itself adds
OVER_REPLICAS = re.compile(r"max(?: by \(([^)]*)\))? \((?:(?:rate|increase)\()?$")


def labels_there_are() -> Mapping[str, frozenset[str]]:
    """Every sample's name, and its labels."""
    store, roster, tallies = MemoryJobStore(), MemoryRoster(), MemoryTallies()
    store.add(make_job(), CONFIG_TEXT)
    gpu = Gpu(index=0, name="H200", memory_total=2, memory_used=1, busy=0.5)
    notice = WorkerNotice(
        id="w",
        host="h",
        pid=1,
        device=Device.CUDA,
        targets=("sm_90",),
        versions={},
        started_at=NOW,
        gpus=(gpu,),
    )
    roster.announce(notice, MINUTE)
    kind = Tally(name="", tower=TowerName.USER, mode=Mode.UNIFIED, device=Device.CPU)
    counted = [
        Tally(name="attempts", ending=JobState.FAILED),
        Tally(name="gate_failures", tower=TowerName.USER),
        Tally(name="releases", ending="blessed"),
    ]
    counted.append(kind.model_copy(update={"name": "stage_count", "stage": Stage.COMPILE}))
    counted.append(kind.model_copy(update={"name": "tower_count", "cold": True}))
    tallies.add(dict.fromkeys(counted, 1.0))
    found: dict[str, frozenset[str]] = {}
    for line in render(store, roster, tallies).decode().splitlines():
        if not line.startswith("#"):
            name, _, rest = line.partition("{") if "{" in line else line.partition(" ")
            found[name] = frozenset(re.findall(r'(\w+)="', rest) if "{" in line else ())
    return found


LABELS = labels_there_are()


def drawn() -> Iterator[str]:
    for panel in json.loads(GRAFANA.read_text())["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def scaled() -> Iterator[str]:
    for each in rendered(*MATRIX["everything"]):
        if each.kind == "ScaledObject":
            trigger: JsonValue = each.at("spec", "triggers", 0)
            yield str(Manifest({"kind": "", "trigger": trigger}).at("trigger", "metadata", "query"))


def alerts() -> list[str]:
    text = (ROOT / "docs" / "operations.md").read_text()
    section = text[text.index("Worth an alert") : text.index("## Probes")]
    return [each for each in re.findall(r"`([^`]+)`", " ".join(section.split())) if "slipway_" in each]


QUERIES = [*drawn(), *scaled(), *alerts()]


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_names_metrics_and_labels_that_there_are(query: str) -> None:
    found = METRIC.findall(query)
    assert found and query.count("(") == query.count(")")
    for name, selected in found:
        assert name in LABELS, name
        assert set(re.findall(r"(\w+)(?:=~|!~|!=|=)", selected)) <= LABELS[name] | SCRAPED
    grouped = {label for by in re.findall(r"by \(([^)]*)\)", query) for label in by.split(", ")}
    assert grouped <= {label for name, _ in found for label in LABELS[name]}


@pytest.mark.parametrize("query", QUERIES)
def test_replicas_that_tell_the_same_count_once(query: str) -> None:
    """The largest over replicas is taken first, by every label that sums or draws tell apart."""
    for match in METRIC.finditer(query):
        taken = OVER_REPLICAS.search(query[: match.start()].replace("max(", "max ("))
        assert taken is not None, query
        kept = set((taken[1] or "").split(", ")) - {""}
        selected = set(re.findall(r'(\w+)="', match[2] or "")) - SCRAPED  # one value only
        if "sum" in query:
            assert LABELS[match[1]] - selected <= kept | {"name"}, query


def test_every_panel_says_what_it_shows() -> None:
    """In words of its own, and not by its title again."""
    panels = json.loads(GRAFANA.read_text())["panels"]
    told = {each["title"]: each.get("description", "") for each in panels}
    assert [title for title, text in told.items() if len(text) < 40 or text.startswith(title)] == []
    assert len(set(told.values())) == len(panels)


def test_the_parts_of_the_dashboard_tell_installations_apart() -> None:
    assert all('{job=~"$job"' in query for query in drawn())


def test_an_idle_group_is_asked_for_nothing_rather_than_unknown() -> None:
    """KEDA takes an empty answer for a fault, and then keeps a worker for it."""
    assert all(
        query.endswith('service="test-slipway-api"}) * 0') and " or max(" in query for query in scaled()
    )
