"""Custom families at the API, listed and not: their packages are never loaded."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from jobs.control.control import JobControl
from jobs.fleet.roster import MemoryRoster
from jobs.ids import JobId
from jobs.queue import MemoryQueue
from jobs.stores.memory_store import MemoryJobStore
from service.app import create_app
from service.dependencies import Backend
from service.planning import planner
from service.settings import ServiceSettings
from tests.installed_families import Install
from tests.service.requests import export_request

REQUEST = export_request(config="any text", family="telltale", item_input_uri=None)


@pytest.fixture
def trace(tmp_path: Path, install: Install) -> Path:
    """The file that the installed family `telltale` writes as soon as it is imported."""
    install("telltale", f"open({str(tmp_path / 'imported')!r}, 'w').close()")
    return tmp_path / "imported"


@pytest.fixture
def listing(store: MemoryJobStore) -> Iterator[TestClient]:
    """An API whose operator has listed `telltale`."""
    backend = Backend(JobControl(store, MemoryQueue(), planner(("telltale",))), MemoryRoster(), store)
    with TestClient(create_app(ServiceSettings(), backend)) as client:
        yield client


def test_a_listed_family_is_accepted_and_not_loaded(listing: TestClient, trace: Path) -> None:
    answer = listing.post("/exports", json=REQUEST)
    assert answer.status_code == 202
    assert [tower["name"] for tower in answer.json()["towers"]] == ["model"]
    assert answer.json()["spec"]["family"] == "telltale"
    assert not trace.exists()
    assert "telltale" not in sys.modules


def test_its_pages_live_without_its_dims(listing: TestClient, trace: Path) -> None:
    job = listing.post("/exports", json=REQUEST).json()["id"]
    assert "The model family telltale declares" in listing.get(f"/jobs/{job}").text
    assert "which only an attempt loads" in listing.get(f"/jobs/{job}/plan").text
    assert not trace.exists()


def test_it_is_never_the_same_as_an_earlier_export(listing: TestClient, store: MemoryJobStore) -> None:
    job_id = listing.post("/exports", json=REQUEST).json()["id"]
    other_id = listing.post("/exports", json=export_request()).json()["id"]
    assert store.get(JobId(job_id)).content_key is None  # its code may have changed
    assert store.get(JobId(other_id)).content_key is not None


def test_the_towers_are_those_of_the_request(listing: TestClient) -> None:
    request = REQUEST | {"towers": ["user", "item"], "item_input_uri": "items.parquet"}
    towers = listing.post("/exports", json=request).json()["towers"]
    assert [tower["name"] for tower in towers] == ["user", "item"]


@pytest.mark.parametrize(
    ("changes", "code", "where"),
    [
        ({"family": "stranger"}, "family_not_listed", "family"),
        ({"family": "../etc"}, "invalid_request", "family"),
        ({"family": "./my_model.py:MyFamily"}, "invalid_request", "family"),
        ({"sample_input_uri": None}, "invalid_spec", "sample_input_uri"),
        ({"towers": ["item"]}, "invalid_spec", "item_input_uri"),
        ({"id_weights": "ignore"}, "invalid_spec", "id_weights"),
    ],
)
def test_what_can_be_known_is_checked_at_submit(
    listing: TestClient, changes: dict[str, object], code: str, where: str
) -> None:
    answer = listing.post("/exports", json=REQUEST | changes)
    assert (answer.status_code, answer.json()["code"]) == (422, code)
    assert where in str(answer.json())


def test_without_a_list_no_family_is_accepted(client: TestClient) -> None:
    assert client.post("/exports", json=REQUEST).json()["code"] == "family_not_listed"


def test_the_list_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_FAMILIES", "deepfm, two-tower")
    assert ServiceSettings().families == ("deepfm", "two-tower")
