"""Random events, signed and not, at the endpoint that anybody can reach: answered, and never with 5xx."""

import json
from collections import Counter

import pytest
from hypothesis import strategies as st
from starlette.testclient import TestClient

from tests.fuzz.drawing import FEW, MANY, draw
from tests.service.hooks.conftest import MakeClient
from tests.service.hooks.events import STRUCTURED, signed, training_event

PATH = "/webhooks/training"
_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
_FIELDS = [*training_event(), "subject", "time", "datacontenttype", "data_base64"]
_EVENTS = st.one_of(
    st.just(json.dumps(training_event()).encode()),
    st.binary(max_size=60),
    _JSON.map(lambda value: json.dumps(value).encode()),
    st.dictionaries(
        st.sampled_from([*training_event(), "subject", "time", "datacontenttype", "data_base64"]),
        _JSON,
        max_size=6,
    ).map(lambda changes: json.dumps({**training_event(), **changes}).encode()),
)
_TYPES = st.sampled_from(
    [
        STRUCTURED,
        "application/json",
        "text/plain",
        "",
        STRUCTURED + "; charset=x",
        "application/cloudevents-batch+json",
    ]
)
_HEADERS = st.dictionaries(
    st.sampled_from(
        ["ce-specversion", "ce-id", "ce-source", "ce-type", "ce-time", "webhook-id", "webhook-signature"]
    ),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20),
    max_size=7,
)


@pytest.mark.parametrize(
    "examples", [pytest.param(FEW, id="few"), pytest.param(MANY, id="many", marks=pytest.mark.fuzz)]
)
def test_no_event_breaks_the_endpoint(examples: int, make_client: MakeClient) -> None:
    answers: Counter[int] = Counter()
    with make_client() as client:
        client.app.state.wrong_signatures._limit = 0  # type: ignore[attr-defined] # guessing is not what is tried

        def check(drawn: tuple[bytes, str, dict[str, str], bool]) -> None:
            body, media_type, headers, honest = drawn
            try:
                proof = signed(body) if honest else {}
            except UnicodeDecodeError:  # nobody can sign what is no text
                proof = {}
            answer = _post(client, body, {"content-type": media_type, **headers, **proof})
            answers[answer] += 1

        draw(st.tuples(_EVENTS, _TYPES, _HEADERS, st.booleans()), examples, check)
    assert sum(answers.values()) >= 0.9 * examples
    assert {400, 401} <= set(answers) <= {202, 400, 401}, answers
    assert examples == FEW or answers[202] > 0


def _post(client: TestClient, body: bytes, headers: dict[str, str]) -> int:
    return client.post(PATH, content=body, headers=headers).status_code
