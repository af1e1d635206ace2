"""Names of models, files and tensors as Triton takes them."""

import pytest

from exporter.spec import Mode, TowerName
from exporter.triton_server.names import (
    input_names,
    model_name,
    output_names,
    package_models,
    package_path,
)


def test_tensors_are_named_by_their_places_in_the_call() -> None:
    assert input_names(["video_id.values", "video_id.lengths"]) == {
        "video_id.values": "ARGS[0][video_id.values]",
        "video_id.lengths": "ARGS[0][video_id.lengths]",
    }
    assert output_names(["item_tower_emb"]) == {"item_tower_emb": "RESULT[item_tower_emb]"}


@pytest.mark.parametrize("odd", ["a b", "a[0]", "a]", 'a"b', "a\tb", "färbe", "点击", "a\\b", ""])
def test_where_a_name_is_no_key_that_triton_reads_all_are_numbered(odd: str) -> None:
    assert input_names(["plain", odd]) == {"plain": "INPUT__0", odd: "INPUT__1"}
    assert output_names([odd]) == {odd: "OUTPUT__0"}


def test_models_are_named_by_tower_and_prefix() -> None:
    assert model_name(TowerName.ITEM, None) == "item"
    assert model_name(TowerName.ITEM, "feed") == "feed_item"
    assert package_models("feed_item", Mode.UNIFIED) == ("feed_item",)
    assert package_models("feed_item", Mode.TWO_STAGE) == ("feed_item_sparse", "feed_item_dense")
    assert package_path("feed_item") == "triton/feed_item/1/model.pt2"
