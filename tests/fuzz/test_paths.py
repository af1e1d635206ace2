"""No URI that is accepted reads or writes anything outside of the places of its key, whatever links are laid.

Each drawn URI is judged as at submit and as in the attempt. Where it is accepted, the real stores read what
it names, or write a small artifact there and perhaps remove it again.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from secrets import token_hex

import pytest

from exporter.artifact.read import file_ref
from exporter.artifact.upload import remove_unfinished_artifact, upload_file
from exporter.construction.input_limits import list_checkpoint_files
from exporter.data.parquet import open_parquet
from exporter.errors import ExportError
from exporter.spec import ExportSpec
from exporter.storage.object_store import ObjectStore
from exporter.storage.open import local_path, open_store, read_uri
from exporter.storage.uris import require_sound_uris, uris_of
from tests.fuzz.paths import FILES, OWN, SECRET, Case, Sandbox, draw_case

SEED = 20_260
FEW, MANY = (292, 8), (9_000, 1_000)  # paths, and keys of an object store
CODES = {"invalid_spec", "uri_not_allowed", "storage_error", "source_not_found", "already_published"}


@dataclass
class Tally:
    """The numbers of cases, by how they ended."""

    refused: int = 0
    written: int = 0
    read: int = 0
    ended: int = 0  # accepted, and stopped by the store or found to name nothing
    harmless: int = 0
    said: set[str] = field(default_factory=set)


@pytest.fixture
def sandbox(tmp_path: Path, s3_uri: str, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    bucket = s3_uri.removeprefix("s3://").partition("/")[0]
    sandbox = Sandbox(top=tmp_path / "top", bucket=bucket)
    sandbox.build()
    for place, data in (("team", OWN), ("team-2", SECRET), ("other", SECRET), ("Team", SECRET)):
        store = open_store(f"s3://{bucket}/{place}")
        for name in FILES if data is OWN else FILES[:1]:
            store.put_bytes(data, name)
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    return sandbox


@pytest.mark.parametrize(
    "numbers", [pytest.param(FEW, id="few"), pytest.param(MANY, id="many", marks=pytest.mark.fuzz)]
)
def test_no_uri_leads_out_of_the_places_of_its_key(
    numbers: tuple[int, int], sandbox: Sandbox, tmp_path: Path
) -> None:
    random, tally = Random(SEED), Tally()
    (local := tmp_path / "package").write_bytes(OWN)
    sandbox.build_team()
    before, keys = sandbox.snapshot(), others_keys(sandbox)
    for is_remote, number in enumerate(numbers):
        for _ in range(number):
            case = draw_case(random, sandbox, is_remote=bool(is_remote))
            has_written = try_case(case, sandbox, local, tally, removes=random.random() < 0.5)
            if has_written and is_remote:
                assert others_keys(sandbox) == keys, case
            elif has_written:
                assert sandbox.snapshot() == before, case
                sandbox.build_team()
    print(f"seed {SEED}: {tally}")  # noqa: T201 (for who runs it)
    assert not list((tmp_path / "cwd").iterdir())
    assert tally.said <= CODES
    assert min(tally.refused, tally.written, tally.read, tally.ended, tally.harmless) > 0.02 * sum(numbers)


def try_case(case: Case, sandbox: Sandbox, local: Path, tally: Tally, *, removes: bool) -> bool:
    """Judge a case and carry it out; return whether anything may have been written."""
    try:
        spec = ExportSpec.model_validate(
            {"config_uri": str(sandbox.team / "f"), "checkpoint_uri": str(sandbox.team / "f")}
            | {"output_uri": str(sandbox.team / "out"), case.field: case.uri}
        )
        require_sound_uris(spec)
        sandbox.places.rules.require(uris_of(spec))
        sandbox.places.folders.require(uris_of(spec))
    except ExportError as error:
        if case.is_harmless:
            raise
        tally.refused += 1
        tally.said.add(error.code)
        return False
    path = local_path(case.uri)
    assert path is None or case.field == "item_input_uri" or sandbox.is_own(path), case
    try:
        if case.field == "output_uri":
            write(case, sandbox, local, removes=removes)
            tally.written += 1
        else:
            sandbox.places.require_within(spec)
            for data, path in read(case):
                assert data == OWN, case
                assert path is None or sandbox.is_own(path), case
                tally.read += 1
    except ExportError as error:
        if case.is_harmless:
            raise
        tally.ended += 1
        tally.said.add(error.code)
    tally.harmless += case.is_harmless
    return case.field == "output_uri"


def write(case: Case, sandbox: Sandbox, local: Path, *, removes: bool) -> None:
    """Publish a small artifact as an attempt does, or clear its folder as a worker does."""
    opened = partial(sandbox.places.open_output, case.uri)
    store = opened(case.uri)
    store.require_writable()
    sandbox.lay_link(case)
    job = "job" if local_path(case.uri) else f"job-{token_hex(8)}"  # keys stay, and folders are made anew
    artifact = f"{case.uri.rstrip('/')}/{job}"
    with suppress(ExportError):  # into the place that was open before a link was laid
        store.put_bytes(OWN, f"{job}/item/f")
    try:
        upload_file(file_ref("user/f", local), local, artifact, replace_unfinished=True, opened=opened)
    finally:
        if removes:
            remove_unfinished_artifact(artifact, opened=opened)
    if not removes:
        opened(case.uri).put_bytes(b"{}", f"{job}/manifest.json")
        path = local_path(artifact)
        assert path is None or sandbox.is_own(path / "manifest.json"), case


def read(case: Case) -> Iterator[tuple[bytes, Path | None]]:
    """Yield the bytes of every file that the URI names, with its path if it has one."""
    if case.field == "config_uri":
        yield read_uri(case.uri), local_path(case.uri)
    elif case.field == "checkpoint_uri":
        for file in list_checkpoint_files(case.uri):
            is_file = file.local is None and case.uri.endswith(file.name)
            where = case.uri if is_file else f"{case.uri.rstrip('/')}/{file.name}"
            yield (file.local.read_bytes() if file.local else read_uri(where)), file.local
    else:
        for rows in open_parquet(case.uri).files:
            yield rows.store.read(rows.stored.key), local_path(rows.uri)


def others_keys(sandbox: Sandbox) -> list[tuple[str, str]]:
    store = open_store(f"s3://{sandbox.bucket}")
    assert isinstance(store, ObjectStore)
    return [(file.key, file.version) for file in store.list() if not file.key.startswith("team/")]
