"""What a caller asks for: one frozen request, from the HTTP body to the compiler call."""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

MAX_RANKS = 16


class Frozen(BaseModel):
    """A value at a process border: immutable, and a misspelt field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class TowerName(StrEnum):
    """A servable slice of a model."""

    USER = "user"
    ITEM = "item"
    MODEL = "model"


class Mode(StrEnum):
    """How a tower is packaged."""

    UNIFIED = "unified"  # one package holds tables and dense part
    TWO_STAGE = "two_stage"  # a sparse package looks up, a dense package computes


class IdWeights(StrEnum):
    """What a package does with the factors of weighted ids."""

    APPLY = "apply"  # multiply each id's row by its weight, as training does
    IGNORE = "ignore"  # take every weight for 1, as packages that TorchEasyRec exports do


class Device(StrEnum):
    """Where the package runs."""

    CPU = "cpu"
    CUDA = "cuda"


SubmoduleName = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^\w+(\.\w+)*$")]


class AttentionKind(StrEnum):
    """How the attention of an HSTU layer is computed; all give the same numbers."""

    ALL_HEADS = "all_heads"  # as it is traced: the heads in one product
    HEAD_BY_HEAD = "head_by_head"  # one head after the other: less memory on long histories


class LowPrecision(StrEnum):
    """What a submodule may be computed in, other than float32."""

    BF16 = "bf16"
    FP16 = "fp16"


class SetPrecision(Frozen):
    """Compute one submodule of a tower, weights included, in a lower precision."""

    kind: Literal["precision"] = "precision"
    tower: TowerName
    submodule: SubmoduleName
    precision: LowPrecision


class SwapAttention(Frozen):
    """Compute HSTU attention in another way, in every layer below a submodule."""

    kind: Literal["attention"] = "attention"
    tower: TowerName
    submodule: SubmoduleName = Field(description="A layer, or a module whose layers are all changed.")
    attention: AttentionKind


Pass = Annotated[SetPrecision | SwapAttention, Field(discriminator="kind")]

Uri = Annotated[str, Field(min_length=1, max_length=4096)]
FamilyName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]


class ExportSpec(Frozen):
    """One export: which model, from which weights, checked on which rows, published where."""

    config_uri: Uri | None = Field(
        default=None, description="Where the pipeline config is; or give its text in `config`."
    )
    config: str | None = Field(
        default=None, max_length=4_000_000, description="The pipeline config's text, inline."
    )
    family: FamilyName | None = Field(
        default=None,
        description="A model family of one's own, from an installed package that the operator has listed; "
        "the config is then any text, for that package. Default: the pipeline config decides.",
    )
    checkpoint_uri: Uri = Field(description="A checkpoint folder (DCP) or a .safetensors file.")
    item_input_uri: Uri | None = Field(
        default=None, description="Parquet with one item per row; the item tower's rows."
    )
    sample_input_uri: Uri | None = Field(
        default=None,
        description="Parquet with training rows for the other towers; "
        "default: the config's train_input_path.",
    )
    output_uri: Uri = Field(
        description="Folder or object-store prefix; the artifact goes to <output_uri>/<job id>/."
    )
    towers: tuple[TowerName, ...] | None = Field(
        default=None,
        min_length=1,
        description="Default: every tower of the model; of a `family` the tower model.",
    )
    mode: Mode = Field(
        default=Mode.UNIFIED,
        description="unified: tables and dense part in one package; two_stage: one package each.",
    )
    device: Device = Device.CPU
    id_weights: IdWeights = Field(
        default=IdWeights.APPLY,
        description="Weighted ids: apply their weights, as training did; or ignore them, "
        "as TorchEasyRec's own packages do.",
    )
    passes: tuple[Pass, ...] = Field(
        default=(),
        max_length=64,
        description="Edits of the traced programs, in this order: submodules in a lower precision, or with "
        "their attention computed in another way. What comes out is held against the model as trained.",
    )
    ranks: int | None = Field(
        default=None, ge=1, le=MAX_RANKS, description="Processes per attempt; default: one per tower."
    )
    max_batch_size: int = Field(
        default=512, ge=2, le=65_536, description="The largest batch a package accepts."
    )

    @model_validator(mode="after")
    def _one_config(self) -> Self:
        if (self.config is None) == (self.config_uri is None):
            raise ValueError("give exactly one of `config` (text) and `config_uri`")
        return self

    @model_validator(mode="after")
    def _towers_are_distinct(self) -> Self:
        if self.towers is not None and len(set(self.towers)) != len(self.towers):
            raise ValueError("`towers` names a tower twice")
        return self
