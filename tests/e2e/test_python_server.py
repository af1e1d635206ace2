"""The example of a server in Python: a recorded tower over HTTP, refusals, and a newer artifact under it."""

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from exporter.spec import TowerName
from slipway.loader import load, prepare
from tests.e2e.conftest import FIXTURES, Export
from tests.e2e.loaded_rows import tensors_of

pytestmark = pytest.mark.slow


@contextmanager
def serving(folder: Path, tower: str) -> Iterator[str]:
    command = [sys.executable, "-m", "examples.python_server", str(folder), tower, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = re.fullmatch(r"proved by batch_1.*; listening on port (\d+)\n", server.stdout.readline())
            assert port is not None
            yield f"http://127.0.0.1:{port[1]}"
        finally:
            server.terminate()


def asked(url: str, body: bytes) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(url, data=body) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_a_tower_is_served_and_swapped(artifact_of: Export, tmp_path: Path) -> None:
    artifact = artifact_of("hstu_match")
    folder = prepare(artifact, tmp_path / "prepared")
    rows = FIXTURES / "data" / "ref_items_b7.parquet"
    inputs = tensors_of(artifact, TowerName.ITEM, rows, tmp_path / "fetched")
    request = {name: tensor.tolist() for name, tensor in inputs.items()}
    with load(folder, "item") as tower, serving(folder, "item") as url:
        status, answer = asked(f"{url}/predict", json.dumps(request).encode())
        assert status == 200
        for name, expected in tower(inputs).items():
            assert torch.equal(torch.tensor(answer[name], dtype=expected.dtype), expected)
        name = next(name for name in inputs if name.endswith(".lengths"))
        wrong = {**request, name: [length + 1 for length in request[name]]}
        status, refused = asked(f"{url}/predict", json.dumps(wrong).encode())
        assert (status, refused["code"]) == (422, "input_refused")
        for body in (b"", b"[]", b"{", b'{"video_id.values": "x"}'):
            assert asked(f"{url}/predict", body)[0] in (400, 422)
        status, swapped = asked(f"{url}/swap", json.dumps({"artifact": str(folder)}).encode())
        assert (status, swapped["job_id"]) == (200, tower.job_id)
        assert asked(f"{url}/swap", b'{"artifact": "/nowhere"}')[0] == 422
        assert asked(f"{url}/predict", json.dumps(request).encode()) == (200, answer)


def test_a_tower_that_is_not_there_is_one_line(artifact_of: Export, tmp_path: Path) -> None:
    folder = prepare(artifact_of("hstu_match"), tmp_path / "prepared")
    command = [sys.executable, "-m", "examples.python_server", str(folder), "model"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert ended.stderr.startswith("tower_missing: ")
