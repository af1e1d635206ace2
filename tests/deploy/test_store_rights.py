"""compose.yaml's API and workers have users of their own in the object store, with what rights they need.

The set-up that compose.yaml runs against MinIO runs here against moto, which checks signatures and policies.
"""

import io
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import ClientError

from deploy.compose import Places, Service, services_in
from deploy.moto_store import MotoStore, running_moto
from exporter.errors import SourceNotFound, StorageError
from exporter.storage.cloud_store import PART_SIZE
from exporter.storage.open import open_store
from exporter.storage.store import ArtifactStore
from launcher.ports import free_port
from tests.architecture.tree import ROOT
from tests.deploy.conftest import MATRIX, Manifest, rendered
from tests.deploy.test_docker import COMPOSE, GIVEN

SERVICES = services_in((ROOT / "compose.yaml").read_text(), GIVEN)
LARGE = PART_SIZE + 1  # sent in two parts


def set_up(store: MotoStore) -> "subprocess.CompletedProcess[str]":
    """Run the service `bucket` as compose.yaml does."""
    addresses = {"s3:9000": f"127.0.0.1:{store.port}", "/etc/slipway": str(ROOT / "docker" / "s3")}
    places = Places(folder=store.folder, addresses=addresses)
    environment = {"PATH": f"{store.write_mc()}:/usr/bin:/bin", **places.environment(SERVICES["bucket"])}
    command = places.command(SERVICES["bucket"])
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoStore]:
    """A store after `docker compose up`, and again after another one."""
    with running_moto(free_port(), tmp_path_factory.mktemp("store")) as store:
        for _ in range(2):
            done = set_up(store)
            assert done.returncode == 0, done.stderr
        store.enforce_rights()
        yield store


def become(store: MotoStore, name: str, monkeypatch: pytest.MonkeyPatch) -> ArtifactStore:
    key = store.key_of(SERVICES[name])
    settings = {
        "AWS_ENDPOINT_URL": store.url,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": key.id,
        "AWS_SECRET_ACCESS_KEY": key.secret,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    for variable, value in settings.items():
        monkeypatch.setenv(variable, value)
    return open_store("s3://slipway/place")


def test_a_worker_reads_and_writes_the_bucket(store: MotoStore, monkeypatch: pytest.MonkeyPatch) -> None:
    files = become(store, "worker", monkeypatch)
    for name, text in {"small": b"text", "large": b"x" * LARGE}.items():
        files.write(io.BytesIO(text), len(text), name)
    assert {each.key: each.size for each in files.list()} == {"small": 4, "large": LARGE}
    assert b"".join(files.chunks("small")) == b"text"
    files.delete("large")
    with pytest.raises(SourceNotFound):
        files.stat("large")


def test_the_api_reads_the_bucket_and_writes_nothing(
    store: MotoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    become(store, "worker", monkeypatch).write(io.BytesIO(b"text"), 4, "read")
    files = become(store, "api", monkeypatch)
    assert b"".join(files.chunks("read")) == b"text"
    assert "read" in [each.key for each in files.list()]
    with pytest.raises(SourceNotFound):
        files.stat("missing")
    for size in (4, LARGE):
        with pytest.raises(StorageError, match="AccessDenied"):
            files.write(io.BytesIO(b"x" * size), size, "written")
    with pytest.raises(StorageError, match="AccessDenied"):
        files.delete("read")


@pytest.mark.parametrize("name", ["api", "worker"])
@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("list_buckets", {}),
        ("create_bucket", {"Bucket": "another"}),
        ("delete_bucket", {"Bucket": "slipway"}),
        ("put_bucket_policy", {"Bucket": "slipway", "Policy": "{}"}),
        ("list_objects_v2", {"Bucket": "private"}),
        ("get_object", {"Bucket": "private", "Key": "file"}),
    ],
)
def test_neither_manages_buckets_or_reads_others(
    store: MotoStore, monkeypatch: pytest.MonkeyPatch, name: str, call: str, arguments: Mapping[str, str]
) -> None:
    store.enforce_rights(on=False)
    root = boto3.session.Session("root", "root", region_name="us-east-1").client("s3", endpoint_url=store.url)
    root.create_bucket(Bucket="private")
    root.put_object(Bucket="private", Key="file", Body=b"text")
    store.enforce_rights()
    become(store, name, monkeypatch)
    with pytest.raises(ClientError, match="AccessDenied"):
        getattr(boto3.session.Session().client("s3"), call)(**arguments)


def test_a_set_up_that_fails_says_so(tmp_path: Path) -> None:
    nowhere = MotoStore(free_port(), tmp_path)
    assert set_up(nowhere).returncode != 0


def test_the_stores_own_credentials_go_to_the_store_and_its_set_up_only() -> None:
    holders = [
        name
        for name, service in SERVICES.items()
        if any(GIVEN["S3_ROOT_SECRET"] in value for value in service.environment.values())
    ]
    assert holders == ["bucket", "s3"]


@pytest.mark.parametrize("name", ["api", "worker"])
def test_programs_have_users_of_their_own(name: str) -> None:
    def secret(service: Service) -> str:
        return service.environment["AWS_SECRET_ACCESS_KEY"]

    other = "worker" if name == "api" else "api"
    assert SERVICES[name].environment["AWS_ACCESS_KEY_ID"] == f"slipway-{name}"
    assert secret(SERVICES[name]) == GIVEN[f"S3_{name.upper()}_SECRET"] != secret(SERVICES[other])


@pytest.mark.parametrize(
    ("values", "api", "worker"),
    [
        ((), (None, "test-slipway"), (None, "test-slipway")),
        (("storage.secret=s3",), ("s3", "test-slipway"), ("s3", "test-slipway")),
        (MATRIX["own_rights"], ("reading", "test-slipway"), ("exporting", "test-slipway-worker")),
        (("storage.secret=s3", "storage.apiSecret=r"), ("r", "test-slipway"), ("s3", "test-slipway")),
        (("serviceAccount.workers.name=w",), (None, "test-slipway"), (None, "w")),
    ],
)
def test_the_charts_programs_have_keys_and_accounts_of_their_own_where_they_are_named(
    values: tuple[str, ...], api: tuple[str | None, str], worker: tuple[str | None, str]
) -> None:
    chart = rendered(*values)
    for ending, (secret, account) in {"-api": api, "-worker-cpu": worker}.items():
        (deployment,) = (each for each in chart if each.kind == "Deployment" and each.name.endswith(ending))
        assert deployment.pod is not None
        assert deployment.pod.at("spec", "serviceAccountName") == account
        (container,) = deployment.containers
        named = [each.at("valueFrom", "secretKeyRef", "name") for each in keys_of(container)]
        assert named == [secret] * 2 if secret else named == []
    accounts = {each.name for each in chart if each.kind == "ServiceAccount"}
    assert ("test-slipway-worker" in accounts) == (worker[1] == "test-slipway-worker")


def keys_of(container: Manifest) -> list[Manifest]:
    listed = container.at("env")
    variables = (
        [Manifest(each) for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    )
    return [each for each in variables if str(each.at("name")).startswith("AWS_")]


def test_the_set_up_is_mounted_to_be_read_only() -> None:
    assert COMPOSE["services"]["bucket"]["volumes"] == ["./docker/s3:/etc/slipway:ro"]
