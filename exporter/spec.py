"""The request for an export: one frozen value, used from the HTTP body to the compiler call."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    StrictBool,
    WithJsonSchema,
    model_validator,
)
from pydantic.config import JsonDict

from exporter.dtypes import Kernel, Precision
from exporter.frozen import Frozen as Frozen  # requests, records and manifests import it from here
from exporter.options.index_spec import IndexSpec
from exporter.options.layout import Layout, ModelPrefix
from exporter.options.release_gate import ReleaseGate
from exporter.options.tables import Tables, TablesOrLayout
from exporter.torch_releases import TorchRelease as TorchRelease  # requests and views import it from here
from slipway.rest.names import Device as Device  # as this one and the next two
from slipway.rest.names import Mode as Mode
from slipway.rest.names import TowerName as TowerName

MAX_RANKS = 16
MAX_TARGETS = 8


class IdWeights(StrEnum):
    """The treatment of the weights of weighted ids in a package."""

    APPLY = "apply"  # multiply each id's row by its weight, as training does
    IGNORE = "ignore"  # treat every weight as 1, as packages that TorchEasyRec exports do


SubmoduleName = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^\w+(\.\w+)*$")]


class AttentionKind(StrEnum):
    """The way the attention of an HSTU layer is computed; all give the same numbers."""

    ALL_HEADS = "all_heads"  # all heads in one product, as the model is traced
    HEAD_BY_HEAD = "head_by_head"  # one head after the other: less memory on long histories
    TRITON = "triton"  # on CUDA: a kernel over jagged rows, without padding


class LowPrecision(StrEnum):
    """A precision below float32 that a submodule may be computed in."""

    BF16 = "bf16"
    FP16 = "fp16"


class SetPrecision(Frozen):
    """Compute one submodule of a tower, weights included, in a lower precision."""

    kind: Literal["precision"] = "precision"
    tower: TowerName
    submodule: SubmoduleName
    precision: LowPrecision


class SwapAttention(Frozen):
    """Compute the attention of every HSTU layer below a submodule in another way."""

    kind: Literal["attention"] = "attention"
    tower: TowerName
    submodule: SubmoduleName = Field(
        description="Name of a layer, or of a module whose layers are all changed."
    )
    attention: AttentionKind


Pass = Annotated[SetPrecision | SwapAttention, Field(discriminator="kind")]

# A package is compiled for a target. `cpu` and `cuda` mean whatever the worker that takes the job has. The
# others are exact: a level of x86-64 (avx2 is x86-64-v3, avx512 is x86-64-v4), or a GPU's compute capability.
_TARGET = r"^(cpu|avx2|avx512|cuda|sm_[1-9][0-9]{1,2})$"
_ONE: JsonDict = {"type": "string", "pattern": _TARGET}
Target = Annotated[str, Field(pattern=_TARGET)]
CPU_TARGETS = ("cpu", "avx2", "avx512")


def device_of(target: Target) -> Device:
    """Return the kind of device that packages for this target run on."""
    return Device.CPU if target in CPU_TARGETS else Device.CUDA


def _several(given: object) -> object:
    return (given,) if isinstance(given, str) else given


Targets = Annotated[
    tuple[Target, ...],
    BeforeValidator(_several),
    Field(min_length=1, max_length=MAX_TARGETS),
    WithJsonSchema(
        {"anyOf": [_ONE, {"type": "array", "items": _ONE, "minItems": 1, "maxItems": MAX_TARGETS}]}
    ),
]


Uri = Annotated[str, Field(min_length=1, max_length=4096)]
FamilyName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]


class ExportOptions(Frozen):
    """One export without its pipeline config: the weights, the rows to verify on, and where to publish."""

    family: FamilyName | None = Field(
        default=None,
        description="Name of your own model family, from an installed package that the operator has listed; "
        "the config is then any text that this package reads. Default: the pipeline config decides.",
    )
    checkpoint_uri: Uri = Field(
        description="A checkpoint folder (DCP), a .safetensors file, or a .pt file with a state dict."
    )
    item_input_uri: Uri | None = Field(
        default=None, description="Parquet with one item per row: the rows of item and embedding towers."
    )
    sample_input_uri: Uri | None = Field(
        default=None,
        description="Parquet with training rows for the other towers; "
        "default: the config's train_input_path.",
    )
    assets_uri: Uri | None = Field(
        default=None,
        description="Folder in which relative paths of files that features name (vocabularies, tokenizers, "
        "operators) begin; those that can be read are copied beside fg.json. Default: the config's folder.",
    )
    output_uri: Uri = Field(
        description="Folder or object-store prefix; the artifact goes to <output_uri>/<job id>/."
    )
    towers: tuple[TowerName, ...] | None = Field(
        default=None,
        min_length=1,
        description="Towers to export. Default: every tower of the model; the tower `model` of a `family`.",
    )
    mode: Mode = Field(
        default=Mode.UNIFIED,
        description="unified: tables and dense part in one package; two_stage: one package each.",
    )
    layout: Layout = Field(
        default=Layout.SLIPWAY,
        description="triton: each tower's folder holds a model repository for Triton Inference Server. "
        "torcheasyrec: in two_stage, lookups as TorchScript and a dense package, as TorchEasyRec's own "
        "loader loads them; it loads the one package of unified by default.",
    )
    triton_prefix: ModelPrefix | None = Field(
        default=None,
        description="With `layout: triton`: beginning of the names of its models, before the tower's name.",
    )
    device: Device = Device.CPU
    target: Targets | None = Field(
        default=None,
        description="Target to compile for: cpu, avx2, avx512, cuda, sm_80, ..., or a list of them, for one "
        "package of each tower per target. Default: the worker's own processor, of the kind `device`.",
    )
    torch: TorchRelease | None = Field(
        default=None,
        description="Release of torch to compile with, as 2.13: that of the servers, because packages are "
        "bound to it. Default: that of the worker that takes the job.",
    )
    id_weights: IdWeights = Field(
        default=IdWeights.APPLY,
        description="Treatment of weighted ids: apply their weights, as training did; or ignore them, as "
        "TorchEasyRec's own packages do.",
    )
    allow_inferred_ops: bool = Field(
        default=False,
        description="For custom operators without a shape rule: infer the rule from real runs and confirm it "
        "with others, instead of refusing the operator.",
    )
    passes: tuple[Pass, ...] = Field(
        default=(),
        max_length=64,
        description="Edits of the traced programs, in this order: submodules in a lower precision, or with "
        "their attention computed in another way. The result is compared with the model as trained.",
    )
    tables: TablesOrLayout = Field(
        default=Tables(),
        description="Embedding tables: the dtype of their rows, and whether packages hold them or, with "
        "layout sharded and mode two_stage, files of rows that every rank writes for itself.",
    )
    precision: Precision | None = Field(
        default=None,
        description="Precision of the towers: fp32, or bf16 or fp16 by autocast, with outputs in fp32. "
        "Default: the config's export_config.mixed_precision, else fp32.",
    )
    tf32: StrictBool = Field(
        default=False,
        description="cuda only: let products of fp32 matrices round their factors to TF32.",
    )
    kernel: Kernel | None = Field(
        default=None,
        description="cuda only: compute HSTU layers with pytorch's operators or Slipway's triton kernels. "
        "Default: the config's model_config.kernel, else pytorch. Packages for a CPU use pytorch.",
    )
    fp32_tolerance: float | None = Field(
        default=None,
        gt=0,
        le=10,
        description="Largest allowed difference from the outputs of the model in fp32, as a fraction of an "
        "output's scale, if tables or arithmetic have a lower precision. Default: by that precision.",
    )
    ranks: int | None = Field(
        default=None,
        ge=1,
        le=MAX_RANKS,
        description="Number of processes per attempt. Default: one per tower.",
    )
    nodes: int | None = Field(
        default=None,
        ge=1,
        le=MAX_RANKS,
        description="Number of hosts that share the ranks; each runs at least one. Default: 1.",
    )
    max_batch_size: int = Field(
        default=512, ge=2, le=65_536, description="Largest batch that a package accepts, in rows."
    )
    sample_rows: int = Field(
        default=7,
        ge=0,
        le=512,
        description="Most rows of a sample request: one of a single row of the input, and one of as many as "
        "this allows, are published with their answers beside the packages. 0: none is.",
    )
    materialise_items: StrictBool = Field(
        default=False,
        description="Run the item package over all of item_input_uri and publish the vectors as parquet.",
    )
    item_id_column: str | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        description="Column of item_input_uri, of integers or strings, that identifies an item. Default: the "
        "sampler's item_id_field, or the tower's first id feature.",
    )
    item_index: IndexSpec | None = Field(
        default=None, description="FAISS index to build over the item vectors. Default: none."
    )
    release_gate: ReleaseGate | None = Field(
        default=None,
        description="Score held-out rows with the published packages and compare the release with the "
        "promoted one; one that is worse is published, and cannot be promoted. Default: no such gate.",
    )
    strict_bounds: StrictBool = Field(
        default=False,
        description="Let the packages refuse more than the export tried: larger sizes of inputs, and rows of "
        "more values or events than any that was tried. The dims in the manifest say how many.",
    )

    @model_validator(mode="before")
    @classmethod
    def _target_implies_device(cls, given: object) -> object:
        """Derive the device from the target where only the target is given."""
        if not isinstance(given, Mapping) or given.get("device") is not None:
            return given
        named = _several(given.get("target"))
        first = next(iter(named), None) if isinstance(named, Iterable) else None
        return {**given, "device": device_of(first)} if isinstance(first, str) else given

    @model_validator(mode="after")
    def _targets_are_of_the_device(self) -> Self:
        if self.target is not None and len(set(self.target)) != len(self.target):
            raise ValueError("`target` names a target twice")
        if self.target is not None and device_of(self.target[0]) is not self.device:
            raise ValueError(f"`target` begins with {self.target[0]}, and `device` is {self.device}")
        return self

    @model_validator(mode="after")
    def _shards_are_looked_up_outside(self) -> Self:
        if self.tables.sharded and self.mode is not Mode.TWO_STAGE:
            raise ValueError("`tables: sharded` needs `mode: two_stage`, whose dense package takes lookups")
        return self

    @model_validator(mode="after")
    def _layout_can_be_served(self) -> Self:
        if self.layout is not Layout.TRITON and self.triton_prefix is not None:
            raise ValueError("`triton_prefix` is of no use without `layout: triton`")
        if self.layout is Layout.TRITON and self.tables.sharded:
            raise ValueError("`layout: triton` needs packages that look up: `tables: sharded` has none")
        return self

    @model_validator(mode="after")
    def _layout_can_be_loaded(self) -> Self:
        if self.layout is Layout.TORCHEASYREC and (self.tables.sharded or self.family is not None):
            named = "tables in shards" if self.tables.sharded else "custom family"
            raise ValueError(f"`layout: torcheasyrec`: TorchEasyRec's loader loads no {named}; leave it out")
        return self

    @model_validator(mode="after")
    def _tf32_is_for_cuda(self) -> Self:
        if self.tf32 and not self.has_cuda_target:
            raise ValueError("`tf32` is for CUDA: a CPU has no such products; leave it out, or name a GPU")
        return self

    @model_validator(mode="after")
    def _triton_is_for_cuda(self) -> Self:
        if self.kernel is Kernel.TRITON and not self.has_cuda_target:
            raise ValueError("`kernel: triton` is for CUDA: a CPU runs no such kernels; leave it out")
        return self

    @model_validator(mode="after")
    def _towers_are_distinct(self) -> Self:
        if self.towers is not None and len(set(self.towers)) != len(self.towers):
            raise ValueError("`towers` names a tower twice")
        return self

    @model_validator(mode="after")
    def _items_are_materialised(self) -> Self:
        if not self.materialise_items:
            for name in ("item_index", "item_id_column"):
                if getattr(self, name) is not None:
                    raise ValueError(f"`{name}` is of no use without `materialise_items: true`")
        return self

    def only(self, towers: tuple[TowerName, ...]) -> Self:
        """Return the request for some of its towers; if none reads items, also without item vectors."""
        request = self if any(tower.reads_items for tower in towers) else self.without_items()
        return request.model_copy(update={"towers": towers})

    def passes_of(self, tower: TowerName) -> tuple[Pass, ...]:
        """Return the passes that edit one tower."""
        return tuple(each for each in self.passes if each.tower is tower)

    def without_items(self) -> Self:
        """Return the same request without item vectors."""
        return self.model_copy(
            update={"materialise_items": False, "item_id_column": None, "item_index": None}
        )

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets to compile for, one after the other."""
        return self.target or (self.device.value,)

    @property
    def gate_rows_uri(self) -> str | None:
        """The rows that the release gate scores; None without a gate, or where its config names them."""
        return self.release_gate.rows_uri if self.release_gate else None

    @property
    def has_cuda_target(self) -> bool:
        return Device.CUDA in map(device_of, self.targets)

    def for_target(self, target: Target) -> Self:
        """Return the request for one of its targets, without CUDA's options if that is a CPU."""
        one = (target,) if self.target else None
        device = device_of(target)
        here: dict[str, object] = {"target": one, "device": device}
        if device is not Device.CUDA:
            here |= {"tf32": False, "kernel": None}
        return self.model_copy(update=here)


class ExportSpec(ExportOptions):
    """One export: the model, its weights, the rows to verify it on, and where to publish it."""

    config_uri: Uri | None = Field(
        default=None, description="URI of the pipeline config; or give its text in `config`."
    )
    config: str | None = Field(
        default=None, max_length=4_000_000, description="The pipeline config's text, inline."
    )

    @model_validator(mode="after")
    def _one_config(self) -> Self:
        if (self.config is None) == (self.config_uri is None):
            raise ValueError("give exactly one of `config` (text) and `config_uri`")
        return self
