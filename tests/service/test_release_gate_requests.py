"""Requests with a release gate over HTTP: the rows and the baseline that they name."""

import pytest
from starlette.testclient import TestClient

from jobs.stores.memory_store import MemoryJobStore
from tests.jobs.factories import CONFIG_TEXT, make_job
from tests.service.requests import CONFIG, export_request

EVALUATED = CONFIG.read_text()


def submit(client: TestClient, gate: dict[str, object], **changes: object) -> tuple[int, dict[str, object]]:
    answer = client.post("/exports", json=export_request(release_gate=gate, **changes))
    return answer.status_code, answer.json()


def test_the_rows_of_the_config_become_those_of_the_gate(client: TestClient) -> None:
    status, job = submit(client, {})
    assert status == 202
    spec = job["spec"]
    assert isinstance(spec, dict)
    assert spec["release_gate"]["rows_uri"] == "data/eval.parquet"
    assert (job["blessed"], job["verdicts"]) == (None, [])


def test_a_gate_without_rows_is_refused_at_once(client: TestClient) -> None:
    config = EVALUATED.replace('eval_input_path: "data/eval.parquet"', 'eval_input_path: ""')
    assert config != EVALUATED
    status, problem = submit(client, {}, config=config)
    assert (status, problem["code"], problem["where"]) == (422, "invalid_spec", "release_gate.rows_uri")


def test_a_baseline_that_is_no_release_is_refused_at_once(client: TestClient, store: MemoryJobStore) -> None:
    waiting = make_job()
    store.add(waiting, CONFIG_TEXT)
    for baseline, why in (
        (waiting.id, "is queued, and no release"),
        ("nonsense", "there is no job nonsense"),
    ):
        status, problem = submit(client, {"baseline": baseline})
        assert (status, problem["code"]) == (422, "baseline_not_usable")
        assert why in str(problem["detail"])


@pytest.mark.parametrize(
    "gate", [{"rows": "x"}, {"max_rows": 0}, {"baseline": ""}, "promoted", {"auc_drop": -1}]
)
def test_a_gate_that_is_none_is_refused(client: TestClient, gate: object) -> None:
    answer = client.post("/exports", json=export_request(release_gate=gate))
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
