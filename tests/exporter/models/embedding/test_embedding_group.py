"""How groups are put together."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from exporter.config.schema import (
    DataGroup,
    Feature,
    FeatureGroup,
    FeatureKind,
    GroupKind,
    Pooling,
    Sequence,
    TableConfig,
)
from exporter.models.embedding.embedding_group import EmbeddingGroup
from exporter.spec import IdWeights
from tests.exporter.models.recorded import pipeline_of

COLOR = Feature(
    name="color", bare_name="color", kind=FeatureKind.ID, value_dim=0,
    table=TableConfig(name="color_emb", rows=4, dim=3),
)  # fmt: skip
INPUTS = {"color.values": torch.tensor([1, 2, 3]), "color.lengths": torch.tensor([2, 0, 1])}


def embed(feature: Feature, kind: GroupKind) -> tuple[str, Tensor, Tensor]:
    """The key and the rows of a group of this one feature, and its table."""
    group = FeatureGroup(name="g", kind=kind, features=(feature.name,))
    module = EmbeddingGroup(replace(pipeline_of("hstu_match"), features=(feature,), groups=(group,)))
    [(key, rows)] = module(INPUTS).items()
    [(_, weight)] = module.named_parameters()
    return key, rows, weight


def test_ids_of_a_deep_group_are_summed() -> None:
    key, rows, weight = embed(COLOR, GroupKind.DEEP)
    assert key == "g"
    torch.testing.assert_close(rows, torch.stack([weight[1] + weight[2], torch.zeros(3), weight[3]]))


def test_ids_are_averaged_where_the_feature_says_so() -> None:
    _, rows, weight = embed(replace(COLOR, pooling=Pooling.MEAN), GroupKind.DEEP)
    torch.testing.assert_close(rows, torch.stack([(weight[1] + weight[2]) / 2, torch.zeros(3), weight[3]]))


def test_a_query_of_one_value_takes_the_first() -> None:
    key, rows, weight = embed(replace(COLOR, value_dim=1), GroupKind.SEQUENCE)
    assert key == "g.query"
    torch.testing.assert_close(rows, torch.stack([weight[1], torch.zeros(3), weight[3]]))


def test_a_query_of_many_values_is_pooled() -> None:
    key, rows, weight = embed(COLOR, GroupKind.JAGGED_SEQUENCE)
    assert key == "g.query"
    torch.testing.assert_close(rows[0], weight[1] + weight[2])


def test_several_values_per_event_are_pooled_into_one() -> None:
    feature = replace(COLOR, sequence=Sequence(name="history", length=9, delim="|"))
    group = FeatureGroup(name="g", kind=GroupKind.JAGGED_SEQUENCE, features=("color",))
    module = EmbeddingGroup(replace(pipeline_of("hstu_match"), features=(feature,), groups=(group,)))
    rows = module(INPUTS | {"color.key_lengths": torch.tensor([2, 0, 1])})["g.sequence"]
    [(_, weight)] = module.named_parameters()
    torch.testing.assert_close(rows, torch.stack([weight[1] + weight[2], torch.zeros(3), weight[3]]))


@pytest.mark.parametrize("pooling", Pooling)
def test_weighted_ids_are_multiplied_by_their_weights(pooling: Pooling) -> None:
    feature = replace(COLOR, weighted=True, pooling=pooling)
    group = FeatureGroup(name="g", kind=GroupKind.DEEP, features=("color",))
    pipeline = replace(pipeline_of("hstu_match"), features=(feature,), groups=(group,))
    module = EmbeddingGroup(pipeline)
    rows = module(INPUTS | {"color.weights": torch.tensor([0.5, 2.0, -1.0])})["g"]
    [(_, weight)] = module.named_parameters()
    first = (0.5 * weight[1] + 2 * weight[2]) / (2 if pooling is Pooling.MEAN else 1)
    torch.testing.assert_close(rows, torch.stack([first, torch.zeros(3), -weight[3]]))


def test_weights_may_be_ignored() -> None:
    group = FeatureGroup(name="g", kind=GroupKind.DEEP, features=("color",))
    pipeline = replace(
        pipeline_of("hstu_match"),
        features=(replace(COLOR, weighted=True),),
        groups=(group,),
    )
    module = EmbeddingGroup(pipeline)
    module.id_weights = IdWeights.IGNORE
    [(_, weight)] = module.named_parameters()
    rows = module(INPUTS | {"color.weights": torch.tensor([0.5, 2.0, -1.0])})["g"]
    torch.testing.assert_close(rows[0], weight[1] + weight[2])


def _sequence(name: str, parent: str) -> Feature:
    table = TableConfig(name=f"{name}_emb", rows=9, dim=2)
    sequence = Sequence(name=parent, length=9, delim="|")
    return replace(COLOR, name=name, bare_name=name, sequence=sequence, value_dim=1, table=table)


def test_a_padded_group_is_as_long_as_its_first_sequence() -> None:
    features = (_sequence("bought", "buys"), _sequence("seen", "views"))
    group = FeatureGroup(name="g", kind=GroupKind.SEQUENCE, features=("bought", "seen"))
    module = EmbeddingGroup(replace(pipeline_of("hstu_match"), features=features, groups=(group,)))
    embedded = module(
        {
            "bought.values": torch.arange(5), "bought.lengths": torch.tensor([3, 0, 2]),
            "seen.values": torch.arange(6), "seen.lengths": torch.tensor([1, 4, 1]),
        }
    )  # fmt: skip
    bought, seen = (weight for _, weight in module.named_parameters())
    assert embedded["g.sequence"].shape == (3, 3, 4)
    assert embedded["g.sequence_length"].tolist() == [3, 0, 2]
    torch.testing.assert_close(embedded["g.sequence"][0, :, :2], bought[:3])
    torch.testing.assert_close(embedded["g.sequence"][1, :, 2:], seen[1:4])  # its fourth is cut
    assert embedded["g.sequence"][2, 1:, 2:].eq(0).all()


def test_a_padded_group_ends_with_its_first_sequence_even_where_that_is_shorter_than_any_padding() -> None:
    features = (_sequence("bought", "buys"), _sequence("seen", "views"))
    group = FeatureGroup(name="g", kind=GroupKind.SEQUENCE, features=("bought", "seen"))
    module = EmbeddingGroup(replace(pipeline_of("hstu_match"), features=features, groups=(group,)))
    embedded = module(
        {
            "bought.values": torch.arange(1), "bought.lengths": torch.tensor([1, 0]),
            "seen.values": torch.arange(4), "seen.lengths": torch.tensor([2, 2]),
        }
    )  # fmt: skip
    assert embedded["g.sequence"][:, 1:].eq(0).all()


def test_groups_of_another_suffix_or_data_group_have_tables_of_their_own() -> None:
    sampled = replace(COLOR, name="item_color", data_group=DataGroup.NEG)
    groups = (
        FeatureGroup(name="a", kind=GroupKind.DEEP, features=("color",)),
        FeatureGroup(name="b", kind=GroupKind.DEEP, features=("color",), table_suffix="b"),
        FeatureGroup(name="c", kind=GroupKind.DEEP, features=("item_color",)),
    )
    pipeline = replace(pipeline_of("hstu_match"), features=(COLOR, sampled), groups=groups)
    assert list(EmbeddingGroup(pipeline).state_dict()) == [
        "emb_impls.__BASE__.ebc.embedding_bags.color_emb.weight",
        "emb_impls.__BASE__.ebc.embedding_bags.color_emb_b.weight",
        "emb_impls.__NEG__.ebc.embedding_bags.color_emb.weight",
    ]


@pytest.mark.parametrize("is_sequence", [False, True])
def test_a_wide_group_weighs_ids_in_a_table_of_its_own(is_sequence: bool) -> None:
    sequence = Sequence(name="color", length=9, delim="|") if is_sequence else None
    feature = replace(COLOR, value_dim=int(is_sequence), sequence=sequence, weighted=not is_sequence)
    wide = FeatureGroup(name="wide", kind=GroupKind.WIDE, features=("color",), wide_dim=2)
    deep = FeatureGroup(name="deep", kind=GroupKind.DEEP, features=("color",))
    pipeline = replace(pipeline_of("hstu_match"), features=(feature,), groups=(wide, deep))
    module = EmbeddingGroup(pipeline)
    by_id = torch.tensor([1.0, 1.0, 1.0] if is_sequence else [0.5, 2.0, -1.0])
    embedded = module(INPUTS | {"color.weights": by_id})
    for key, table in {"wide": "color_emb_wide", "deep": "color_emb"}.items():
        weight = module.get_parameter(f"emb_impls.__BASE__.ebc.embedding_bags.{table}.weight")
        first = by_id[0] * weight[1] + by_id[1] * weight[2]
        expected = torch.stack([first, torch.zeros(weight.shape[1]), by_id[2] * weight[3]])
        torch.testing.assert_close(embedded[key], expected)
    assert [embedded["wide"].shape, embedded["deep"].shape] == [(3, 2), (3, 3)]
