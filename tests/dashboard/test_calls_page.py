"""The page of calls: each with a command for curl, and an example of its body that the API could take."""

import json
import re
import shlex
from html import unescape

import pytest
from starlette.testclient import TestClient

from jobs.request import ExportRequest
from service.dashboard.api.calls import CallsPage, Document, DocumentedCall
from service.dashboard.api.curl import curl_of, example_of
from service.dashboard.api.schemas import Schema


@pytest.fixture
def calls(client: TestClient) -> dict[str, DocumentedCall]:
    page = CallsPage(document=Document.model_validate(client.get("/openapi.json").json()))
    return {f"{call.method} {call.path}": call for group in page.groups.values() for call in group}


def test_every_call_has_a_command_that_a_shell_reads(calls: dict[str, DocumentedCall]) -> None:
    assert len(calls) > 15
    for name, call in calls.items():
        words = shlex.split(call.curl.replace("\\\n", ""))
        assert words[0] == "curl" and f"$SLIPWAY_URL{call.path}" in words, name
        assert ("-X" in words) == (call.method != "GET")
        assert ("-d" in words) == bool(call.example)
        if call.example:
            assert json.loads(words[words.index("-d") + 1]) == json.loads(call.example)


def test_the_example_of_an_export_is_one_but_for_its_config(calls: dict[str, DocumentedCall]) -> None:
    body = json.loads(calls["POST /exports"].example)
    assert (
        ExportRequest.model_validate({**body, "config_uri": "s3://b/pipeline.config"}).output_uri
        == body["output_uri"]
    )


def test_what_has_no_end_is_not_tried(calls: dict[str, DocumentedCall]) -> None:
    assert {name for name, call in calls.items() if not call.can_be_tried} == {"GET /exports/{job_id}/events"}


def test_the_page_has_the_commands_without_scripts_and_the_rest_with_them(client: TestClient) -> None:
    text = client.get("/docs").text
    commands = [unescape(each) for each in re.findall(r'<pre class="curl"[^>]*>(.*?)</pre>', text, re.DOTALL)]
    assert any(command.startswith('curl -X POST "$SLIPWAY_URL/exports"') for command in commands)
    assert text.count("data-scripted hidden") == len(commands)
    assert 'src="/static/try.js"' in text and client.get("/static/try.js").status_code == 200


@pytest.mark.parametrize(
    ("shape", "example"),
    [
        ({"type": "string"}, "<field>"),
        ({"type": "integer", "minimum": 3}, 3),
        ({"type": "boolean"}, False),
        ({"enum": ["a", "b"]}, "a"),
        ({"const": "x"}, "x"),
        ({"type": "string", "default": "d"}, "d"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, 1),
        ({"type": "array", "items": {"type": "number"}}, [1.0]),
        ({"$ref": "#/components/schemas/Node"}, {"name": "<name>"}),
        ({"$ref": "#/components/schemas/Gone"}, "<field>"),
    ],
)
def test_an_example_is_of_its_type(shape: dict[str, object], example: object) -> None:
    node = Schema.model_validate(
        {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string"}, "next": {"$ref": "#/components/schemas/Node"}},
        }
    )
    assert example_of(Schema.model_validate(shape), {"Node": node}, "field") == example


def test_a_type_that_holds_itself_ends() -> None:
    fields = {
        "type": "object",
        "required": ["next"],
        "properties": {"next": {"$ref": "#/components/schemas/Node"}},
    }
    assert json.dumps(example_of(Schema.model_validate(fields), {"Node": Schema.model_validate(fields)}))


def test_quotes_in_a_body_are_quoted_for_the_shell() -> None:
    words = shlex.split(curl_of("POST", "/x", '{"a": "it\'s"}').replace("\\\n", ""))
    assert words[words.index("-d") + 1] == '{"a": "it\'s"}'
