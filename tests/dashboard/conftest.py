"""Fixtures of the dashboard, which is part of the API's application; some tests use a real Chromium."""

import json
from pathlib import Path

import pytest
from fastapi import FastAPI

from service.app import create_app
from service.dependencies import Backend
from service.settings import ServiceSettings
from tests.launcher.conftest import stack
from tests.service.conftest import backend, client, store, url

__all__ = ["backend", "client", "stack", "store", "url"]

KEYS = {
    "watcher": "watch-0123456789abcdef",
    "trainer": "train-0123456789abcdef",
    "releaser": "release-0123456789abcdef",
}


@pytest.fixture
def guarded(backend: Backend, tmp_path: Path) -> FastAPI:
    """The application with keys to read (a watcher), to submit (a trainer) and to promote (a releaser)."""
    scopes = {"watcher": ["read"], "trainer": ["submit"], "releaser": ["admin"]}
    keys = [{"name": name, "secret": key, "scopes": scopes[name]} for name, key in KEYS.items()]
    (tmp_path / "keys.json").write_text(json.dumps({"keys": keys}))
    return create_app(ServiceSettings(api_keys_file=tmp_path / "keys.json"), backend)
