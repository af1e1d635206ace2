"""A job's page once packages are published: files, lines that load them, promotion, comparison."""

import re
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from exporter.manifest import FileRef, Manifest
from jobs.control.releases import MemoryPointers
from jobs.model import Job
from jobs.stores.memory_store import MemoryJobStore
from service.dependencies import Backend
from tests.dashboard import sample


@pytest.fixture
def released(store: MemoryJobStore, backend: Backend, tmp_path: Path) -> Job:
    """A release of `ranker` that nobody has promoted."""
    return release(store, backend, tmp_path)


def release(store: MemoryJobStore, backend: Backend, folder: Path) -> Job:
    job = sample.published(folder).model_copy(update={"model": "ranker"})
    store.add(job, sample.CONFIG_TEXT)
    assert isinstance(backend.pointers, MemoryPointers)
    backend.pointers.released.setdefault("ranker", []).append(job.id)
    return job


def test_every_file_can_be_downloaded_and_has_its_digest(client: TestClient, released: Job) -> None:
    folder = Path(released.manifest_uri or "").parent
    text = client.get(f"/jobs/{released.id}/files").text
    manifest = Manifest.model_validate_json((folder / "manifest.json").read_text())
    files = [file for tower in manifest.towers for file in tower.all_files]
    links = re.findall(r'href="(/exports/[^"]+)" download', text)
    assert len(files) == 12 and len(links) == len(files) + 1
    for file, link in zip(files, links, strict=False):
        (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
        (folder / file.path).write_text(file.path)
        assert client.get(link).text == file.path
        assert f'<code class="uri">{file.sha256}</code>' in text
    assert client.get(links[-1]).content == (folder / "manifest.json").read_bytes()
    assert "12 files, 2.67 GB" in text and f"slipway download {released.id}" in text
    assert "manifest.json.sig" not in text
    (folder / "manifest.json.sig").write_text("{}")
    assert "manifest.json.sig" in client.get(f"/jobs/{released.id}/files").text


def test_names_of_files_are_no_markup_and_lead_nowhere_else(
    client: TestClient, store: MemoryJobStore, tmp_path: Path
) -> None:
    job = sample.published(tmp_path)
    file = Path(job.manifest_uri or "")
    manifest = Manifest.model_validate_json(file.read_text())
    names = (
        sample.NASTY,
        'x" onclick="alert(1)',
        "javascript:alert(1)",
        "../../jobs",
        "a?b#c",
        "\u202efig.py",
    )
    files = tuple(FileRef(path=name, size=1, sha256="ab" * 32) for name in names)
    tower = manifest.towers[0].model_copy(update={"files": files})
    file.write_text(manifest.model_copy(update={"towers": (tower,)}).model_dump_json())
    store.add(job, sample.CONFIG_TEXT)
    text = client.get(f"/jobs/{job.id}/files").text
    assert sample.NASTY not in text and "\u202e" not in text and ' onclick="' not in text
    links = re.findall(r'href="([^"]+)" download', text)
    assert links[1:-1] == [f"/exports/{job.id}/files/{quote(name)}" for name in names]


def test_files_that_cannot_be_listed_are_said_to_be_and_digests_stay(
    client: TestClient, store: MemoryJobStore, tmp_path: Path
) -> None:
    job = sample.published(tmp_path)
    Path(job.manifest_uri or "").unlink()
    store.add(job, sample.CONFIG_TEXT)
    text = client.get(f"/jobs/{job.id}/files").text
    assert "cannot be read" in text
    assert text.count(job.towers[0].digest or "-") == 2  # both towers', from the job's record
    assert client.get(f"/jobs/{job.id}").status_code == 200


def test_each_target_has_its_files(client: TestClient, store: MemoryJobStore, tmp_path: Path) -> None:
    job = sample.published(tmp_path)
    spec = job.spec.model_copy(update={"target": ("avx2", "avx512")})
    job = job.model_copy(update={"spec": spec, "manifest_uris": {"avx512": job.manifest_uri}})
    store.add(job, sample.CONFIG_TEXT)
    text = client.get(f"/jobs/{job.id}/files").text
    assert "Nothing is published, so there are no files." in text  # for avx2
    assert f"/exports/{job.id}/files/user/aoti/aoti_model.pt2?target=avx512" in text
    assert f"slipway download {job.id} --target avx512" in text


def test_a_button_promotes_the_release(client: TestClient, backend: Backend, released: Job) -> None:
    page = f"/jobs/{released.id}"
    assert "Promote as the release of ranker" in client.get(page).text
    answer = client.post(f"{page}/promote", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, page)
    promoted = backend.pointers.get_promoted("ranker")
    assert promoted is not None and promoted.job_id == released.id
    text = client.get(page).text
    assert '<span class="pill succeeded">promoted</span>' in text and f"{page}/promote" not in text


def test_a_job_without_a_model_is_no_release(
    client: TestClient, store: MemoryJobStore, tmp_path: Path
) -> None:
    job = sample.published(tmp_path)
    store.add(job, sample.CONFIG_TEXT)
    assert "/promote" not in client.get(f"/jobs/{job.id}").text
    answer = client.post(f"/jobs/{job.id}/promote")
    assert (answer.status_code, "names no model" in answer.text) == (404, True)


@pytest.mark.parametrize(
    "headers", [{"origin": "http://elsewhere.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}]
)
@pytest.mark.parametrize("form", ["promote", "rerun"])
def test_another_site_cannot_press_a_button(
    client: TestClient,
    store: MemoryJobStore,
    backend: Backend,
    released: Job,
    headers: dict[str, str],
    form: str,
) -> None:
    fields = {"force": "yes", "request": "{}"}
    answer = client.post(f"/jobs/{released.id}/{form}", data=fields, headers=headers)
    assert answer.status_code == 403
    assert backend.pointers.get_promoted("ranker") is None
    assert len(store.page(limit=10).jobs) == 1


def test_the_promoted_release_is_named_and_compared(
    client: TestClient, store: MemoryJobStore, backend: Backend, released: Job, tmp_path: Path
) -> None:
    newer = release(store, backend, tmp_path / "newer")
    assert "Compare with another release" in client.get(f"/jobs/{newer.id}").text
    client.post(f"/jobs/{released.id}/promote")
    assert "Compare with the promoted release" in client.get(f"/jobs/{newer.id}").text
    text = client.get(f"/jobs/{newer.id}/diff").text
    assert f'href="/jobs/{released.id}"' in text and text.count("the same, byte for byte") == 2
    assert f"slipway diff {released.id} {newer.id} --html" in text
    assert "Beside the promoted release" not in client.get(f"/jobs/{released.id}/diff").text
