"""Translate between the names of tensors in a model and in its checkpoint. No torch."""

from collections.abc import Collection, Iterable

PREFIX = "model."  # TorchEasyRec trains a model inside a wrapper, as its attribute `model`


def checkpoint_names(model_names: Iterable[str], prefix: str) -> dict[str, str]:
    """Return the checkpoint's name for each of the model's names."""
    return {name: prefix + name for name in model_names}


def unexpected_names(in_checkpoint: Iterable[str], known: Collection[str], prefix: str) -> list[str]:
    """Return the checkpoint's names that belong to nothing in the model, sorted."""
    expected = {prefix + name for name in known}
    return sorted(set(in_checkpoint) - expected)
