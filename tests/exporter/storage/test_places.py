"""Outputs of jobs: judged whenever they are opened, and reached without a link that was laid afterwards."""

import os
from pathlib import Path

import pytest

from exporter.errors import AlreadyPublished, UriNotAllowed
from exporter.storage.open import split_uri
from exporter.storage.places import EVERYWHERE, Places
from exporter.storage.uris import FileRoots, UriRules


@pytest.fixture
def sandbox(tmp_path: Path) -> Path:
    """Roots with the folders of two teams, and a folder outside."""
    for name in ("roots/team/out", "roots/other", "outside"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "outside" / "kept").write_bytes(b"kept")
    return tmp_path


@pytest.fixture
def places(sandbox: Path) -> Places:
    """The places of a key that is bound to the folder of its team."""
    prefix = (str(sandbox / "roots" / "team"),)
    return Places(
        folders=FileRoots(roots=(sandbox / "roots",)), rules=UriRules(inputs=prefix, outputs=prefix)
    )


def files_of(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("output", ["team/out", "team/out/new", "team/../team/out", "team/x[1]", "other/in"])
def test_an_output_below_the_prefix_is_written(sandbox: Path, places: Places, output: str) -> None:
    (sandbox / "roots" / "other" / "in").symlink_to(sandbox / "roots" / "team" / "out")  # leads back
    uri = str(sandbox / "roots" / output)
    store = places.open_output(uri, f"{uri}/job")
    store.put_bytes(b"1", "user/file")
    assert (store.read("user/file"), [file.key for file in store.list()]) == (b"1", ["user/file"])
    store.delete_prefix("user")
    assert files_of(sandbox) == {"outside/kept"}


@pytest.mark.parametrize("target", ["outside", "roots/other"], ids=["of the roots", "of the prefix"])
@pytest.mark.parametrize("link", ["roots/team/out", "roots/team"])
def test_an_output_that_has_become_a_link_out_is_refused(
    sandbox: Path, places: Places, link: str, target: str
) -> None:
    """The API has accepted the output, and whoever can write beside it has replaced it since."""
    output = str(sandbox / "roots" / "team" / "out")
    places.open_output(output, output)
    (sandbox / link).rename(sandbox / "moved")
    (sandbox / link).symlink_to(sandbox / target)
    if target == "roots/other" and link == "roots/team":
        return  # the prefix itself leads there now: that is up to who administers the folders
    with pytest.raises(UriNotAllowed):
        places.open_output(output, output)


@pytest.mark.parametrize("name", ["", "job", "job/user", "job/user/file"])
@pytest.mark.parametrize("target", ["outside", "outside/kept", "outside/absent", "roots/other", "loop"])
def test_a_link_that_is_laid_after_the_judgement_is_not_followed(
    sandbox: Path, places: Places, name: str, target: str
) -> None:
    output = sandbox / "roots" / "team" / "out"
    store = places.open_output(str(output), str(output))
    link = output / name
    link.parent.mkdir(parents=True, exist_ok=True)
    if not name:
        output.rmdir()
    link.symlink_to(link if target == "loop" else sandbox / target)
    before = files_of(sandbox)
    with pytest.raises(AlreadyPublished if name == "job/user/file" else UriNotAllowed) as refused:
        store.put_bytes(b"x", "job/user/file")
    for use in (store.read, store.stat, store.delete_prefix, store.list, store.open_file):
        with pytest.raises(UriNotAllowed):
            use("job/user/file" if name else "job")
    assert not refused.value.retryable
    assert files_of(sandbox) == before


def test_a_folder_outside_of_the_output_is_not_opened(sandbox: Path) -> None:
    output = str(sandbox / "roots")
    for uri in (str(sandbox), f"{output}/../outside", f"{output}-2", "relative", "s3://bucket/key"):
        with pytest.raises(UriNotAllowed, match="does not lie in the job's output"):
            EVERYWHERE.open_output(output, uri)
    for uri in ("s3://bucket/team-2", "s3://bucket", str(sandbox)):
        with pytest.raises(UriNotAllowed, match="does not lie in the job's output"):
            EVERYWHERE.open_output("s3://bucket/team", uri)


@pytest.mark.parametrize("output", [".", "roots/", "./roots/../roots", "link"])
def test_what_was_published_in_a_relative_output_is_opened(
    sandbox: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    monkeypatch.chdir(sandbox)
    (sandbox / "link").symlink_to("roots")
    store = EVERYWHERE.open_output(output, f"{output.rstrip('/')}/job")
    store.put_bytes(b"{}", "manifest.json")
    folder, key = split_uri(store.uri_of("manifest.json"))  # absolute, and so recorded as `manifest_uri`
    assert EVERYWHERE.open_output(output, folder).read(key) == b"{}"


def test_links_in_what_is_listed_are_listed_and_not_followed(sandbox: Path) -> None:
    output = sandbox / "roots" / "team" / "out"
    (output / "job").mkdir()
    (output / "job" / "file").symlink_to(sandbox / "outside" / "kept")
    (output / "job" / "folder").symlink_to(sandbox / "outside")
    os.mkfifo(output / "job" / "pipe")
    store = EVERYWHERE.open_output(str(output), str(output))
    assert [file.key for file in store.list()] == ["job/file"]
    assert store.list("job/pipe") == store.list("absent") == ()
    store.delete_prefix("job")
    assert files_of(sandbox) == {"outside/kept"}
