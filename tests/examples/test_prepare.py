"""MovieLens ratings become rows: windows to train on, and each user's last item held out."""

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from examples.movielens.prepare import HISTORY, Event, User, heldout_example, prepare, training_examples
from examples.movielens.train import CONFIG
from exporter.config.parse import parse_pipeline_config
from exporter.data.rows import read_rows

Read = Callable[[str], list[dict[str, object]]]


@pytest.fixture(scope="module")
def read(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> Read:
    out = tmp_path_factory.mktemp("prepared")
    prepare(raw, out)
    return lambda name: pq.read_table(out / f"{name}.parquet").to_pylist()


def test_each_training_row_predicts_an_item_from_those_before_it(read: Read) -> None:
    assert [(row["user_id"], row["uih_seq__item_id"], row["cand_seq__item_id"]) for row in read("train")] == [
        (1, [12], [13]),
        (2, [12], [11]),
        (2, [12, 11], [14]),
    ]


def test_the_last_item_of_each_user_is_held_out(read: Read) -> None:
    first, second = read("heldout")
    assert first["uih_seq__item_id"] == first["seen"] == [12, 13]
    assert (first["cand_seq__item_id"], first["request_time"]) == ([11], 300)
    assert second["cand_seq__item_id"] == [13]


def test_a_user_with_one_rating_is_left_out(read: Read) -> None:
    assert {row["user_id"] for row in read("heldout")} == {1, 2}


def test_people_and_ratings_are_encoded(read: Read) -> None:
    first, second = read("heldout")
    assert [first[name] for name in ("age_bucket", "gender", "occupation")] == [0, 0, 0]
    assert [second[name] for name in ("age_bucket", "gender", "occupation")] == [3, 1, 1]
    assert second["uih_seq__action_weight"] == [1, 2, 4]


def test_popularity_counts_leave_the_held_out_items_out(read: Read) -> None:
    assert {row["item_id"]: row["ratings"] for row in read("items")} == {11: 1, 12: 2, 13: 1, 14: 1}
    assert read("items")[0]["title"] == 'The "11"'


def test_a_history_keeps_the_latest_events() -> None:
    events = [Event(item_id=number, timestamp=number, rating=1) for number in range(HISTORY + 20)]
    user = User(user_id=1, age_bucket=0, gender=0, occupation=0, events=events)
    history = heldout_example(user).uih_seq__item_id
    assert history == list(range(19, HISTORY + 19))
    assert len(list(training_examples(user))) == HISTORY + 18


@pytest.mark.parametrize("name", ["train", "heldout"])
def test_the_rows_are_those_the_config_describes(raw: Path, tmp_path: Path, name: str) -> None:
    prepare(raw, tmp_path)
    features = parse_pipeline_config(CONFIG.read_text()).features
    assert len(read_rows(str(tmp_path / f"{name}.parquet"), features)) > 1
    assert {f.sequence.length for f in features if f.sequence is not None} == {HISTORY, 1}
