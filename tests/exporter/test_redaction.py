import json
import time

import pytest

from exporter.errors import ExportError
from exporter.outcome import Failure
from exporter.redaction import redact, redact_and_escape


@pytest.mark.parametrize(
    "text",
    [
        "s3://id:planted@bucket/x",
        "GET https://h/x?a=1&X-Amz-Signature=planted",
        "whsec_planted/+=",
        "Authorization: Bearer planted",
        "AWS_SECRET_ACCESS_KEY=planted",
        '"session_token": "planted"',
        "PUT https://a.blob.core.windows.net/c/x?sv=2026&sig=planted%3D&se=1",
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=planted/+==;EndpointSuffix=x",
        "BlobEndpoint=https://h/;SharedAccessSignature=sv=2026&sig=planted",
        "OSS_ACCESS_KEY_SECRET=planted",
        "AZURE_CLIENT_SECRET=planted",
    ],
)
def test_what_looks_like_a_secret_is_left_out(text: str) -> None:
    assert "planted" not in redact(f"before {text} after")


@pytest.mark.parametrize(
    "said", ['password="planted"', "https://h/?token=planted", 'a "session_token": "planted"']
)
def test_a_line_of_json_stays_one(said: str) -> None:
    line = redact(json.dumps({"event": f'said "{said}"', "after": 1}))
    assert json.loads(line)["after"] == 1 and "planted" not in line


def test_a_known_secret_is_left_out_wherever_it_stands() -> None:
    assert redact("xplanted-secretx and pw", ["planted-secret", "pw"]) == "x…x and pw"


def test_nothing_deceives_a_reader() -> None:
    assert (
        redact_and_escape("a\x1b[2Jb\u202ec\0d\re\ttab\nline\u6a21")
        == "a\\x1b[2Jb\\u202ec\\x00d\\re\ttab\nline\u6a21"
    )


def test_errors_and_failures_are_fit_to_show() -> None:
    error = ExportError("at s3://a:planted@b", where="\u202etxt", hint="Bearer planted")
    assert "planted" not in f"{error} {error.message} {error.hint}" and error.where == "\\u202etxt"
    told = Failure(code="x", message="whsec_planted", report="\x1b[31m")
    assert (told.message, told.report) == ("whsec_…", "\\x1b[31m")
    assert "planted" not in Failure.of(RuntimeError("http://a:planted@b")).message


@pytest.mark.parametrize(
    "hostile", ["?key" * 50_000, "?" + "key" * 70_000, "://" * 70_000, "bearer " * 40_000]
)
def test_a_long_line_takes_no_time(hostile: str) -> None:
    begun = time.monotonic()
    redact_and_escape(hostile)
    assert time.monotonic() - begun < 2
