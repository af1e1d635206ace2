"""Fill a model from a checkpoint, strictly: nothing missing, nothing left over, nothing reshaped."""

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn

from exporter.checkpoint.dense_ema import AVERAGES, AveragedCheckpoint
from exporter.checkpoint.dynamic_tables import CheckpointWithDynamicTables
from exporter.checkpoint.errors import WeightsNotFinite
from exporter.checkpoint.keymap import DENSE_EMBEDDINGS, PREFIX, checkpoint_names, unexpected_names
from exporter.checkpoint.read import Checkpoint
from exporter.checkpoint.tensors import TensorMeta
from exporter.errors import CheckpointMismatch

_TABLES = (".emb_impls.", ".seq_emb_impls.")  # parts of the names of embedding tables


def load_weights(
    module: nn.Module,
    checkpoint: Checkpoint,
    *,
    prefix: str = PREFIX,
    known: Collection[str] | None = None,
) -> None:
    """Put the checkpoint's tensors into every parameter and persistent buffer of `module`, on the CPU.

    The module may be on the meta device: its tensors are replaced, and only the ones it has are read.

    Args:
        module: a tower, whose names are the checkpoint's without `prefix`.
        checkpoint: may hold more than the tower needs.
        prefix: in front of every name in the checkpoint.
        known: every name of the whole model; a checkpoint with any other name is refused.

    Raises:
        CheckpointMismatch: names every tensor that is missing, unexpected or of another shape or dtype,
            or that has no average although averages were requested.
        WeightsNotFinite: a parameter holds NaN or infinity.
    """
    names = require_match(module, checkpoint, prefix=prefix, known=known)
    averages = checkpoint.inner if isinstance(checkpoint, CheckpointWithDynamicTables) else checkpoint
    if isinstance(averages, AveragedCheckpoint):
        _check_averages(averages, [names[name] for name, _ in module.named_parameters()])
    weights = {name: checkpoint.read(stored) for name, stored in names.items()}
    _check_finite({names[name]: weights[name] for name, _ in module.named_parameters() if name in weights})
    module.load_state_dict(weights, strict=True, assign=True)
    unfilled = [name for name, tensor in module.named_buffers() if tensor.is_meta]
    assert not unfilled, f"no checkpoint holds non-persistent buffers; build {unfilled} off the meta device"


def require_match(
    module: nn.Module,
    checkpoint: Checkpoint,
    *,
    prefix: str = PREFIX,
    known: Collection[str] | None = None,
) -> dict[str, str]:
    """Return the checkpoint's name of every tensor of `module`; raises as `load_weights` does."""
    needed = {
        name: TensorMeta(shape=tuple(tensor.shape), dtype=tensor.dtype)
        for name, tensor in module.state_dict().items()
    }
    names = checkpoint_names(needed, prefix)
    _check_match(needed, names, checkpoint.tensors(), known, prefix)
    return names


def _check_match(
    needed: Mapping[str, TensorMeta],
    names: Mapping[str, str],
    found: Mapping[str, TensorMeta],
    known: Collection[str] | None,
    prefix: str,
) -> None:
    missing = sorted(name for name in names.values() if name not in found)
    unexpected = [] if known is None else unexpected_names(found, known, prefix)
    mismatched = [
        f"{names[name]}: checkpoint ({found[names[name]]}), model ({meta})"
        for name, meta in needed.items()
        if names[name] in found and found[names[name]] != meta
    ]
    if missing or unexpected or mismatched:
        raise CheckpointMismatch(missing=missing, unexpected=unexpected, mismatched=mismatched)


def _check_averages(checkpoint: AveragedCheckpoint, parameters: Collection[str]) -> None:
    """Require an average of every dense parameter; tables, updated while they are read, need none."""
    dense = (
        name for name in parameters if DENSE_EMBEDDINGS in name or not any(part in name for part in _TABLES)
    )
    missing = sorted(name for name in dense if name not in checkpoint.averaged)
    if missing:
        raise CheckpointMismatch(missing=missing, unexpected=[], mismatched=[], where=AVERAGES)


def _check_finite(parameters: Mapping[str, Tensor]) -> None:
    """Refuse parameters with NaN or infinity; buffers may hold infinity, as masks do."""
    broken = [name for name, tensor in parameters.items() if not _is_finite(tensor)]
    if broken:
        raise WeightsNotFinite(broken)


def _is_finite(tensor: Tensor) -> bool:
    """Check without a second tensor of the same size, which `tensor.isfinite()` would allocate."""
    if not tensor.is_floating_point() or not tensor.numel():
        return True
    low, high = torch.aminmax(tensor)
    return bool(low.isfinite() and high.isfinite())
