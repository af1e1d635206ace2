"""What differs between two configs, setting by setting, and between two artifacts."""

from exporter.comparison.changes import compare_configs, compare_settings, describe_artifact
from exporter.config.settings_by_path import settings_by_path
from exporter.reports.comparison import LONGEST_TEXT, MOST_CHANGES, Change
from exporter.spec import Mode
from tests.exporter.models.recorded import FIXTURES
from tests.jobs.factories import make_entry, make_manifest

TEXT = (FIXTURES / "dssm" / "pipeline.config").read_text()
USER = 'feature_name: "user_id"\n    expression: "user:user_id"\n    embedding_dim: 16'


def test_a_changed_setting_is_named_by_its_feature() -> None:
    changes = compare_configs(TEXT, TEXT.replace(USER, USER.replace("16", "32")))
    place = "feature_configs[user_id].id_feature.embedding_dim"
    assert changes.listed == (Change(place=place, old="16", new="32"),)


def test_a_feature_in_front_moves_no_other() -> None:
    added = 'feature_configs { id_feature { feature_name: "fresh" num_buckets: 3 embedding_dim: 4 } }\n'
    at = TEXT.index("feature_configs")
    changes = compare_configs(TEXT, TEXT[:at] + added + TEXT[at:])
    assert {change.place.partition("]")[0] for change in changes.listed} == {"feature_configs[fresh"}
    assert {change.old for change in changes.listed} == {None}
    removed = compare_configs(TEXT[:at] + added + TEXT[at:], TEXT)
    assert {change.new for change in removed.listed} == {None}


def test_the_order_of_fields_comments_and_blanks_is_no_difference() -> None:
    assert compare_configs(TEXT, f"# a comment\n\n{TEXT}").total == 0


def test_every_recorded_config_differs_from_itself_nowhere_and_from_others_somewhere() -> None:
    texts = {path.parent.name: path.read_text() for path in FIXTURES.glob("*/pipeline.config")}
    for text in texts.values():
        assert len(settings_by_path(text)) > 20
        assert compare_configs(text, f"{text}\n").total == 0
    assert compare_configs(texts["dssm"], texts["dlrm"]).total > 20


def test_a_config_of_a_custom_family_is_compared_by_lines() -> None:
    changes = compare_configs("a: 1\nb: {\n", "a: 2\nb: {\nc: 3\n")
    assert changes.listed == (
        Change(place="line 1", old="a: 1", new="a: 2"),
        Change(place="new line 3", old=None, new="c: 3"),
    )


def test_many_and_long_settings_are_cut_and_counted() -> None:
    new = {f"{'deep.' * 200}{number}": "x" * 10_000 for number in range(3 * MOST_CHANGES)}
    changes = compare_settings({}, new)
    assert (changes.total, len(changes.listed)) == (3 * MOST_CHANGES, MOST_CHANGES)
    assert max(len(change.new or "") for change in changes.listed) < LONGEST_TEXT + 50
    assert len(changes.model_dump_json()) < 200_000


def test_mode_and_versions_are_facts_of_an_artifact() -> None:
    old = make_manifest("old", make_entry())
    new = old.model_copy(update={"mode": Mode.TWO_STAGE, "job_id": "new"})
    assert [
        each.place for each in compare_settings(describe_artifact(old), describe_artifact(new)).listed
    ] == ["mode"]
