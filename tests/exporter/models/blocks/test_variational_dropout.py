"""Variational dropout, served."""

from dataclasses import replace

import torch

from exporter.models.blocks.variational_dropout import GroupDropouts, VariationalDropout
from tests.exporter.models.recorded import pipeline_of


def test_each_feature_is_scaled_by_how_often_it_was_kept() -> None:
    dropout = VariationalDropout((1, 2))
    dropout.load_state_dict(
        {
            "feature_p": torch.tensor([0.0, -100.0]),
            "feature_dim_repeat": torch.tensor([1, 2], dtype=torch.int32),
        }
    )
    scaled = dropout(torch.tensor([[2.0, 3.0, 4.0]]))
    torch.testing.assert_close(scaled, torch.tensor([[1.0, 3.0, 4.0]]))


def test_encoders_count_as_features_of_their_group() -> None:
    pipeline = replace(pipeline_of("dbmtl"), variational_dropout=True)
    widths = GroupDropouts(pipeline).get_parameter("deep.feature_dim_repeat")
    assert widths.tolist() == [16, 8, 8, 1, 1, 16, 8, 8, 1, 25, 24, 16, 16]


def test_only_vectors_of_several_features_are_scaled() -> None:
    pipeline = replace(pipeline_of("multi_tower_din"), variational_dropout=True)
    single = tuple(replace(group, features=group.features[:1]) for group in pipeline.groups)
    assert list(GroupDropouts(pipeline)) == ["deep"]
    assert not GroupDropouts(replace(pipeline, groups=single))
    assert not GroupDropouts(replace(pipeline, variational_dropout=False))
