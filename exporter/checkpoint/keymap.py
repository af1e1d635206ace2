"""Checkpoint names and model names, one from the other. No torch."""

from collections.abc import Collection, Iterable

PREFIX = "model."  # TorchEasyRec trains a model inside a wrapper that calls it so


def checkpoint_names(model_names: Iterable[str], prefix: str) -> dict[str, str]:
    """The checkpoint's name of each model name."""
    return {name: prefix + name for name in model_names}


def unexpected_names(in_checkpoint: Iterable[str], known: Collection[str], prefix: str) -> list[str]:
    """The checkpoint's names that are none of the model's."""
    expected = {prefix + name for name in known}
    return sorted(set(in_checkpoint) - expected)
