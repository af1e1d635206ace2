"""Files of an artifact over HTTP, and whole artifacts by `slipway download` and both clients."""

import asyncio
import hashlib
import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from starlette.testclient import TestClient

from exporter.artifact.signing import SIGNATURE_NAME, SigningKey
from exporter.manifest import MANIFEST_NAME, FileRef, Manifest
from exporter.spec import TowerName
from exporter.storage.open import open_store
from jobs.lease.leases import claim
from jobs.model import Job
from jobs.stores.memory_store import MemoryJobStore
from slipway.client import AsyncClient, Client, DownloadFailed, RequestRefused, SignatureRefused, StillRunning
from slipway.client import Manifest as Answer
from tests.jobs.factories import CONFIG_TEXT, MINUTE, make_entry, make_job, make_manifest, make_outcome
from tests.service.conftest import Slipway

PACKAGE, CONFIG = b"package" * 40_000, b"a config"


def publish(store: MemoryJobStore, root: str, key: SigningKey | None = None) -> Job:
    """A finished job whose artifact, of two towers, really lies below `root`."""
    files = open_store(root)
    towers = []
    for tower in (TowerName.USER, TowerName.ITEM):
        refs = []
        for path, data in ((f"{tower}/aoti/aoti_model.pt2", PACKAGE), (f"{tower}/pipeline.config", CONFIG)):
            files.put_bytes(data, path)
            refs.append(FileRef(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest()))
        towers.append(make_entry(tower).model_copy(update={"package": refs[0], "files": (refs[1],)}))
    job = make_job()
    job = job.model_copy(update={"spec": job.spec.model_copy(update={"output_uri": root})})
    manifest = make_manifest(job.id, *towers).model_dump_json().encode()
    files.put_bytes(manifest, MANIFEST_NAME)
    if key is not None:
        files.put_bytes(key.sign(manifest), SIGNATURE_NAME)
    files.put_bytes(b"secret", "notes.txt")
    store.add(job, CONFIG_TEXT)
    holding = claim(store, job.id, worker="w", length=MINUTE)
    assert holding is not None
    return holding.finish(make_outcome().model_copy(update={"manifest_uri": f"{root}/{MANIFEST_NAME}"}))


def keys_of(folder: Path) -> tuple[SigningKey, Path]:
    """A new signing key, and the file of its public key."""
    private, public = Ed25519PrivateKey.generate(), folder / "key.pub"
    public.write_bytes(private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return SigningKey(pem), public


@pytest.fixture
def published(store: MemoryJobStore, tmp_path: Path) -> Job:
    return publish(store, str(tmp_path / "artifact"))


def test_every_file_of_the_manifest_is_served(client: TestClient, published: Job) -> None:
    manifest = Manifest.model_validate(client.get(f"/exports/{published.id}/manifest").json())
    for file in (file for tower in manifest.towers for file in tower.all_files):
        answer = client.get(f"/exports/{published.id}/files/{file.path}")
        assert hashlib.sha256(answer.content).hexdigest() == file.sha256
        assert answer.headers["ETag"] == f'"{file.sha256}"'
    served = client.get(f"/exports/{published.id}/files/{MANIFEST_NAME}")
    assert Manifest.model_validate_json(served.content) == manifest


@pytest.mark.parametrize(
    "path",
    ["notes.txt", SIGNATURE_NAME, "user", "user/../notes.txt", "%2e%2e/artifact/notes.txt", "//notes.txt"],
)
def test_no_other_file_is_served(client: TestClient, published: Job, path: str) -> None:
    answer = client.get(f"/exports/{published.id}/files/{path}")
    assert answer.status_code in (403, 404) and b"secret" not in answer.content


def test_a_file_in_a_bucket_is_a_link(client: TestClient, store: MemoryJobStore, s3_uri: str) -> None:
    job = publish(store, s3_uri)
    path = f"/exports/{job.id}/files/user/pipeline.config"
    assert client.get(path, follow_redirects=False).status_code == 307


def test_an_artifact_is_downloaded(
    slipway: Slipway, published: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = tmp_path / "new" / "here"
    assert slipway("download", published.id, str(into)) == 0
    assert capsys.readouterr().out.strip() == str(into)
    assert (into / "user/aoti/aoti_model.pt2").read_bytes() == PACKAGE
    assert (into / "item/pipeline.config").read_bytes() == CONFIG
    assert (into / MANIFEST_NAME).read_bytes() == (tmp_path / "artifact" / MANIFEST_NAME).read_bytes()
    assert [each.name for each in into.parent.iterdir()] == ["here"]


def test_an_artifact_comes_out_of_a_bucket(
    url: str, store: MemoryJobStore, s3_uri: str, tmp_path: Path
) -> None:
    job = publish(store, s3_uri)
    Client(url, "a-key-that-the-store-must-not-see").download(job.id, tmp_path / "here")
    assert (tmp_path / "here/item/aoti/aoti_model.pt2").read_bytes() == PACKAGE


def test_one_tower_is_downloaded_by_the_asynchronous_client(url: str, published: Job, tmp_path: Path) -> None:
    async def download() -> Answer:
        async with AsyncClient(url) as client:
            return await client.download(published.id, tmp_path / "here", towers=[TowerName.USER])

    assert len(asyncio.run(download()).towers) == 2
    assert sorted(each.name for each in (tmp_path / "here").iterdir()) == [MANIFEST_NAME, "user"]


def test_a_damaged_file_leaves_nothing(url: str, published: Job, tmp_path: Path) -> None:
    (tmp_path / "artifact/item/pipeline.config").write_bytes(b"another")
    with pytest.raises(DownloadFailed, match="item/pipeline.config is not the file in the manifest"):
        Client(url).download(published.id, tmp_path / "down" / "here")
    assert list((tmp_path / "down").iterdir()) == []


def test_a_signed_artifact_of_another_job_is_refused_in_its_place(
    url: str, store: MemoryJobStore, tmp_path: Path
) -> None:
    key, public = keys_of(tmp_path)
    wanted = publish(store, str(tmp_path / "wanted"), key)
    publish(store, str(tmp_path / "other"), key)
    shutil.copytree(tmp_path / "other", tmp_path / "wanted", dirs_exist_ok=True)
    with pytest.raises(DownloadFailed, match="of another job"):
        Client(url).download(wanted.id, tmp_path / "here", key=public)
    assert not (tmp_path / "here").exists()


def test_a_folder_that_exists_is_not_touched(url: str, published: Job, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    with pytest.raises(DownloadFailed, match="exists"):
        Client(url).download(published.id, tmp_path / "here")
    with pytest.raises(DownloadFailed, match="no model tower"):
        Client(url).download(published.id, tmp_path / "new", towers=[TowerName.MODEL])
    assert not (tmp_path / "new").exists()


def test_a_signature_is_required_where_a_key_is_given(
    url: str, store: MemoryJobStore, published: Job, tmp_path: Path
) -> None:
    signing, public = keys_of(tmp_path)
    client = Client(url)
    with pytest.raises(SignatureRefused, match="not signed"):
        client.download(published.id, tmp_path / "unsigned", key=public)
    signed = publish(store, str(tmp_path / "signed"), signing)
    client.download(signed.id, tmp_path / "here", key=public)
    assert (tmp_path / "here" / SIGNATURE_NAME).stat().st_size == 64


def test_what_a_job_published_is_verified_without_a_copy(url: str, published: Job, tmp_path: Path) -> None:
    async def verify() -> Answer:
        async with AsyncClient(url) as client:
            return await client.verify(published.id)

    assert Client(url).verify(published.id) == asyncio.run(verify())
    (tmp_path / "artifact/item/pipeline.config").write_bytes(b"another")
    assert len(Client(url).verify(published.id, towers=[TowerName.USER]).towers) == 2
    with pytest.raises(DownloadFailed, match="item/pipeline.config is not the file in the manifest"):
        Client(url).verify(published.id)
    with pytest.raises(DownloadFailed, match="item/pipeline.config is not the file in the manifest"):
        asyncio.run(verify())


def test_a_job_is_waited_for(url: str, store: MemoryJobStore, published: Job) -> None:
    assert Client(url).wait(published.id).id == published.id
    job = make_job()
    store.add(job, CONFIG_TEXT)
    with pytest.raises(StillRunning) as late:
        Client(url).wait(job.id, timeout_s=0)
    assert late.value.job.id == job.id
    with pytest.raises(RequestRefused):
        Client(url).wait("01jd6v7x4mzq3w8c5kftn2rbha")
