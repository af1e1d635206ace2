"""Random features, groups and rows, from a seed: whatever a config may say and a file may hold."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from exporter.config.features.joined_sequences import join_sequences
from exporter.config.schema import Feature, FeatureGroup, FeatureKind, GroupKind, Sequence, TableConfig

MAX_BATCH = 6
_LONGEST = 4  # declared events per row
_TABLE_ROWS = 9


@dataclass(frozen=True, kw_only=True)
class RandomConfig:
    """Features and groups as a config may put them together, standalone sequences joined by the rule."""

    features: tuple[Feature, ...]
    groups: tuple[FeatureGroup, ...]


def random_config(rng: random.Random, *, widest: int = 0) -> RandomConfig:
    """Some parents, some standalone sequences, some scalars; jagged groups of what may stand side by side.

    `widest` 1 keeps to what today's models read: one value per event, no weights.
    """
    features = [_feature(rng, f"scalar_{i}", None, widest) for i in range(rng.randrange(1, 4))]
    groups = [FeatureGroup(name="deep", kind=GroupKind.DEEP, features=tuple(f.name for f in features))]
    for parent in range(rng.randrange(3)):
        sequence = Sequence(name=f"parent_{parent}", length=_LONGEST, delim=";")
        members = [
            replace(_feature(rng, f"{sequence.name}__{i}", sequence, widest), grouped=True)
            for i in range(rng.randrange(1, 4))
        ]
        features += members
        groups += _jagged(rng, sequence.name, members)
    standalone = [
        _feature(rng, name, Sequence(name=name, length=_LONGEST, delim=";"), widest)
        for name in (f"alone_{i}" for i in range(rng.randrange(4)))
    ]
    features += standalone
    groups += _jagged(rng, "alone", standalone)
    rng.shuffle(features)
    joined = join_sequences(features, groups, by_model=[_in_step(rng, groups)])
    return RandomConfig(features=joined, groups=tuple(groups))


def random_rows(rng: random.Random, features: tuple[Feature, ...], *, fair: bool) -> pa.Table:
    """A file of a few rows; if `fair`, features of one sequence have as many events as each other."""
    rows = rng.randrange(1, MAX_BATCH + 1)
    counts: dict[str, list[int]] = {}
    columns: dict[str, pa.Array] = {}
    for feature in features:
        owner = feature.sequence.name if feature.sequence and fair else feature.name
        events = counts.setdefault(owner, [rng.randrange(_LONGEST + 1) for _ in range(rows)])
        column = [_row(rng, feature, count) for count in events]
        columns[feature.name] = pa.array(column, _type(feature))
    return pa.table(columns)


def shapes_agree(shape: tuple[int | str, ...], sizes: Mapping[str, int], actual: tuple[int, ...]) -> bool:
    return actual == tuple(axis if isinstance(axis, int) else sizes[axis] for axis in shape)


def _jagged(rng: random.Random, name: str, members: list[Feature]) -> list[FeatureGroup]:
    """Some of the members side by side in one group, others in another, the rest in none."""
    single = [feature.name for feature in members if not feature.is_multivalued]
    cut = rng.randrange(len(single) + 1)
    parts = {f"{name}_a": single[:cut], f"{name}_b": single[cut : cut + rng.randrange(3)]}
    return [
        FeatureGroup(name=group, kind=GroupKind.JAGGED_SEQUENCE, features=tuple(names))
        for group, names in parts.items()
        if names
    ]


def _in_step(rng: random.Random, groups: list[FeatureGroup]) -> list[str]:
    """Groups that a model might join: those of standalone features, and perhaps those of one parent."""
    if rng.random() < 0.5:
        return []
    parent = rng.choice(("parent_0", "none"))
    return [group.name for group in groups if group.name.startswith(("alone", parent))]


def _feature(rng: random.Random, name: str, sequence: Sequence | None, widest: int) -> Feature:
    is_id = rng.random() < 0.6
    value_dim = rng.choice((0, 1, 3) if is_id else (1, 2))
    if widest and sequence is not None:
        value_dim = min(value_dim, widest) or 1
    return Feature(
        name=name,
        bare_name=name,
        kind=FeatureKind.ID if is_id else FeatureKind.RAW,
        sequence=sequence,
        table=TableConfig(name=f"{name}_emb", rows=_TABLE_ROWS, dim=rng.choice((2, 4))) if is_id else None,
        value_dim=value_dim,
        weighted=is_id and not widest and rng.random() < 0.3,
    )


def _row(rng: random.Random, feature: Feature, events: int) -> list[object]:
    if feature.sequence is not None:
        return [_values(rng, feature) for _ in range(events)]
    return _values(rng, feature)


def _values(rng: random.Random, feature: Feature) -> list[object]:
    count = rng.randrange(4) if feature.is_multivalued else 1 if feature.is_sparse else feature.value_dim
    if not feature.is_sparse:
        return [rng.random() for _ in range(count)]
    ids = [rng.randrange(_TABLE_ROWS) for _ in range(count)]
    return [f"{each}:{rng.random()}" for each in ids] if feature.weighted else list(ids)


def _type(feature: Feature) -> pa.DataType:
    leaf = pa.float32() if not feature.is_sparse else pa.string() if feature.weighted else pa.int64()
    return pa.list_(pa.list_(leaf)) if feature.is_sequence else pa.list_(leaf)
