"""Plan an export from its spec and pipeline config: the towers, their views and their dims. No torch."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from pydantic import Field

from exporter.config.build_options import BuildOptions
from exporter.config.features.tables import lookups
from exporter.config.parse import parse_pipeline_config
from exporter.config.positions import errors_with_lines
from exporter.config.schema import FeatureKind, PipelineConfig, TowerConfig
from exporter.dims.plan import DimPlan, plan_dims
from exporter.dtypes import Kernel, Precision, TableDtype
from exporter.errors import (
    FamilyNotListed,
    InvalidPipelineConfig,
    InvalidSpec,
    PassRefused,
    SourceNotFound,
)
from exporter.manifest import VECTOR_COLUMN
from exporter.options.tables import Tables
from exporter.redaction import name_first
from exporter.spec import (
    AttentionKind,
    Device,
    ExportSpec,
    IdWeights,
    SwapAttention,
    TowerName,
    Uri,
    device_of,
)
from exporter.storage.open import read_uri
from exporter.storage.uris import require_no_credentials_in, require_sound_uris
from exporter.towers.view import tower_configs

_MAX_CONFIG_BYTES = 4_000_000
_KEPT = 64  # plans; every few hours a model is exported with the same config and options
LONGEST_KEPT = 1 << 16  # characters of their configs
# Fields of a request that no plan depends on: it is made from a request without them.
_UNREAD = {
    "config",
    "config_uri",
    "checkpoint_uri",
    "item_input_uri",
    "sample_input_uri",
    "assets_uri",
    "output_uri",
    "release_gate",
}
_NOTHING = dict.fromkeys(_UNREAD)


class PlanRequest(ExportSpec):
    """Request to plan an export without running it; a plan needs only the config."""

    checkpoint_uri: Uri = Field(default="unread", description="Not needed for a plan.")
    output_uri: Uri = Field(default="unread", description="Not needed for a plan.")


class CheckRequest(ExportSpec):
    """Request to check a model without exporting it; nothing is written."""

    output_uri: Uri = Field(default="unwritten", description="Not needed for a check.")


@dataclass(frozen=True, kw_only=True)
class PlannedTower:
    """A tower to export: its config in the view in which it is served, and the sizes of its inputs."""

    config: TowerConfig
    plan: DimPlan
    item_id_column: str | None = None  # set where the request asks for vectors of all items

    @property
    def name(self) -> TowerName:
        return self.config.name

    @property
    def family(self) -> str:
        return self.config.pipeline.model.family


@dataclass(frozen=True, kw_only=True)
class UnopenedTower:
    """A tower of a custom family; an attempt learns its inputs from the family's package."""

    name: TowerName
    family: str


TowerToExport = PlannedTower | UnopenedTower


def read_config(spec: ExportSpec) -> str:
    """Return the pipeline config's text, given inline or by URI.

    Raises:
        SourceNotFound: the URI names nothing.
        InvalidPipelineConfig: what it names is not text.
    """
    require_sound_uris(spec)  # before anything is read or quoted in an error
    if spec.config is not None:
        return spec.config
    assert spec.config_uri is not None, "ExportSpec admits no spec without a config"
    try:
        return read_uri(spec.config_uri, limit=_MAX_CONFIG_BYTES).decode()
    except SourceNotFound as error:
        raise SourceNotFound(error.message, hint=error.hint, where="config_uri") from error
    except UnicodeDecodeError as error:
        raise InvalidPipelineConfig(
            f"{spec.config_uri} is not text: {error}",
            hint="give the URI of a pipeline.config in protobuf text format",
            where=spec.config_uri,
        ) from error


def plan_export(
    spec: ExportSpec, config_text: str, *, families: Collection[str] = ()
) -> tuple[TowerToExport, ...]:
    """Decide everything about an export that can be decided before anything is read or built.

    A custom family must be among `families`; its code is not loaded here, so little is decided about it.

    Raises:
        FamilyNotListed: the spec names a family that the operator has not listed.
        InvalidPipelineConfig: the config does not parse, contradicts itself or is not supported.
        InvalidSpec: the spec contradicts the model, or leaves out rows that a tower needs.
    """
    require_no_credentials_in(config_text, spec.config_uri or "config")
    if spec.family is not None:
        return _unopened_towers(spec, spec.family, families)
    planned = plan_towers(spec, config_text)
    for tower in planned:
        if _is_without_rows(tower.name, spec):
            _require_train_rows(tower.config, tower.config.pipeline)
    return planned


def plan_towers(spec: ExportSpec, config_text: str) -> tuple[PlannedTower, ...]:
    """Return the towers of an export and their dims, whether or not there are rows to export them with.

    The plans of the last requests are kept, and returned again.

    Raises:
        InvalidPipelineConfig: the config does not parse, contradicts itself or is not supported.
        InvalidSpec: the spec asks for a tower that the model lacks, or names a custom family, whose
            package would have to be loaded.
    """
    if spec.family is not None:
        raise InvalidSpec(
            f"the dims of family {spec.family} are declared by its package, which only an attempt loads",
            hint="export it, and its manifest lists them; or run slipway plan where the package is installed",
            where="family",
        )
    plan = _plan_kept if len(config_text) <= LONGEST_KEPT else _plan
    choices = _Choices(spec.model_dump_json(exclude=_UNREAD), spec.model_copy(update=_NOTHING))
    return plan(config_text, spec.config_uri or "config", choices)


def is_plan_kept(spec: ExportSpec, config_text: str) -> bool:
    """Return whether `plan_towers` would return a plan that it made before."""
    if len(config_text) > LONGEST_KEPT:
        return False
    try:
        _plan_kept(config_text, spec.config_uri or "config", _Choices(spec.model_dump_json(exclude=_UNREAD)))
    except _NotKept:
        return False
    return True


class _NotKept(Exception):
    """There is no plan, and none is to be made; no cache keeps this answer."""


@dataclass(frozen=True)
class _Choices:
    """A request without the fields that no plan depends on, told from others by its text.

    Without the spec it only finds a plan.
    """

    text: str
    spec: ExportSpec | None = field(default=None, compare=False)


def _plan(config_text: str, where: str, choices: _Choices) -> tuple[PlannedTower, ...]:
    spec = choices.spec
    if spec is None:
        raise _NotKept
    pipeline = parse_pipeline_config(config_text, where=where)
    options = build_options(pipeline, spec)
    _require_tables(pipeline, options.tables)
    with errors_with_lines(config_text, where):
        towers = tower_configs(pipeline, spec.towers, options)
        _require_item_tower([tower.name for tower in towers], spec)
        return tuple(
            PlannedTower(
                config=config,
                plan=plan_dims(config.pipeline.features, max_batch_size=spec.max_batch_size),
                item_id_column=item_id_column(config, spec),
            )
            for config in towers
        )


_plan_kept = lru_cache(maxsize=_KEPT)(_plan)


def build_options(pipeline: PipelineConfig, spec: ExportSpec) -> BuildOptions:
    """Return the options that the request asks for; where it names none, the config's own.

    Raises:
        InvalidSpec: the passes would edit a program that computes in a lower precision.
        PassRefused: the passes ask for kernels that a target does not run.
    """
    _require_runnable(spec)
    options = BuildOptions(
        id_weights=spec.id_weights,
        tables=spec.tables,
        precision=spec.precision or pipeline.default_precision,
        tf32=spec.tf32,
        kernel=(spec.kernel or pipeline.default_kernel) if spec.has_cuda_target else Kernel.PYTORCH,
    )
    if spec.passes and options.precision is not Precision.FP32:
        raise InvalidSpec(
            f"passes edit what is traced in fp32, and the towers are to compute in {options.precision}",
            hint="leave passes out, or set precision to fp32",
            where="passes",
        )
    return options


def _require_runnable(spec: ExportSpec) -> None:
    """Raise PassRefused if a pass asks for Triton's kernels on a CPU."""
    on_cpu = [target for target in spec.targets if device_of(target) is Device.CPU]
    for each in spec.passes:
        if isinstance(each, SwapAttention) and each.attention is AttentionKind.TRITON and on_cpu:
            raise PassRefused(
                f"attention by Triton's kernels is for CUDA, and a package is to be made for {on_cpu[0]}",
                hint="export for CUDA targets only, or choose all_heads or head_by_head",
                where=f"passes: {each.submodule}",
            )


def _require_tables(pipeline: PipelineConfig, tables: Tables) -> None:
    """Raise InvalidSpec if the request names a table that the model does not have."""
    features = {feature.name: feature for feature in pipeline.features}
    known = sorted({lookup.table.name for lookup in lookups(pipeline.embedded_groups, features)})
    for name in tables.dtypes:
        if name not in known:
            raise InvalidSpec(
                f"the model has no table {name}; its tables are {name_first(known) or 'none'}",
                hint="name tables as slipway plan lists them",
                where="tables.dtypes",
            )


def item_id_column(tower: TowerConfig, spec: ExportSpec) -> str | None:
    """Return the column that identifies an item, for a tower whose vectors of all items are wanted.

    Raises:
        InvalidSpec: no column can identify an item, or the named one cannot.
    """
    if not spec.materialise_items or not tower.name.reads_items:
        return None
    named = tower.pipeline.item_id_field
    features = tower.pipeline.features
    by_sampler = [feature.name for feature in features if named in (feature.name, feature.view_of)]
    ids = [feature.name for feature in features if feature.kind is FeatureKind.ID]
    column = next((name for name in (spec.item_id_column, *by_sampler, *ids) if name), None)
    if column is None:
        raise InvalidSpec(
            f"the {tower.name} tower has no id feature whose column could name its items",
            hint="say in item_id_column which column of item_input_uri does",
            where="item_id_column",
        )
    if column == VECTOR_COLUMN:
        raise InvalidSpec(
            f"the items' ids are in a column called {VECTOR_COLUMN}, as their vectors will be",
            hint="rename that column of item_input_uri",
            where="item_id_column",
        )
    return column


def _require_item_tower(towers: Sequence[TowerName], spec: ExportSpec) -> None:
    if spec.materialise_items and not any(tower.reads_items for tower in towers):
        raise InvalidSpec(
            f"item vectors need an item or embedding tower, and what is to be exported is "
            f"{' and '.join(towers)}",
            hint="leave materialise_items out, or export a model with such a tower",
            where="materialise_items",
        )


def require_listed_family(family: str, families: Collection[str]) -> None:
    """Raise FamilyNotListed if the operator has not listed the custom family."""
    if family not in families:
        listed = ", ".join(families) or "none"
        raise FamilyNotListed(f"family {family} is not listed here; listed: {listed}", where="family")


def refuse_model_options(spec: ExportSpec) -> None:
    """Raise InvalidSpec if a request for a custom family sets options of TorchEasyRec's models."""
    if spec.id_weights is not IdWeights.APPLY:
        raise InvalidSpec(
            "id_weights is for TorchEasyRec's models; a custom family decides by itself",
            hint="leave id_weights out",
            where="id_weights",
        )
    if spec.tables not in (Tables(), Tables(dtype=TableDtype.FP32)):
        raise InvalidSpec(
            "tables is for TorchEasyRec's models; a custom family packages its tables itself, without shards",
            hint="leave tables out; the family's own module may keep its rows in another dtype",
            where="tables",
        )
    if spec.kernel is not None:
        raise InvalidSpec(
            "kernel is for TorchEasyRec's models; a custom family brings its own kernels",
            hint="leave kernel out",
            where="kernel",
        )


def _unopened_towers(spec: ExportSpec, family: str, families: Collection[str]) -> tuple[UnopenedTower, ...]:
    """Return the towers of a custom family that the spec names."""
    require_listed_family(family, families)
    refuse_model_options(spec)
    _require_runnable(spec)
    towers = tuple(UnopenedTower(name=name, family=family) for name in spec.towers or (TowerName.MODEL,))
    _require_item_tower([tower.name for tower in towers], spec)
    for tower in towers:
        if _is_without_rows(tower.name, spec):
            raise InvalidSpec(
                f"the {tower.name} tower needs rows",
                hint="give sample_input_uri: parquet with a column for each input that the family declares",
                where="sample_input_uri",
            )
    return towers


def _is_without_rows(tower: TowerName, spec: ExportSpec) -> bool:
    """Return whether the spec names no rows for a tower; it must name those of a tower that reads items."""
    if not tower.reads_items:
        return spec.sample_input_uri is None
    if spec.item_input_uri is None:
        raise InvalidSpec(
            f"the {tower} tower needs item_input_uri: parquet with one item per row",
            hint="give item_input_uri, or name in towers only those that read no items",
            where="item_input_uri",
        )
    return False


def _require_train_rows(tower: TowerConfig, pipeline: PipelineConfig) -> None:
    if not pipeline.train_input_path:
        raise InvalidSpec(
            f"the {tower.name} tower needs rows, and the config names no train_input_path",
            hint="give sample_input_uri: parquet with training rows",
            where="sample_input_uri",
        )
    if not pipeline.train_rows_are_encoded:
        raise InvalidSpec(
            f"the {tower.name} tower needs encoded rows, but the config's fg_mode says that the rows of "
            "train_input_path are raw",
            hint="give sample_input_uri: parquet with encoded values, ids as row numbers of their tables",
            where="sample_input_uri",
        )
