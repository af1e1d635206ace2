"""The models that the board exports, read from a file; what is left out has its reason there."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pydantic import Field, ValidationError

from exporter.errors import InvalidSpec
from exporter.spec import ExportSpec, Frozen, LowPrecision, Mode, SetPrecision, TowerName

_FULL = "fp32"


class Model(Frozen):
    """A model of the zoo, by paths that are relative to the zoo's file."""

    name: str
    config: str
    checkpoint: str
    items: str | None = None
    rows: str
    low_precision: dict[TowerName, str] = Field(
        default={}, description="Tower -> the submodule that is computed in a lower precision."
    )
    no_low_precision: str = Field(default="", description="Why there is none.")


class Zoo(Frozen):
    """All models, and why families that can be built are not among them."""

    models: tuple[Model, ...]
    left_out: dict[str, str] = Field(default={}, description="Family -> the reason.")


class Case(NamedTuple):
    """What one export is made of, and by which it is found in an earlier run."""

    model: str
    mode: str
    precision: str


def read_zoo(path: Path) -> Zoo:
    """The zoo in a JSON file.

    Raises:
        InvalidSpec: it cannot be read, or leaves out a precision without a reason.
    """
    try:
        zoo = Zoo.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise InvalidSpec(f"{path} is no zoo: {error}", where=str(path)) from error
    for model in zoo.models:
        if not model.low_precision and not model.no_low_precision:
            raise InvalidSpec(
                f"{model.name} names no submodule for a lower precision and does not say why",
                hint="give low_precision, or the reason in no_low_precision",
                where=str(path),
            )
    return zoo


def cases(zoo: Zoo, *, reduced: bool) -> Iterator[tuple[Case, str]]:
    """Every case with the reason for which it is left out of this run; "" for those that run.

    Reduced, each model runs once: modes take turns, in fp32.
    """
    modes = list(Mode)
    for number, model in enumerate(zoo.models):
        for mode in modes:
            for precision in (_FULL, *LowPrecision):
                case = Case(model.name, mode, precision)
                reason = model.no_low_precision if precision != _FULL else ""
                if reduced and (precision != _FULL or mode is not modes[number % len(modes)]):
                    reason = "the reduced board runs each model once, in fp32"
                yield case, reason


def spec_of(model: Model, case: Case, folder: Path, output: Path) -> ExportSpec:
    """The export of one case; `folder` is where the zoo's paths begin."""
    passes = tuple(
        SetPrecision(tower=tower, submodule=submodule, precision=LowPrecision(case.precision))
        for tower, submodule in model.low_precision.items()
        if case.precision != _FULL
    )
    return ExportSpec(
        config_uri=str(folder / model.config),
        checkpoint_uri=str(folder / model.checkpoint),
        item_input_uri=str(folder / model.items) if model.items else None,
        sample_input_uri=str(folder / model.rows),
        output_uri=str(output),
        mode=Mode(case.mode),
        passes=passes,
        max_batch_size=64,
    )
