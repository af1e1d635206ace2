"""Write MovieLens-100K as training rows of a two-tower model: `python -m examples.movielens.prepare RAW OUT`.

Values are already encoded (FG_NONE): ids unchanged, ages as bucket numbers, names by their place in a list.
"""

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

HISTORY = 20  # events per row; the config's sequence_length
_AGES = (18, 25, 35, 45, 50, 56)  # lower bounds of the buckets


@dataclass(frozen=True, kw_only=True)
class Event:
    """One rating."""

    item_id: int
    timestamp: int  # Unix seconds
    rating: int  # 1 to 5


@dataclass(frozen=True, kw_only=True)
class User:
    """A user with all ratings, oldest first."""

    user_id: int
    age_bucket: int
    gender: int
    occupation: int
    events: Sequence[Event]


@dataclass(frozen=True, kw_only=True)
class Example:
    """One row: the user's history at a time, and the item rated then."""

    user_id: int
    age_bucket: int
    gender: int
    occupation: int
    request_time: int
    uih_seq__item_id: list[int]
    uih_seq__action_timestamp: list[int]
    uih_seq__action_weight: list[int]
    cand_seq__item_id: list[int]


def prepare(raw: Path, out: Path) -> None:
    """Write train.parquet, heldout.parquet (each user's last item) and items.parquet (one row per item)."""
    users = read_users(raw)
    out.mkdir(parents=True, exist_ok=True)
    _write_examples((row for user in users for row in training_examples(user)), out / "train.parquet")
    heldout = _table([heldout_example(user) for user in users])
    # In addition to the model's columns: all items a user has rated before, which are not recommended again.
    seen = pa.array([[event.item_id for event in user.events[:-1]] for user in users])
    pq.write_table(heldout.append_column("seen", seen), out / "heldout.parquet")
    popularity = Counter(event.item_id for user in users for event in user.events[:-1])
    items = read_tsv(raw / "ml-100k.item")
    item_ids = [int(value) for value in items["item_id"].to_pylist()]
    pq.write_table(
        pa.table(
            {
                "item_id": item_ids,
                "title": items["movie_title"],
                "ratings": [popularity[item_id] for item_id in item_ids],
            }
        ),
        out / "items.parquet",
    )


def read_users(raw: Path) -> list[User]:
    """Read every user with at least two ratings; equal times keep the order of the file."""
    events: dict[int, list[Event]] = {}
    for row in read_tsv(raw / "ml-100k.inter").to_pylist():
        event = Event(item_id=int(row["item_id"]), timestamp=int(row["timestamp"]), rating=int(row["rating"]))
        events.setdefault(int(row["user_id"]), []).append(event)
    people = read_tsv(raw / "ml-100k.user").to_pylist()
    occupations = sorted({person["occupation"] for person in people})
    return [
        User(
            user_id=int(person["user_id"]),
            age_bucket=sum(int(person["age"]) >= age for age in _AGES),
            gender=int(person["gender"] == "F"),
            occupation=occupations.index(person["occupation"]),
            events=sorted(rated, key=lambda event: event.timestamp),
        )
        for person in people
        if len(rated := events.get(int(person["user_id"]), [])) > 1
    ]


def training_examples(user: User) -> Iterator[Example]:
    """Slide a window over all ratings but the last: predict each from those before it."""
    for target in range(1, len(user.events) - 1):
        yield _example(user, target)


def heldout_example(user: User) -> Example:
    """Return the example that predicts the last rating, which no training example contains."""
    return _example(user, len(user.events) - 1)


def action_weight(rating: int) -> int:
    """Return a rating as the bit mask that the action encoder reads: one bit per star."""
    return 1 << (rating - 1)


def read_tsv(path: Path) -> pa.Table:
    """Read a tab-separated file with `name:type` in its header; all values stay text."""
    with path.open() as lines:
        names = [column.partition(":")[0] for column in next(lines).strip().split("\t")]
    return pyarrow.csv.read_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(column_names=names, skip_rows=1),
        parse_options=pyarrow.csv.ParseOptions(delimiter="\t", quote_char=False),
        convert_options=pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
    )


def _example(user: User, target: int) -> Example:
    history = user.events[max(0, target - HISTORY) : target]
    return Example(
        user_id=user.user_id,
        age_bucket=user.age_bucket,
        gender=user.gender,
        occupation=user.occupation,
        request_time=user.events[target].timestamp,
        uih_seq__item_id=[event.item_id for event in history],
        uih_seq__action_timestamp=[event.timestamp for event in history],
        uih_seq__action_weight=[action_weight(event.rating) for event in history],
        cand_seq__item_id=[user.events[target].item_id],
    )


def _table(examples: Sequence[Example]) -> pa.Table:
    names = [field.name for field in fields(Example)]
    return pa.table({name: [getattr(example, name) for example in examples] for name in names})


def _write_examples(examples: Iterator[Example], path: Path) -> None:
    pq.write_table(_table(list(examples)), path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("raw", type=Path, help="folder with ml-100k.inter, .item and .user")
    parser.add_argument("out", type=Path, help="folder for the parquet files")
    arguments = parser.parse_args()
    prepare(arguments.raw, arguments.out)
