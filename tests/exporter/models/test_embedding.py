"""How groups are put together."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from exporter.config.schema import Feature, FeatureGroup, FeatureKind, GroupKind, Pooling, Sequence, Table
from exporter.errors import UnsupportedConfig
from exporter.models.embedding import EmbeddingGroup
from tests.exporter.models.recorded import pipeline_of

COLOR = Feature(
    name="color", bare_name="color", kind=FeatureKind.ID, expression="", value_dim=0,
    table=Table(name="color_emb", rows=4, dim=3),
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


def test_several_values_per_event_are_refused() -> None:
    feature = replace(COLOR, sequence=Sequence(name="history", length=9, delim="|"))
    with pytest.raises(UnsupportedConfig, match="color has several values per element"):
        embed(feature, GroupKind.JAGGED_SEQUENCE)
