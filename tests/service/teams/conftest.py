"""A service for two teams, each with a key that is bound to its own places, on a real Redis."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from service.app import create_app
from service.hooks.settings import HookSettings
from service.settings import ServiceSettings
from tests.service.hooks.conftest import hook_settings, redis_client, redis_url
from tests.service.requests import FIXTURES
from tests.service.teams.sample import TEAMS, Planted, backend_of, plant, subscribe

__all__ = ["hook_settings", "redis_client", "redis_url"]


@pytest.fixture
def app(redis_url: str, redis_client: object, hook_settings: HookSettings, tmp_path: Path) -> FastAPI:
    keys: list[dict[str, object]] = [
        *[dict[str, object](name=team, scopes=["submit"], uris=places(tmp_path, team)) for team in TEAMS],
        {"name": "everyone", "scopes": ["submit"]},
        {"name": "chief", "scopes": ["admin"], "uris": places(tmp_path, "adsteam")},
        {"name": "only-inputs", "scopes": ["read"], "uris": {"inputs": [f"{tmp_path}/adsteam/in"]}},
        {"name": "only-outputs", "scopes": ["read"], "uris": {"outputs": [f"{tmp_path}/adsteam/out"]}},
        {"name": "nowhere", "scopes": ["submit"], "uris": {"inputs": [], "outputs": []}},
    ]
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [{**key, "secret": f"the-secret-of-{key['name']}"} for key in keys]}))
    return create_app(
        ServiceSettings(
            redis_url=redis_url,
            hooks=hook_settings.model_copy(update={"callback_senders": 0}),
            api_keys_file=file,
            file_roots=(tmp_path, FIXTURES),
        )
    )


def places(root: Path, team: str) -> dict[str, list[str]]:
    return {
        "inputs": [f"{root}/{team}/in", f"s3://b/{team}/in"],
        "outputs": [f"{root}/{team}/out", f"s3://b/{team}/out"],
    }


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, raise_server_exceptions=False, follow_redirects=False) as client:
        yield client


@pytest.fixture
def planted(client: TestClient, tmp_path: Path) -> dict[str, Planted]:
    """The jobs and hooks of each team, with a subscription for all of them."""
    subscription = subscribe(backend_of(client))
    return {team: plant(backend_of(client), tmp_path, team, subscription) for team in TEAMS}
