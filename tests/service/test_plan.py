"""POST /exports/plan: the plan at once, and the same problems that submitting would have."""

import pytest
from starlette.testclient import TestClient

from jobs.stores.memory_store import MemoryJobStore
from tests.service.requests import CONFIG, export_request


def test_a_config_is_enough_for_a_plan(client: TestClient, store: MemoryJobStore) -> None:
    answer = client.post("/exports/plan", json={"config": CONFIG.read_text(), "max_batch_size": 4})
    assert answer.status_code == 200
    user, item = answer.json()["towers"]
    assert (user["name"], item["name"]) == ("user", "item")
    assert {"name": "uih_seq__video_id.values", "dtype": "int64", "shape": ["seq_uih_seq"]} in user["inputs"]
    assert user["dims"][0]["high"] == 4
    assert not store.page(limit=1).jobs


def test_an_exports_body_is_a_plans_body(client: TestClient) -> None:
    body = export_request(mode="two_stage")
    [user, _] = client.post("/exports/plan", json=body).json()["towers"]
    assert user["group_tensors"][0]["name"] == "contextual__ebc"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "invalid_request"),
        ({"config": "", "mode": "three_stage"}, "invalid_request"),
        ({"config": "nonsense"}, "invalid_pipeline_config"),
        ({"config_uri": "/no/such/pipeline.config"}, "source_not_found"),
        ({"config": CONFIG.read_text(), "towers": ["model"]}, "invalid_spec"),
    ],
)
def test_what_cannot_be_planned_is_a_problem(client: TestClient, body: dict[str, object], code: str) -> None:
    answer = client.post("/exports/plan", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, code)


def test_a_group_of_two_parents_is_a_problem_that_names_them(client: TestClient) -> None:
    extra = """feature_configs { sequence_feature { sequence_name: "buys" sequence_length: 4
        features { id_feature {
            feature_name: "item" expression: "item:item" num_buckets: 9 embedding_dim: 16 } } } }"""
    uih = 'feature_names: "uih_seq__video_id"'
    text = CONFIG.read_text().replace(uih, f'{uih} feature_names: "buys__item"', 1)
    problem = client.post("/exports/plan", json={"config": f"{extra}\n{text}"}).json()
    assert problem["code"] == "unsupported_config"
    for named in ("group uih", "uih_seq__video_id of sequence uih_seq", "buys__item of sequence buys"):
        assert named in problem["detail"]
