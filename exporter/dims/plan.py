"""Which input sizes vary, and which vary together. Pure data: no torch here."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from exporter.config.schema import Feature

BATCH = "batch"


@dataclass(frozen=True, kw_only=True)
class DynamicDim:
    """A size that may change between calls; inputs naming the same one agree on it."""

    name: str
    low: int
    high: int | None  # None: the config bounds it nowhere
    reason: str  # in words, for people: "shared by 4 inputs of sequence uih_seq"


@dataclass(frozen=True, kw_only=True)
class TensorInput:
    """One input tensor of a tower; each axis is a fixed size or a dynamic dim's name."""

    name: str  # "uih_seq__video_id.values"
    dtype: str  # "int64", "float32", "int32"
    shape: tuple[int | str, ...]


@dataclass(frozen=True, kw_only=True)
class DimPlan:
    """All inputs of a tower in call order, and the dims their shapes name."""

    inputs: tuple[TensorInput, ...]
    dims: tuple[DynamicDim, ...]

    def dim(self, name: str) -> DynamicDim:
        return next(dim for dim in self.dims if dim.name == name)

    def inputs_of(self, dim: str) -> tuple[TensorInput, ...]:
        return tuple(tensor for tensor in self.inputs if dim in tensor.shape)


def plan_dims(features: Seq[Feature], *, max_batch_size: int) -> DimPlan:
    """Plan the inputs of a tower that reads `features`, for batches of 1 to `max_batch_size` rows.

    Single-valued features of one parent sequence share one total-length dim, `seq_<parent>`, bounded
    by the largest batch times the declared sequence length; every `.lengths` and every dense row
    shares `batch`; a multi-valued feature has a dim of its own. A package takes its inputs by position,
    and TorchEasyRec's servers pass them sorted by name; so inputs come in that order.
    """
    owners = [(tensor, feature) for feature in features for tensor in feature_inputs(feature)]
    owners.sort(key=lambda owner: owner[0].name)
    names = dict.fromkeys(axis for tensor, _ in owners for axis in tensor.shape if isinstance(axis, str))
    return DimPlan(
        inputs=tuple(tensor for tensor, _ in owners),
        dims=tuple(
            _dim(name, [owner for owner in owners if name in owner[0].shape], max_batch_size)
            for name in names
        ),
    )


def feature_inputs(feature: Feature) -> tuple[TensorInput, ...]:
    """The tensors of one feature: values, and lengths where rows may differ in length."""
    values, lengths = f"{feature.name}.values", f"{feature.name}.lengths"
    if not feature.is_sparse and not feature.is_sequence:
        return (TensorInput(name=values, dtype="float32", shape=(BATCH, feature.value_dim)),)
    if not feature.is_sparse:
        return (
            TensorInput(name=values, dtype="float32", shape=(_total(feature), feature.value_dim)),
            TensorInput(name=lengths, dtype="int32", shape=(BATCH,)),
        )
    return (
        TensorInput(name=values, dtype="int64", shape=(_total(feature),)),
        TensorInput(name=lengths, dtype="int64", shape=(BATCH,)),
    )


def _total(feature: Feature) -> str:
    """The dim of a feature's `.values`: the parent's, the batch's or its own."""
    if feature.is_multivalued:
        return f"values_{feature.name}"
    if feature.sequence is not None:
        return f"seq_{feature.sequence.name}"
    return BATCH


def _dim(name: str, owners: list[tuple[TensorInput, Feature]], max_batch_size: int) -> DynamicDim:
    feature = owners[0][1]
    inputs = f"{len(owners)} input{'s' if len(owners) > 1 else ''}"
    if name == BATCH:
        return DynamicDim(name=name, low=1, high=max_batch_size, reason=f"rows per call, shared by {inputs}")
    if feature.is_multivalued:
        per_row = feature.value_dim or None
        return DynamicDim(
            name=name,
            low=0,
            high=per_row and per_row * max_batch_size,
            reason=f"values of multi-valued feature {feature.name}, its own",
        )
    assert feature.sequence is not None
    return DynamicDim(
        name=name,
        low=0,
        high=feature.sequence.length * max_batch_size or None,
        reason=f"elements of all rows, shared by {inputs} of sequence {feature.sequence.name}",
    )
