import hashlib
import io
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO

import pytest

from exporter.artifact.read import fetch_tower, file_ref, read_manifest
from exporter.artifact.upload import (
    publish_manifest_to_store,
    remove_unfinished_artifact,
    remove_uploads,
    upload_tower_to_store,
)
from exporter.errors import AlreadyPublished, InvalidArtifact, LeaseUnproven, StorageError
from exporter.manifest import (
    FileRef,
    Manifest,
    TowerEntry,
    VectorsEntry,
    VerificationReport,
    Versions,
)
from exporter.spec import Device, TowerName
from exporter.storage.memory import MemoryStore
from exporter.storage.open import open_store, split_uri
from exporter.storage.store import ArtifactStore, OnSent, StoredFile, ignore_sent

TOWER_FILES = ("aoti/aoti_model.pt2", "pipeline.config", "fg.json", "model_acc.json")


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """The files of two exported towers, by their paths in the artifact."""
    made = {}
    for tower in ("user", "item"):
        for name in TOWER_FILES:
            path = tmp_path / "workspace" / tower / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{name} of {tower}")
            made[f"{tower}/{name}"] = path
    return made


@pytest.fixture
def manifest(files: dict[str, Path]) -> Manifest:
    versions = Versions(
        slipway="1",
        python="3.11",
        torch="2.13.0",
        torchrec="1.8.0",
        fbgemm="1.8.0",
        triton="3.7.1",
        cuda=None,
    )
    return Manifest(
        job_id="job1",
        created_at="2025-01-01T00:00:00Z",
        family="hstu_match",
        mode="unified",
        device=Device.CPU,
        architecture="x86_64",
        max_batch_size=512,
        versions=versions,
        op_libraries=("fbgemm_gpu",),
        sources=(),
        towers=tuple(entry(tower, files) for tower in (TowerName.USER, TowerName.ITEM)),
    )


@pytest.fixture(params=["local", "s3", "oss", "gs", "az"])
def artifact_uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    local = request.param == "local"
    output = str(tmp_path / "out") if local else request.getfixturevalue(f"{request.param}_uri")
    return f"{output}/job1"


@pytest.fixture(params=["memory", "local", "s3", "oss", "gs", "az"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    if request.param == "memory":
        return MemoryStore()
    local = request.param == "local"
    return open_store(str(tmp_path / "out") if local else request.getfixturevalue(f"{request.param}_uri"))


def entry(tower: TowerName, files: dict[str, Path]) -> TowerEntry:
    package, *others = (file_ref(f"{tower}/{name}", files[f"{tower}/{name}"]) for name in TOWER_FILES)
    return TowerEntry(
        name=tower,
        view="training",
        package=package,
        files=tuple(others),
        inputs=(),
        outputs=(),
        dims=(),
        verified=VerificationReport(tolerance=1e-5, largest_difference=0.0, cases=()),
        stage_seconds={"compile": 1.0},
    )


def only(tower: TowerEntry, manifest: Manifest) -> Manifest:
    return manifest.model_copy(update={"towers": (tower,)})


def publish_in(
    store: ArtifactStore,
    folder: str,
    manifest: Manifest,
    files: Mapping[str, Path],
    *,
    replace_unfinished: bool,
    on_progress: Callable[[int, int], object] = lambda sent, total: None,
) -> str:
    """Send tower after tower, and make an artifact of them."""
    sent: list[StoredFile] = []
    for tower in manifest.towers:
        own = {path: local for path, local in files.items() if path.startswith(f"{tower.name}/")}
        sent += upload_tower_to_store(
            store, folder, tower, own, replace_unfinished=replace_unfinished, on_progress=on_progress
        )
    return publish_manifest_to_store(store, folder, manifest, sent, replace_unfinished=replace_unfinished)


def publish(
    manifest: Manifest, files: Mapping[str, Path], artifact_uri: str, *, replace_unfinished: bool
) -> str:
    output_uri, folder = split_uri(artifact_uri)
    return publish_in(open_store(output_uri), folder, manifest, files, replace_unfinished=replace_unfinished)


def keys(store: ArtifactStore) -> set[str]:
    return {file.key for file in store.list()}


def test_a_published_artifact_reads_back(
    artifact_uri: str, manifest: Manifest, files: dict[str, Path], tmp_path: Path
) -> None:
    uri = publish(manifest, files, artifact_uri, replace_unfinished=False)
    assert uri == f"{artifact_uri}/manifest.json"
    assert read_manifest(uri) == read_manifest(artifact_uri) == read_manifest(artifact_uri + "/") == manifest
    folder = fetch_tower(artifact_uri, TowerName.ITEM, tmp_path / "here")
    assert folder == tmp_path / "here" / "item"
    for name in TOWER_FILES:
        assert (folder / name).read_text() == f"{name} of item"
    assert not (tmp_path / "here" / "user").exists()


def test_item_vectors_are_published_and_not_fetched_to_run_the_tower(
    artifact_uri: str, manifest: Manifest, files: dict[str, Path], tmp_path: Path
) -> None:
    path, local = "item/vectors/part-00000.parquet", tmp_path / "part"
    local.write_text("vectors")
    user, item = manifest.towers
    vectors = VectorsEntry(
        files=(file_ref(path, local),),
        rows=1,
        id_column="id",
        id_type="int64",
        vector_column="vector",
        width=1,
        dtype="float32",
        output="emb",
        checked_rows=1,
        tolerance=1e-5,
        largest_difference=0.0,
        scale=1.0,
        seconds=1.0,
        rows_per_second=1.0,
        peak_memory_bytes=1,
    )
    with_vectors = manifest.model_copy(
        update={"towers": (user, item.model_copy(update={"vectors": vectors}))}
    )
    publish(with_vectors, {**files, path: local}, artifact_uri, replace_unfinished=False)
    output, name = split_uri(artifact_uri)
    assert f"{name}/{path}" in keys(open_store(output))
    fetch_tower(artifact_uri, TowerName.ITEM, tmp_path / "here")
    assert not (tmp_path / "here" / "item" / "vectors").exists()


def test_the_layout_is_that_of_torcheasyrecs_servers(
    store: ArtifactStore, manifest: Manifest, files: dict[str, Path]
) -> None:
    publish_in(store, "job1", manifest, files, replace_unfinished=False)
    expected = {f"job1/{tower}/{name}" for tower in ("user", "item") for name in TOWER_FILES}
    assert keys(store) == expected | {"job1/manifest.json"}


def test_the_manifest_is_uploaded_last(manifest: Manifest, files: dict[str, Path]) -> None:
    written: list[str] = []

    class Recording(MemoryStore):
        def write(self, source: BinaryIO, size: int, key: str, on_sent: OnSent = ignore_sent) -> None:
            written.append(key)
            super().write(source, size, key, on_sent)

    publish_in(Recording(), "job1", manifest, files, replace_unfinished=False)
    assert len(written) == 9
    assert written[-1] == "job1/manifest.json"


def test_progress_runs_to_the_total(store: ArtifactStore, manifest: Manifest, files: dict[str, Path]) -> None:
    seen: list[tuple[int, int]] = []
    alone = manifest.model_copy(update={"towers": manifest.towers[:1]})
    publish_in(
        store, "job1", alone, files, replace_unfinished=False, on_progress=lambda *now: seen.append(now)
    )
    total = sum(path.stat().st_size for name, path in files.items() if name.startswith("user"))
    assert seen == sorted(seen)
    assert seen[-1] == (total, total)


@pytest.mark.parametrize("replace_unfinished", [True, False])
def test_a_published_artifact_is_never_overwritten(
    replace_unfinished: bool, store: ArtifactStore, manifest: Manifest, files: dict[str, Path]
) -> None:
    publish_in(store, "job1", manifest, files, replace_unfinished=False)
    before = {key: store.sha256(key) for key in keys(store)}
    with pytest.raises(AlreadyPublished, match="job1 is published"):
        publish_in(store, "job1", manifest, files, replace_unfinished=replace_unfinished)
    assert {key: store.sha256(key) for key in keys(store)} == before


def test_what_a_dead_attempt_left_is_replaced_by_the_holder_of_the_lease(
    store: ArtifactStore, manifest: Manifest, files: dict[str, Path]
) -> None:
    for key in ("job1/user/aoti/aoti_model.pt2", "job1/model/odd", "job10/other"):
        store.put_bytes(b"left", key)
    publish_in(store, "job1", manifest, files, replace_unfinished=True)
    assert store.read("job1/user/aoti/aoti_model.pt2") == b"aoti/aoti_model.pt2 of user"
    assert "job1/model/odd" not in keys(store)
    assert "job10/other" in keys(store)


def test_who_has_lost_the_job_removes_nothing_that_lies_there(
    store: ArtifactStore, manifest: Manifest, files: dict[str, Path]
) -> None:
    newer, (user, _) = "job1/user/fg.json", manifest.towers
    own = {path: local for path, local in files.items() if path.startswith("user/")}
    rights = iter([None])  # one, which is gone once it has been seen that there is no manifest

    def right() -> None:
        if next(rights, "lost") == "lost":
            raise LeaseUnproven("another has the job")

    store.put_bytes(b"the newer attempt's", newer)
    for _ in range(2):
        with pytest.raises(LeaseUnproven):
            upload_tower_to_store(store, "job1", user, own, replace_unfinished=True, may_upload=right)
    assert store.read(newer) == b"the newer attempt's"


def test_what_another_attempt_left_is_in_the_way_of_anyone_else(
    store: ArtifactStore, manifest: Manifest, files: dict[str, Path]
) -> None:
    store.put_bytes(b"left", "job1/user/fg.json")
    with pytest.raises(AlreadyPublished, match=r"holds 1 files .* did not finish, the first job1/user/fg"):
        publish_in(store, "job1", manifest, files, replace_unfinished=False)
    assert keys(store) == {"job1/user/fg.json"}


def test_a_failed_upload_removes_only_what_it_sent(
    store: ArtifactStore, manifest: Manifest, files: dict[str, Path]
) -> None:
    rival = "job1/item/fg.json"

    def overtake(sent: int, total: int) -> None:
        if not store.exists(rival):
            store.put_bytes(b"a straggler's", rival)

    _, item = manifest.towers
    with pytest.raises(AlreadyPublished, match="item/fg"):
        publish_in(store, "job1", only(item, manifest), files, replace_unfinished=False, on_progress=overtake)
    assert keys(store) == {rival}


def test_nothing_is_removed_once_a_manifest_stands(
    store: ArtifactStore, manifest: Manifest, files: dict[str, Path]
) -> None:
    def overtake(sent: int, total: int) -> None:
        if sent == total:
            store.put_bytes(b"a straggler's", "job1/manifest.json")

    user, _ = manifest.towers
    with pytest.raises(AlreadyPublished, match="is published"):
        publish_in(store, "job1", only(user, manifest), files, replace_unfinished=True, on_progress=overtake)
    assert len(keys(store)) == 5


def test_a_manifest_does_not_stand_without_its_files(manifest: Manifest, files: dict[str, Path]) -> None:
    class Clearing(MemoryStore):
        def put_bytes(self, data: bytes, key: str, *, within: timedelta | None = None) -> None:
            self.delete_prefix("job1")  # as an attempt does that has the job by now
            super().put_bytes(data, key)

    store = Clearing()
    with pytest.raises(StorageError, match="was removed while its manifest was written"):
        publish_in(store, "job1", manifest, files, replace_unfinished=False)
    assert keys(store) == set()


class Slow(MemoryStore):
    """Its first answer to a manifest does not come in time, whether that was written or not."""

    def __init__(self, *, writes: bool) -> None:
        super().__init__()
        self.writes = writes
        self.withins: list[timedelta | None] = []

    def put_bytes(self, data: bytes, key: str, *, within: timedelta | None = None) -> None:
        self.withins.append(within)
        if self.writes or len(self.withins) > 1:
            super().put_bytes(data, key)
        if len(self.withins) == 1:
            raise StorageError("no answer in time")


@pytest.mark.parametrize("writes", [True, False])
def test_each_try_to_write_the_manifest_has_as_long_as_the_right_to_it_lasts(
    writes: bool, manifest: Manifest, files: dict[str, Path]
) -> None:
    store, rights = Slow(writes=writes), iter([timedelta(seconds=each) for each in (30, 20, 50)])
    user, _ = manifest.towers
    own = {path: local for path, local in files.items() if path.startswith("user/")}
    sent = upload_tower_to_store(store, "job1", user, own, replace_unfinished=False)
    alone = only(user, manifest)
    publish_manifest_to_store(
        store, "job1", alone, sent, replace_unfinished=False, before_manifest=lambda: next(rights)
    )
    assert store.withins == [timedelta(seconds=20), timedelta(seconds=50)]
    assert Manifest.model_validate_json(store.read("job1/manifest.json")) == alone


def test_without_the_right_to_it_no_manifest_is_written_and_nothing_is_left(
    manifest: Manifest, files: dict[str, Path]
) -> None:
    store, rights = Slow(writes=False), iter([timedelta(seconds=30)] * 2)
    user, _ = manifest.towers
    own = {path: local for path, local in files.items() if path.startswith("user/")}
    sent = upload_tower_to_store(store, "job1", user, own, replace_unfinished=False)

    def right() -> timedelta:
        for each in rights:
            return each
        raise LeaseUnproven("another has the job")

    with pytest.raises(LeaseUnproven):
        publish_manifest_to_store(
            store, "job1", only(user, manifest), sent, replace_unfinished=False, before_manifest=right
        )
    assert keys(store) == set()


def test_what_another_attempt_put_in_its_place_is_not_published_and_not_removed(
    tmp_path: Path, manifest: Manifest, files: dict[str, Path]
) -> None:
    store, (user, _) = open_store(str(tmp_path / "out")), manifest.towers
    own = {path: local for path, local in files.items() if path.startswith("user/")}
    sent = upload_tower_to_store(store, "job1", user, own, replace_unfinished=False)
    newer = upload_tower_to_store(store, "job1", user, own, replace_unfinished=True)
    with pytest.raises(StorageError, match="is not the file that was uploaded there"):
        publish_manifest_to_store(store, "job1", only(user, manifest), sent, replace_unfinished=False)
    assert keys(store) == {file.key for file in newer}
    remove_uploads(newer, store.uri_of("job1"))
    assert keys(store) == set()


def test_what_is_equal_to_the_byte_is_the_newer_attempt_s_all_the_same(
    artifact_uri: str, manifest: Manifest, files: dict[str, Path]
) -> None:
    output_uri, folder = split_uri(artifact_uri)
    store, (user, _) = open_store(output_uri), manifest.towers
    own = {path: local for path, local in files.items() if path.startswith("user/")}
    sent = upload_tower_to_store(store, folder, user, own, replace_unfinished=False)
    newer = upload_tower_to_store(store, folder, user, own, replace_unfinished=True)
    remove_uploads(sent, artifact_uri)
    assert keys(store) == {file.key for file in newer}
    remove_uploads(newer, artifact_uri)
    assert keys(store) == set()


def test_what_was_sent_is_removed_only_where_it_is_no_artifact(
    artifact_uri: str, manifest: Manifest, files: dict[str, Path]
) -> None:
    output_uri, folder = split_uri(artifact_uri)
    store, (user, _) = open_store(output_uri), manifest.towers
    own = {path: local for path, local in files.items() if path.startswith("user/")}
    sent = upload_tower_to_store(store, folder, user, own, replace_unfinished=False)
    remove_unfinished_artifact(artifact_uri)
    assert keys(store) == set()
    sent = upload_tower_to_store(store, folder, user, own, replace_unfinished=False)
    publish_manifest_to_store(store, folder, only(user, manifest), sent, replace_unfinished=False)
    remove_unfinished_artifact(artifact_uri)
    remove_uploads(sent, artifact_uri)
    assert len(keys(store)) == 5


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"X" + data[1:]])
def test_a_file_that_arrives_damaged_is_not_published(
    damage: Callable[[bytes], bytes], manifest: Manifest, files: dict[str, Path]
) -> None:
    class Damaging(MemoryStore):
        def write(self, source: BinaryIO, size: int, key: str, on_sent: OnSent = ignore_sent) -> None:
            super().write(io.BytesIO(damage(source.read())), size, key, on_sent)

    store = Damaging()
    with pytest.raises(StorageError, match=r"job1/user/aoti/aoti_model.pt2 was not stored") as failure:
        publish_in(store, "job1", manifest, files, replace_unfinished=False)
    assert failure.value.retryable
    assert keys(store) == set()


def test_files_and_manifest_must_agree(manifest: Manifest, files: dict[str, Path]) -> None:
    store = MemoryStore()
    lacking = {path: local for path, local in files.items() if path != "user/fg.json"}
    for wrong in (lacking, {**files, "user/extra": files["user/fg.json"]}):
        with pytest.raises(InvalidArtifact, match=r"disagree on user/(fg\.json|extra)"):
            publish_in(store, "job1", manifest, wrong, replace_unfinished=False)
    user, item = manifest.towers
    with pytest.raises(InvalidArtifact, match="names a file twice, or another tower's"):
        upload_tower_to_store(
            store, "job1", user.model_copy(update={"package": item.package}), files, replace_unfinished=False
        )
    files["user/fg.json"].write_text("changed since")
    with pytest.raises(InvalidArtifact, match="is not the file"):
        publish_in(store, "job1", manifest, files, replace_unfinished=False)
    assert keys(store) == set()


@pytest.mark.parametrize("name", ["aoti/aoti_model.pt2", "fg.json"])
def test_a_damaged_or_missing_file_is_refused(
    name: str, artifact_uri: str, manifest: Manifest, files: dict[str, Path], tmp_path: Path
) -> None:
    publish(manifest, files, artifact_uri, replace_unfinished=False)
    store, key = open_store(artifact_uri), f"user/{name}"
    store.delete(key)
    with pytest.raises(InvalidArtifact, match="is missing, though the manifest names it"):
        fetch_tower(artifact_uri, TowerName.USER, tmp_path / "here")
    store.put_bytes(files[key].read_bytes()[:-1] + b"X", key)
    with pytest.raises(InvalidArtifact, match="is damaged"):
        fetch_tower(artifact_uri, TowerName.USER, tmp_path / "here")
    assert not (tmp_path / "here" / key).exists()


def test_a_tower_the_artifact_lacks_is_named(
    artifact_uri: str, manifest: Manifest, files: dict[str, Path], tmp_path: Path
) -> None:
    publish(manifest, files, artifact_uri, replace_unfinished=False)
    with pytest.raises(InvalidArtifact, match="no model tower") as refusal:
        fetch_tower(artifact_uri, TowerName.MODEL, tmp_path)
    assert refusal.value.hint == "its towers: user, item"


def test_a_folder_without_a_manifest_is_no_artifact(artifact_uri: str) -> None:
    open_store(artifact_uri).put_bytes(b"", "user/fg.json")
    with pytest.raises(InvalidArtifact, match=r"not an artifact: it has no manifest\.json"):
        read_manifest(artifact_uri)


@pytest.mark.parametrize(
    ("text", "reason"), [("not json", "Invalid JSON"), ('{"version": 2}', "version"), ("{}", "job_id")]
)
def test_a_manifest_that_does_not_parse_says_why(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(InvalidArtifact, match=reason):
        read_manifest(str(tmp_path))


def test_a_package_path_cannot_leave_the_download_folder(
    artifact_uri: str, manifest: Manifest, tmp_path: Path
) -> None:
    outside = FileRef(path="../../outside", size=0, sha256=hashlib.sha256().hexdigest())
    user = manifest.towers[0].model_copy(update={"package": outside})
    hostile = manifest.model_copy(update={"towers": (user,)})
    folder, name = split_uri(artifact_uri)
    open_store(folder).put_bytes(hostile.model_dump_json().encode(), f"{name}/manifest.json")
    with pytest.raises(InvalidArtifact, match=r"\.\./\.\./outside"):
        fetch_tower(artifact_uri, TowerName.USER, tmp_path / "a" / "b")
    assert not (tmp_path / "outside").exists()
