"""Calls that the pages show, made of a running service. Redis, API and worker are real, the ranks fake."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.up import Stack, running_stack
from tests.documents.runs import Ran, commands_to_run, follow
from tests.jobs.hooks.factories import SECRET
from tests.launcher.conftest import fake_ranks
from tests.service.requests import export_request

pytestmark = pytest.mark.slow

MODEL = {"model": "ranker", "labels": {"region": "eu"}}
FIRST = """
post() { command curl -s $api/exports -H 'content-type: application/json' -d @$1.json |
  python -c 'import json, sys; print(json.load(sys.stdin)["id"])'; }
ended() { command curl -sN $api/exports/$1/events | grep -q "^data: .*$2"; }
"""
# The page has one export. Here it is another where one is needed that has failed, or that still runs.
BEFORE = {
    "curl -s -o failure.zip": "done=$job; job=$(post fail-item); ended $job partially_succeeded; failed=$job",
    "curl -s -X POST $api/exports/$job/cancel": "job=$(post hang); stopped=$job",
    "curl -s -X POST $api/exports/$job/retry": "job=$failed",
    "curl -s -X DELETE $api/exports/$job": "job=$stopped; ended $job cancelled",
    "curl -s $api/exports/$job/manifest": "job=$done",
    "curl -s -X POST $api/models/ranker/roll-back": "job=$(post again); ended $job succeeded; "
    """curl -s $api/models/ranker/promote -H 'content-type: application/json' -d '{"job_id": "'$job'"}'""",
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("service")
    secrets = {"SLIPWAY_WEBHOOK_SECRETS": SECRET}
    with running_stack(folder, environment={**fake_ranks("as-asked", folder), **secrets}) as stack:
        yield stack


def test_the_page_of_calls_can_be_followed(service: Stack, tmp_path: Path) -> None:
    for name in ("export", "again", "hang", "fail-item"):
        behaviour = name if name in ("hang", "fail-item") else "publish-at-once"
        body = export_request(output_uri=str(tmp_path / name / behaviour), **MODEL)
        (tmp_path / f"{name}.json").write_text(json.dumps(body))
    ran = follow(
        commands_to_run("docs/calls.md"),
        tmp_path,
        places={
            "http://127.0.0.1:8080": service.url,
            "user/fg.json": "manifest.json",
        },  # fake ranks publish little
        first=FIRST,
        before=BEFORE,
        seconds=120,
    )
    assert_all_answered(ran)
    assert (tmp_path / "failure.zip").read_bytes().startswith(b"PK")
    assert (tmp_path / "user.pt2").read_text() == "the package of user"


def test_the_page_of_webhooks_can_be_followed(service: Stack, tmp_path: Path) -> None:
    places = {"localhost:8080": service.url}
    ran = follow(commands_to_run("docs/webhooks.md"), tmp_path, places=places)
    assert_all_answered(ran)


def assert_all_answered(ran: list[Ran]) -> None:
    assert len(ran) > 1 and [str(each) for each in ran if each.code] == []
