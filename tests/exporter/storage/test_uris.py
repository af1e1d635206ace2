"""Where requests may point: credentials, deceiving names, prefixes of a key, folders of the machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.errors import InvalidPipelineConfig, InvalidSpec, UriNotAllowed
from exporter.options.release_gate import ReleaseGate
from exporter.spec import ExportSpec
from exporter.storage.open import SCHEMES
from exporter.storage.places import Places
from exporter.storage.uris import (
    FileRoots,
    NamedUri,
    UriRules,
    require_no_credentials_in,
    require_sound_uris,
    uris_of,
)

FIELDS = ["config_uri", "checkpoint_uri", "item_input_uri", "sample_input_uri", "assets_uri", "output_uri"]


def spec_of(**uris: str) -> ExportSpec:
    return ExportSpec.model_validate(
        {"config_uri": "s3://in/c", "checkpoint_uri": "s3://in/k", "output_uri": "s3://out/o", **uris}
    )


def gate_rows(uri: str) -> Iterator[NamedUri]:
    given = spec_of().model_copy(update={"release_gate": ReleaseGate(rows_uri=uri)})
    return (named for named in uris_of(given) if named.field == "release_gate.rows_uri")


@pytest.mark.parametrize("uri", ["s3://AKIA:planted@bucket/", "s3://b/../", "ftp://host/"])
def test_unsound_rows_of_a_release_gate_are_refused(uri: str) -> None:
    with pytest.raises(InvalidSpec, match="release_gate.rows_uri") as refused:
        list(map(NamedUri.require_sound, gate_rows(f"s3://rows/a.parquet,{uri}x")))
    assert "planted" not in refused.value.message


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(
    "uri",
    [
        "s3://AKIA:planted@bucket/key",
        "https://user@host/x",
        "https://host/x?X-Amz-Signature=planted&X-Amz-Expires=1",
        "az://container/x?sv=2026&sig=planted",
        "az://container@account.blob.core.windows.net/planted",
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
@pytest.mark.parametrize(
    "uri", ["ftp://bucket/a", "https://host/a", "file://elsewhere/a", "s3://", "s3:///a"]
)
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

    def test_the_rows_of_a_release_gate_are_judged_like_any_rows(self) -> None:
        named = list(gate_rows("s3://rows/feed/*.parquet, s3://other/feed/x.parquet"))
        assert [each.may_be_pattern for each in named] == [True, True]
        with pytest.raises(UriNotAllowed, match=r"release_gate.rows_uri names s3://other/feed/x.parquet"):
            UriRules(inputs=("s3://rows/feed",)).require(named)

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


def within(*roots: Path) -> Places:
    return Places(folders=FileRoots(roots=roots))


class TestFolders:
    def refused(self, root: Path, uri: str) -> None:
        with pytest.raises(UriNotAllowed, match="checkpoint_uri"):
            within(root).require_within(spec_of(checkpoint_uri=uri))

    def test_what_lies_below_may_be_named(self, root: Path) -> None:
        within(root).require_within(
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
        within(root).require_within(spec_of(checkpoint_uri=f"{root}/latest"))

    def test_a_pattern_that_leads_out_is_refused(self, root: Path) -> None:
        (root / "rows" / "out").symlink_to(root.parent / "secret")
        with pytest.raises(UriNotAllowed, match="item_input_uri"):
            within(root).require_within(spec_of(item_input_uri=f"{root}/rows/*/x.parquet"))

    def test_a_root_may_itself_be_reached_by_a_link(self, root: Path) -> None:
        (root.parent / "alias").symlink_to(root)
        within(root.parent / "alias").require_within(spec_of(checkpoint_uri=str(root / "rows")))

    def test_no_folder_is_no_path_and_any_object_store(self) -> None:
        nowhere = within()
        nowhere.require_within(spec_of())
        with pytest.raises(UriNotAllowed):
            nowhere.require_within(spec_of(output_uri="/out"))


class TestWholePaths:
    """Only rows may be patterns: every other URI is judged to its end."""

    @pytest.mark.parametrize("sign", ["[", "?", "*", "x[", "[a]", "*.parquet"])
    @pytest.mark.parametrize("field", ["config_uri", "checkpoint_uri", "output_uri"])
    def test_a_sign_of_a_pattern_hides_no_climb(self, root: Path, field: str, sign: str) -> None:
        uri = f"{root}/rows/{sign}/../../../secret"
        places = {"config_uri": str(root), "checkpoint_uri": str(root), "output_uri": str(root), field: uri}
        prefix = (str(root),)
        with pytest.raises(UriNotAllowed, match=field):
            FileRoots(roots=(root,)).require(uris_of(spec_of(**places)))
        with pytest.raises(UriNotAllowed, match=field):
            UriRules(inputs=prefix, outputs=prefix).require(uris_of(spec_of(**places)))

    def test_rows_are_judged_as_a_pattern_and_as_a_name(self, root: Path) -> None:
        folders, rules = FileRoots(roots=(root,)), UriRules(inputs=("s3://in", str(root)))
        for rows in (f"{root}/x[/../../secret/x.parquet", f"{root}*/x.parquet", f"{root}/../*/x.parquet"):
            spec = spec_of(item_input_uri=rows)
            for judge in (folders, rules):
                with pytest.raises(UriNotAllowed, match="item_input_uri"):
                    judge.require(uris_of(spec))

    def test_rows_do_not_climb_behind_a_sign(self) -> None:
        for rows in ("/data/*/../x.parquet", "a,/data/x[1]/../y.parquet"):
            with pytest.raises(InvalidSpec, match="sample_input_uri climbs with '..' behind"):
                require_sound_uris(spec_of(sample_input_uri=rows))

    def test_a_name_with_a_sign_may_be_written(self, root: Path) -> None:
        for name in ("x[1]", "what?", "a*b", "x[/../y"):
            spec = spec_of(output_uri=f"{root}/{name}")
            FileRoots(roots=(root,)).require(uris_of(spec))
            UriRules(outputs=(str(root),)).require(uris_of(spec))

    @pytest.mark.parametrize("rows", ["s3://in/p*d/x.parquet", "s3://in/pad*", "s3://*/pad/x"])
    def test_a_pattern_in_a_bucket_reaches_no_neighbour(self, rows: str) -> None:
        with pytest.raises(UriNotAllowed, match="item_input_uri"):
            UriRules(inputs=("s3://in/pad", "s3://in/p*d", "s3://in/c", "s3://in/k")).require(
                uris_of(spec_of(item_input_uri=rows))
            )

    @pytest.mark.parametrize(
        "uri",
        [
            *("s3://b/a//c", "s3://b//a", "s3://b/./a", "s3://b/a/%2e%2e/c", "s3://b/a/..%2fc"),
            *("s3://b/a/%252e%252e/c", "s3://b/a/..%255c..%255cc", "s3://b/a\\..\\c", "s3://b/%2E./c"),
        ],
    )
    def test_names_that_a_store_might_resolve_are_refused(self, uri: str) -> None:
        for field in FIELDS:
            with pytest.raises(InvalidSpec, match=field):
                require_sound_uris(spec_of(**{field: uri}))

    @pytest.mark.parametrize("uri", ["file:///a%00b", "file:///a%0ab", "file:///a%e2%80%aeb"])
    def test_what_deceives_is_found_behind_its_encoding(self, uri: str) -> None:
        with pytest.raises(InvalidSpec, match="output_uri holds control characters"):
            require_sound_uris(spec_of(output_uri=uri))

    def test_a_name_that_no_disk_takes_is_judged(self, root: Path) -> None:
        FileRoots(roots=(root,)).require(uris_of(spec_of(item_input_uri=f"{root}/*/{'n' * 300}")))

    @pytest.mark.parametrize("name", ["n" * 256, "é" * 128, "/n" * 2000])
    def test_a_name_that_no_disk_takes_is_refused(self, name: str) -> None:
        for uri in (f"/data/{name}", f"file:///data/{name}"):
            with pytest.raises(InvalidSpec, match="checkpoint_uri has a name or a path that is longer"):
                require_sound_uris(spec_of(checkpoint_uri=uri))

    def test_blanks_around_a_name_belong_to_it(self, root: Path) -> None:
        with pytest.raises(UriNotAllowed, match="checkpoint_uri"):
            FileRoots(roots=(root,)).require(uris_of(spec_of(checkpoint_uri=f" {root}/model")))


def test_links_behind_a_link_that_stays_are_searched(root: Path) -> None:
    (root / "rows" / "beside").symlink_to(root / "other")
    (root / "other").mkdir()
    (root / "other" / "out").symlink_to(root.parent / "secret")
    (root / "other" / "loop").symlink_to(root / "rows")
    with pytest.raises(UriNotAllowed, match="out leads out"):
        within(root).require_within(spec_of(sample_input_uri=f"{root}/rows"))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_prefixes_of_every_store_match_whole_names(scheme: str) -> None:
    rules = UriRules(inputs=(f"{scheme}://train/feed",))

    def may(uri: str) -> bool:
        return rules.allow(NamedUri(field="checkpoint_uri", uri=uri, is_output=False))

    assert may(f"{scheme}://train/feed") and may(f"{scheme}://train/feed/ckpt-11")
    others = [each for each in SCHEMES if each != scheme]
    places = ("train/feed-2", "train", "train/feed/../other", "Train/feed")
    assert not any(may(f"{scheme}://{place}") for place in places)
    assert not any(may(f"{other}://train/feed/ckpt-11") for other in others)
