"""Translate between the names of tensors in a model and in its checkpoint. No torch."""

from collections.abc import Collection, Iterable

DENSE_EMBEDDINGS = ".dense_ec."  # part of the names of weights that embed plain numbers
PREFIX = "model."  # TorchEasyRec trains a model inside a wrapper, as its attribute `model`

# A map of ids: the ids in ascending order, and the row of each. A slot without an id has the largest number.
ID_MAP_IDS, ID_MAP_ROWS = "_mch_sorted_raw_ids", "_mch_remapped_ids_mapping"
FREE_ID = 2**63 - 1


def checkpoint_names(model_names: Iterable[str], prefix: str) -> dict[str, str]:
    """Return the checkpoint's name for each of the model's names."""
    return {name: prefix + name for name in model_names}


def unexpected_names(in_checkpoint: Iterable[str], known: Collection[str], prefix: str) -> list[str]:
    """Return the checkpoint's names that belong to nothing in the model, sorted."""
    expected = {prefix + name for name in known}
    return sorted(set(in_checkpoint) - expected)
