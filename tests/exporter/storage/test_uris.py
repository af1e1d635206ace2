"""Where requests may point: credentials, deceiving names, prefixes of a key, folders of the machine."""

from pathlib import Path

import pytest

from exporter.errors import InvalidPipelineConfig, InvalidSpec, UriNotAllowed
from exporter.spec import ExportSpec
from exporter.storage.uris import (
    FileRoots,
    UriRules,
    require_no_credentials_in,
    require_sound_uris,
    uris_of,
)

FIELDS = ["config_uri", "checkpoint_uri", "item_input_uri", "sample_input_uri", "output_uri"]


def spec_of(**uris: str) -> ExportSpec:
    return ExportSpec.model_validate(
        {"config_uri": "s3://in/c", "checkpoint_uri": "s3://in/k", "output_uri": "s3://out/o", **uris}
    )


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(
    "uri",
    [
        "s3://AKIA:planted@bucket/key",
        "https://user@host/x",
        "https://host/x?X-Amz-Signature=planted&X-Amz-Expires=1",
        "s3://bucket/key?AWSAccessKeyId=planted&a=1",
        "https://host/x?sig=1;access_token=planted",
    ],
)
def test_credentials_are_refused_and_not_repeated(field: str, uri: str) -> None:
    with pytest.raises(InvalidSpec, match=f"{field} holds credentials") as refused:
        require_sound_uris(spec_of(**{field: uri}))
    assert "planted" not in f"{refused.value.message} {refused.value.hint} {refused.value.where}"


@pytest.mark.parametrize("sign", ["\0", "\n", "\x1b[2J", "\u202e", "\u2066", "\x7f", "\u200f"])
def test_names_that_deceive_are_refused(sign: str) -> None:
    with pytest.raises(InvalidSpec, match="output_uri holds control characters"):
        require_sound_uris(spec_of(output_uri=f"s3://out/a{sign}b"))


@pytest.mark.parametrize("uri", ["s3://b/a/../../other", "s3://b/.."])
def test_object_stores_are_not_climbed(uri: str) -> None:
    with pytest.raises(InvalidSpec, match="climbs"):
        require_sound_uris(spec_of(checkpoint_uri=uri))


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("uri", ["gs://bucket/a", "https://host/a", "file://elsewhere/a", "s3://", "s3:///a"])
def test_a_store_that_nobody_knows_is_refused_before_anything_runs(field: str, uri: str) -> None:
    with pytest.raises(InvalidSpec, match=f"{field} names {uri}, which is in no store") as refused:
        require_sound_uris(spec_of(**{field: uri}))
    assert refused.value.where == field


def test_a_blank_is_no_place() -> None:
    with pytest.raises(InvalidSpec, match="output_uri is blank"):
        require_sound_uris(spec_of(output_uri=" "))


@pytest.mark.parametrize("uri", ["/a/b@c/x?.parquet", "s3://b/день/模型-[0-9].parquet", "../beside", "a,b"])
def test_usual_names_are_sound(uri: str) -> None:
    require_sound_uris(spec_of(sample_input_uri=uri))


def test_a_password_in_a_config_is_refused_with_its_line() -> None:
    with pytest.raises(InvalidPipelineConfig, match="config:2: a URI holds a password") as refused:
        require_no_credentials_in('a\ntrain_input_path: "odps://id:planted@project/table"', "config")
    assert "planted" not in refused.value.message
    require_no_credentials_in('train_input_path: "s3://bucket/a:b/c@d"', "config")


class TestRules:
    rules = UriRules(inputs=("s3://in/team", "file:///data"), outputs=("s3://out",))

    @pytest.mark.parametrize(
        "uri", ["s3://in/team", "s3://in/team/a", "/data/x", "file:///data/y", "/data/../data/z"]
    )
    def test_what_lies_below_a_prefix_may_be_read(self, uri: str) -> None:
        self.rules.require(uris_of(spec_of(config_uri="s3://in/team/c", checkpoint_uri=uri)))

    @pytest.mark.parametrize(
        "uri",
        [
            "s3://in/teams",
            "s3://in",
            "s3://inn/team/a",
            "/data/../etc/passwd",
            "/database",
            "file:///etc/passwd",
            "file://localhost/etc/passwd",
            "file:///data/%2e%2e/etc/passwd",
            "https://in/team/a",
            "relative",
        ],
    )
    def test_nothing_else_may(self, uri: str) -> None:
        with pytest.raises(UriNotAllowed, match="checkpoint_uri"):
            self.rules.require(uris_of(spec_of(config_uri="s3://in/team/c", checkpoint_uri=uri)))

    def test_each_of_several_rows_is_judged(self) -> None:
        rows = "s3://in/team/a.parquet, s3://in/other/b.parquet"
        with pytest.raises(UriNotAllowed, match="s3://in/other"):
            self.rules.require(
                uris_of(spec_of(config_uri="s3://in/team/c", checkpoint_uri="/data/k", sample_input_uri=rows))
            )

    def test_reading_is_not_writing(self) -> None:
        with pytest.raises(UriNotAllowed, match="output_uri .* may write"):
            UriRules(outputs=("s3://elsewhere",)).require(uris_of(spec_of()))

    @pytest.mark.parametrize("prefix", ["s3://", "file:///"])
    def test_a_scheme_alone_allows_all_of_it(self, prefix: str) -> None:
        rules = UriRules(inputs=(prefix,))
        uri = "s3://any/thing" if prefix == "s3://" else "/any/thing"
        rules.require(uris_of(spec_of(config_uri=uri, checkpoint_uri=uri)))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "rows").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "x.parquet").touch()
    return tmp_path / "root"


class TestFolders:
    def refused(self, root: Path, uri: str) -> None:
        folders = FileRoots(roots=(root,))
        with pytest.raises(UriNotAllowed, match="checkpoint_uri"):
            folders.require_within(spec_of(checkpoint_uri=uri))

    def test_what_lies_below_may_be_named(self, root: Path) -> None:
        folders = FileRoots(roots=(root,))
        folders.require_within(
            spec_of(checkpoint_uri=str(root / "rows"), output_uri=f"file://{root}/new/folder")
        )

    def test_a_path_that_climbs_is_refused(self, root: Path) -> None:
        self.refused(root, f"{root}/rows/../../secret")
        self.refused(root, f"file://{root}/rows/%2e%2e/%2e%2e/secret")

    def test_a_link_that_leads_out_is_refused(self, root: Path) -> None:
        (root / "way_out").symlink_to(root.parent / "secret")
        self.refused(root, f"{root}/way_out")
        self.refused(root, f"{root}/way_out/not_there_yet")

    def test_a_link_inside_of_a_checkpoint_is_refused(self, root: Path) -> None:
        (root / "model").mkdir()
        (root / "model" / "__0_0.distcp").symlink_to("/etc/passwd")
        self.refused(root, str(root))
        (root / "model" / "__0_0.distcp").unlink()
        (root / "model" / "deep").symlink_to(root.parent / "secret")
        self.refused(root, str(root))

    def test_a_link_that_stays_is_followed(self, root: Path) -> None:
        (root / "latest").symlink_to(root / "rows")
        FileRoots(roots=(root,)).require_within(spec_of(checkpoint_uri=f"{root}/latest"))

    def test_a_pattern_that_leads_out_is_refused(self, root: Path) -> None:
        (root / "rows" / "out").symlink_to(root.parent / "secret")
        folders = FileRoots(roots=(root,))
        with pytest.raises(UriNotAllowed, match="item_input_uri"):
            folders.require_within(spec_of(item_input_uri=f"{root}/rows/*/x.parquet"))

    def test_a_root_may_itself_be_reached_by_a_link(self, root: Path) -> None:
        (root.parent / "alias").symlink_to(root)
        folders = FileRoots(roots=(root.parent / "alias",))
        folders.require_within(spec_of(checkpoint_uri=str(root / "rows")))

    def test_no_folder_is_no_path_and_any_object_store(self) -> None:
        nowhere = FileRoots(roots=())
        nowhere.require_within(spec_of())
        with pytest.raises(UriNotAllowed):
            nowhere.require_within(spec_of(output_uri="/out"))
