"""Explain a conflict between torch.export and the dim plan by the config's features, groups and code lines.

No torch here: torch's message is text, and the findings of draft_export come as `SizeGuard`s.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from exporter.config.declared_model import DeclaredConfig
from exporter.config.schema import Feature, PipelineConfig
from exporter.dims.plan import BATCH, DimPlan, DynamicDim
from exporter.errors import DimsConflict, DimSpecialised

_EQUAL = re.compile(r"The values of (\w+) = .*? and (\w+) = .*? must always be equal")
_FIXED = re.compile(r"You marked (\w+) as dynamic but your code specialized it to be a constant \((\d+)\)")
_NARROWED = re.compile(r"Not all values of (\w+) = ")
_SUGGESTED = re.compile(r"^  (\w+) = (.+)$", re.MULTILINE)
_SIZE = re.compile(r"\['([^']+)'\]\.size\(\)\[(\d+)\]")
_MOST_NAMED = 5  # features or findings that a message lists
_DECLARED_HINT = "let these inputs name one dim in the declaration, if their sizes are always equal"


@dataclass(frozen=True, kw_only=True)
class Equality:
    """A finding of torch.export: two dims that must always be equal."""

    left: str
    right: str


@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """A finding of torch.export: a dim that may not take every planned size."""

    dim: str
    found: str  # "5", "at most 49", or torch's own words


@dataclass(frozen=True, kw_only=True)
class SizeGuard:
    """A condition that a line of code put on input sizes while it was traced."""

    condition: str  # "Eq(s27, s45)"
    sizes: tuple[tuple[str, int], ...]  # names of inputs, with axes
    place: str  # "exporter/models/hstu/action_encoder.py:38"
    code: str  # the line itself


def sizes_in(source: str) -> tuple[tuple[str, int], ...]:
    """Parse torch's names of sizes: "L['inputs']['a.values'].size()[0]" is axis 0 of a.values."""
    return tuple((name, int(axis)) for name, axis in _SIZE.findall(source))


def parse_violations(message: str) -> tuple[Equality | Narrowing, ...]:
    """Parse the findings on dims in torch.export's message; return none if it is about something else."""
    suggested = dict(_SUGGESTED.findall(message.partition("Suggested fixes:")[2]))
    equal = (Equality(left=left, right=right) for left, right in _EQUAL.findall(message))
    fixed = (Narrowing(dim=dim, found=size) for dim, size in _FIXED.findall(message))
    narrowed = (
        Narrowing(dim=dim, found=_range(suggested.get(dim, "fewer")))
        for dim in dict.fromkeys(_NARROWED.findall(message))
    )
    return tuple(chain(equal, fixed, narrowed))


def diagnose(
    found: Sequence[Equality | Narrowing],
    plan: DimPlan,
    pipeline: PipelineConfig,
    *,
    tower: str,
    guards: Sequence[SizeGuard] = (),
) -> DimsConflict | DimSpecialised:
    """Return the error for these findings: for sizes that must be equal, else for sizes that may not vary."""
    equal = [each for each in found if isinstance(each, Equality)]
    if equal:
        return _conflict(equal, plan, pipeline, tower, guards)
    narrowed = [each for each in found if isinstance(each, Narrowing)]
    known = [each for each in narrowed if each.dim in {dim.name for dim in plan.dims}]
    problems = "; ".join(_describe_narrowing(each, plan, guards) for each in known[:_MOST_NAMED])
    return DimSpecialised(
        f"{tower}: {problems or 'tracing narrowed sizes that the plan lets vary'}",
        hint="the model's code ties this size to a constant: change the option that sets it, or report it",
        where=plan.inputs_of(known[0].dim)[0].name if known else "",
    )


def report_guards(guards: Iterable[SizeGuard], plan: DimPlan) -> str:
    """List the conditions that code put on the inputs, without those that the plan guarantees."""
    lines = []
    for guard in guards:
        granted = len(guard.sizes) > 1 and len(_dims(guard, plan)) == 1
        if guard.sizes and not granted:
            shown = ", ".join(f"{name} axis {axis}" for name, axis in guard.sizes)
            lines.append(f"{guard.place}: {guard.code}\n    {guard.condition}, of {shown}")
    return "\n".join(dict.fromkeys(lines))


def _conflict(
    equal: Sequence[Equality],
    plan: DimPlan,
    pipeline: PipelineConfig,
    tower: str,
    guards: Sequence[SizeGuard],
) -> DimsConflict:
    names = list(dict.fromkeys(name for each in equal for name in (each.left, each.right)))
    places = [place for each in equal if (place := _place({each.left, each.right}, plan, guards))]
    features = [feature for name in names for feature in _features(name, plan, pipeline)]
    shown = "; ".join(_describe_dim(name, plan, pipeline) for name in names)
    at = f"; needed at {' and '.join(dict.fromkeys(places))}" if places else ""
    return DimsConflict(
        f"{tower}: the model requires sizes to be equal that the plan keeps apart: {shown}{at}",
        hint=_DECLARED_HINT
        if isinstance(pipeline.model, DeclaredConfig)
        else _suggest_change(names, features),
        where=f"feature_configs: {features[0].name}" if features else names[0],
    )


def _describe_dim(name: str, plan: DimPlan, pipeline: PipelineConfig) -> str:
    """Describe a dim by its features and groups: "seq_s, the size of a, b (groups uih, uih_action)"."""
    features = [feature.name for feature in _features(name, plan, pipeline)]
    groups = [group.name for group in pipeline.groups if set(features) & set(group.features)]
    members = ", ".join(features[:_MOST_NAMED]) + (", …" if len(features) > _MOST_NAMED else "")
    if name == BATCH:
        return "rows per call"
    if isinstance(pipeline.model, DeclaredConfig):
        return f"{name}, the size of {', '.join(tensor.name for tensor in plan.inputs_of(name))}"
    return (
        f"{name}, the size of {members or 'no feature'} (group{'s'[: len(groups) > 1]} {', '.join(groups)})"
    )


def _features(name: str, plan: DimPlan, pipeline: PipelineConfig) -> list[Feature]:
    """Return the features that have a dim, in their own tensors or in those of their groups."""
    if name == BATCH or isinstance(pipeline.model, DeclaredConfig):
        return []
    owners = {tensor.name.rpartition(".")[0] for tensor in plan.inputs_of(name)}
    groups = {tensor.name.rpartition("__")[0] for tensor in plan.inputs_of(name) if "." not in tensor.name}
    for group in (group for group in pipeline.groups if group.name in groups):
        assert not group.kind.is_row_vector, "a row's vector has no dim but the batch"
        owners |= {feature for feature in group.features if pipeline.feature(feature).is_sequence}
    return [feature for feature in pipeline.features if feature.name in owners]


def _suggest_change(names: Sequence[str], features: Sequence[Feature]) -> str:
    """Suggest the change of the config that would make the sizes equal."""
    sequences = [feature.name for feature in features if feature.is_sequence and not feature.is_multivalued]
    if len(sequences) == len(features) and BATCH not in names:
        return (
            f"write {', '.join(sequences)} in one sequence_feature; or declare standalone features equally "
            "long by naming them side by side in one JAGGED_SEQUENCE group: rows of unequal lengths are "
            "then refused"
        )
    several = [feature.name for feature in features if feature.is_multivalued]
    if several:
        return (
            f"set value_dim: 1 for {', '.join(several)}, if each holds exactly one value; other rows are "
            "then refused"
        )
    return f"the model reads {', '.join(sequences)} as one element per row: write scalar features instead"


def _describe_narrowing(narrowing: Narrowing, plan: DimPlan, guards: Sequence[SizeGuard]) -> str:
    dim = plan.dim(narrowing.dim)
    inputs = [tensor.name for tensor in plan.inputs_of(dim.name)]
    place = _place({dim.name}, plan, guards)
    others = f" and {len(inputs) - 1} more" if len(inputs) > 1 else ""
    return (
        f"dim {dim.name} of {inputs[0]}{others} is planned for {_describe_range(dim)}, and tracing found "
        f"{narrowing.found}{f', at {place}' if place else ''}"
    )


def _describe_range(dim: DynamicDim) -> str:
    return f"{dim.low} or more" if dim.high is None else f"{dim.low} to {dim.high}"


def _range(suggested: str) -> str:
    """Put a fix that torch suggests into words: "Dim('n', max=49)" becomes "at most 49"."""
    bounds = dict(re.findall(r"(min|max)=(\d+)", suggested))
    if not bounds:
        return suggested
    return " and ".join(
        f"at {'least' if bound == 'min' else 'most'} {size}" for bound, size in bounds.items()
    )


def _place(dims: set[str], plan: DimPlan, guards: Sequence[SizeGuard]) -> str:
    """Return the first line of code with a condition on exactly these dims, else on any of them."""
    exact = [guard for guard in guards if _dims(guard, plan) == dims]
    near = [guard for guard in guards if _dims(guard, plan) & dims]
    first = next(iter(exact or near), None)
    return f"{first.place} `{first.code}`" if first else ""


def _dims(guard: SizeGuard, plan: DimPlan) -> set[str]:
    shapes = {tensor.name: tensor.shape for tensor in plan.inputs}
    axes = (shapes[name][axis] for name, axis in guard.sizes if name in shapes)
    return {axis for axis in axes if isinstance(axis, str)}
