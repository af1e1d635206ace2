"""The dim plan of a tower: the input sizes that vary, and those that vary together. No torch here."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from exporter.config.schema import Feature, FeatureGroup, GroupKind, PipelineConfig

BATCH = "batch"


@dataclass(frozen=True, kw_only=True)
class Share:
    """The part of a dim that one row has, or one event: an entry of an input of lengths."""

    counts: str  # "values per row"
    lengths: str  # the input whose entries add up to the dim: "tags.lengths"
    high: int | None  # the most that the config declares; None: it declares none
    refused_above: int | None = None  # a package refuses larger entries; None: it does not


@dataclass(frozen=True, kw_only=True)
class DynamicDim:
    """A size that may change between calls; inputs naming the same one agree on it."""

    name: str
    low: int
    high: int | None  # None: the config does not bound it
    reason: str  # in words, for people: "shared by 4 inputs of sequence uih_seq"
    share: Share | None = None  # None: it is not divided among rows


@dataclass(frozen=True, kw_only=True)
class TensorInput:
    """One input tensor of a tower; each axis is a fixed size or a dynamic dim's name."""

    name: str  # "uih_seq__video_id.values"
    dtype: str  # "int64", "float32", "int32"
    shape: tuple[int | str, ...]
    source: str = ""  # the feature's tensor that fills it, if that has another name

    @property
    def filled_with(self) -> str:
        """The name of the feature's tensor that fills this input: "<feature>.values", "<feature>.lengths"."""
        return self.source or self.name


@dataclass(frozen=True, kw_only=True)
class DimPlan:
    """All inputs of a tower in call order, and the dims their shapes name."""

    inputs: tuple[TensorInput, ...]
    dims: tuple[DynamicDim, ...]

    @property
    def row_limits(self) -> dict[str, int]:
        """The largest entry of inputs of lengths, where a package refuses larger ones."""
        shares = [dim.share for dim in self.dims if dim.share]
        return {each.lengths: each.refused_above for each in shares if each.refused_above is not None}

    def parent(self, dim: DynamicDim) -> str | None:
        """Return the dim whose steps a dim is divided among: rows, or the events of a sequence."""
        lengths = next((each for each in self.inputs if dim.share and each.name == dim.share.lengths), None)
        return str(lengths.shape[0]) if lengths else None

    def dim(self, name: str) -> DynamicDim:
        return next(dim for dim in self.dims if dim.name == name)

    def inputs_of(self, dim: str) -> tuple[TensorInput, ...]:
        return tuple(tensor for tensor in self.inputs if dim in tensor.shape)

    def input_filled_with(self, source: str) -> TensorInput | None:
        """Return the input that is filled with this tensor of a feature, or None."""
        return next((tensor for tensor in self.inputs if tensor.filled_with == source), None)


def plan_dims(features: Sequence[Feature], *, max_batch_size: int) -> DimPlan:
    """Plan the inputs of a tower that reads `features`, for batches of 1 to `max_batch_size` rows.

    Features of one parent sequence have one element per event, so whatever holds one entry per element
    shares `seq_<parent>`: the `.values` and `.weights` of single-valued features, the `.key_lengths` of
    multi-valued ones. The `.values` and `.weights` of a multi-valued feature have a dim of their own;
    every `.lengths` and every dense row shares `batch`. A package takes its inputs by position, and
    TorchEasyRec's servers pass them sorted by name; so inputs come in that order.
    """
    tensors = [tensor for feature in features for tensor in _inputs(feature, max_batch_size)]
    return plan_tensors(sorted(tensors, key=lambda tensor: tensor.name))


def plan_group_tensors(pipeline: PipelineConfig, *, max_batch_size: int) -> DimPlan:
    """Plan what the dense half of a tower reads: the tensors of the embedded groups, sorted by name.

    Names are those of TorchEasyRec's dense packages, `group_tensor_name` of an embedded group's key. A
    jagged group has the total length of its parent on axis 0, a padded one the longest on axis 1: two
    symbols, each shared by all groups of one parent.
    """
    tensors = [
        tensor
        for group in pipeline.embedded_groups
        for tensor in group_tensors(group, pipeline, max_batch_size)
    ]
    return plan_tensors(sorted(tensors, key=lambda tensor: tensor.name), divided=False)


def group_tensor_name(key: str) -> str:
    """The dense package's input for an embedded group's key: `deep` and `uih.sequence_length` become
    `deep__ebc` and `uih__sequence_length`.
    """
    group, dot, part = key.rpartition(".")
    return f"{group}__{part}" if dot else f"{key}__ebc"


def longest_dim(total: str) -> str:
    """Return the dim of the longest row of a sequence, by the dim of its events in all; else nothing."""
    return f"longest_{total.removeprefix('seq_')}" if total.startswith("seq_") else ""


@dataclass(frozen=True, kw_only=True)
class Extent:
    """A dynamic axis before it is known which inputs share it."""

    name: str
    low: int = 0
    high: int | None
    counts: str  # description of what the size counts: "rows per call"
    owner: str = ""  # "sequence uih_seq"
    share: Share | None = None


@dataclass(frozen=True, kw_only=True)
class PlannedTensor:
    """A tensor before it is known which others share its dynamic axes."""

    name: str
    dtype: str
    shape: tuple[int | Extent, ...]


def plan_tensors(ordered: Sequence[PlannedTensor], *, divided: bool = True) -> DimPlan:
    """Make a dim of every extent of these tensors, in the order of calls, that says how many inputs share it.

    The dims have no shares if no lengths among the tensors divide them among rows.
    """
    shared: dict[str, tuple[Extent, int]] = {}
    for tensor in ordered:
        for extent in (axis for axis in tensor.shape if isinstance(axis, Extent)):
            first, inputs = shared.setdefault(extent.name, (extent, 0))
            shared[extent.name] = first, inputs + 1
    return DimPlan(
        inputs=tuple(
            TensorInput(
                name=tensor.name,
                dtype=tensor.dtype,
                shape=tuple(axis.name if isinstance(axis, Extent) else axis for axis in tensor.shape),
            )
            for tensor in ordered
        ),
        dims=tuple(
            _dim(extent if divided else replace(extent, share=None), inputs)
            for extent, inputs in shared.values()
        ),
    )


def _dim(extent: Extent, inputs: int) -> DynamicDim:
    owner = f" of {extent.owner}" if extent.owner else ""
    reason = (
        f"{extent.counts}, shared by {inputs} inputs{owner}"
        if inputs > 1
        else f"{extent.counts}{owner}, shared by no other input"
    )
    return DynamicDim(name=extent.name, low=extent.low, high=extent.high, reason=reason, share=extent.share)


def _inputs(feature: Feature, max_batch_size: int) -> list[PlannedTensor]:
    """Return the tensors of one feature: its values, and the lengths that divide them among rows."""
    batch, total = batch_extent(max_batch_size), _total(feature, max_batch_size)
    if not feature.is_sparse:
        values = PlannedTensor(
            name=f"{feature.name}.values", dtype="float32", shape=(total or batch, feature.value_dim)
        )
        return [values, _lengths(feature, batch, "int32")] if feature.is_sequence else [values]
    flat = _values(feature, max_batch_size) if feature.is_multivalued else total or batch
    tensors = [
        PlannedTensor(name=f"{feature.name}.values", dtype="int64", shape=(flat,)),
        _lengths(feature, batch, "int64"),
    ]
    if feature.weighted:
        tensors.append(PlannedTensor(name=f"{feature.name}.weights", dtype="float32", shape=(flat,)))
    if feature.is_multivalued and total is not None:
        tensors.append(PlannedTensor(name=f"{feature.name}.key_lengths", dtype="int64", shape=(total,)))
    return tensors


def _lengths(feature: Feature, batch: Extent, dtype: str) -> PlannedTensor:
    return PlannedTensor(name=f"{feature.name}.lengths", dtype=dtype, shape=(batch,))


def group_tensors(group: FeatureGroup, pipeline: PipelineConfig, max_batch_size: int) -> list[PlannedTensor]:
    """Return the tensors of one group: its kind decides how plain features and sequences are joined."""
    members = [pipeline.feature(name) for name in group.features]
    batch = batch_extent(max_batch_size)

    def tensor(key: str, *shape: int | Extent, dtype: str = "float32") -> PlannedTensor:
        return PlannedTensor(name=group_tensor_name(key), dtype=dtype, shape=shape)

    def width(features: Sequence[Feature]) -> int:
        return sum(group.wide_dim or feature.looked_up_width for feature in features)

    if group.kind.is_row_vector:
        return [tensor(group.name, batch, width(members))] if members else []
    queries = [feature for feature in members if not feature.is_sequence]
    sequences = [feature for feature in members if feature.is_sequence]
    tensors = [tensor(f"{group.name}.query", batch, width(queries))] if queries else []
    if not sequences:
        return tensors
    axes: list[Extent]
    if group.kind is GroupKind.SEQUENCE:
        axes = [batch, _longest(sequences[0], max_batch_size)]
    else:
        total = _total(sequences[0], max_batch_size)
        assert total is not None
        axes = [total]
    return [
        *tensors,
        tensor(f"{group.name}.sequence", *axes, width(sequences)),
        tensor(f"{group.name}.sequence_length", batch, dtype="int64"),
    ]


def batch_extent(max_batch_size: int) -> Extent:
    """Return the extent of the rows of a call."""
    return Extent(name=BATCH, low=1, high=max_batch_size, counts="rows per call")


def _total(feature: Feature, max_batch_size: int) -> Extent | None:
    """Return the extent of the events of all rows; None outside a sequence."""
    if feature.sequence is None:
        return None
    return Extent(
        name=f"seq_{feature.sequence.name}",
        high=feature.sequence.length * max_batch_size or None,
        counts="elements of all rows",
        owner=_sequence(feature),
        share=Share(
            counts="events per row", lengths=f"{feature.name}.lengths", high=feature.sequence.length or None
        ),
    )


def _longest(feature: Feature, max_batch_size: int) -> Extent:
    """Return the extent of the events of the longest row, to which groups are padded.

    One row may have all events of a call, because rows are not cut to the length that the config declares.
    """
    assert feature.sequence is not None
    return Extent(
        name=f"longest_{feature.sequence.name}",
        high=feature.sequence.length * max_batch_size or None,
        counts="elements of the longest row",
        owner=_sequence(feature),
    )


def _values(feature: Feature, max_batch_size: int) -> Extent:
    """Return the extent of the values of a multi-valued feature, over all rows and events."""
    events = feature.sequence.length if feature.sequence else 1
    return Extent(
        name=f"values_{feature.name}",
        high=feature.value_dim * events * max_batch_size or None,
        counts="values of all rows",
        owner=f"multi-valued feature {feature.name}",
        share=Share(
            counts="values per event" if feature.sequence else "values per row",
            lengths=f"{feature.name}.{'key_lengths' if feature.sequence else 'lengths'}",
            high=feature.value_dim or None,
        ),
    )


def _sequence(feature: Feature) -> str:
    assert feature.sequence is not None
    name, groups = feature.sequence.name, feature.sequence.joined_by
    if not groups:
        return f"sequence {name}"
    joining = f"group {groups[0]} joins" if len(groups) == 1 else f"groups {', '.join(groups)} join"
    return f"sequence {name}, whose standalone features {joining} element by element"
