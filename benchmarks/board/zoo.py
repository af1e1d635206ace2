"""The models that the board exports, read from a file that gives a reason for everything left out."""

from collections.abc import Collection, Iterator
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

from pydantic import Field, ValidationError

from exporter.errors import InvalidSpec
from exporter.spec import ExportSpec, Frozen, LowPrecision, Mode, SetPrecision, TowerName

_FULL = "fp32"


class Model(Frozen):
    """A model of the zoo; its paths are relative to the zoo's file."""

    name: str
    config: str
    checkpoint: str
    items: str | None = None
    rows: str
    low_precision: dict[TowerName, str] = Field(
        default={}, description="Tower -> the submodule to compute in a lower precision."
    )
    no_low_precision: str = Field(default="", description="Why the model has no such submodule.")
    extra: bool = Field(
        default=False, description="True if another model represents this family in reduced runs."
    )


class Zoo(Frozen):
    """All models, and the reasons why families that can be built are missing."""

    models: tuple[Model, ...]
    left_out: dict[str, str] = Field(default={}, description="Family -> the reason.")


class Case(NamedTuple):
    """The parameters of one export, which also identify it in an earlier run."""

    model: str
    mode: str
    precision: str


class Wanted(NamedTuple):
    """Names of the cases that a run is asked for; of what is empty, all."""

    models: Collection[str] = ()
    modes: Collection[str] = ()
    precisions: Collection[str] = ()

    def has(self, case: Case) -> bool:
        """Return whether the run is asked for a case."""
        return all(not names or name in names for names, name in zip(self, case, strict=True))


EVERYTHING = Wanted()
PRECISIONS = (_FULL, *LowPrecision)


def require_models(zoo: Zoo, names: Collection[str]) -> None:
    """Raise InvalidSpec if the zoo lacks a model of one of these names."""
    known = [model.name for model in zoo.models]
    for name in names:
        if name not in known:
            raise InvalidSpec(f"the zoo has no model {name}", hint=f"it has: {', '.join(known)}", where=name)


def read_zoo(path: Path) -> Zoo:
    """Read the zoo from a JSON file.

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


def cases(zoo: Zoo, *, reduced: bool, wanted: Wanted = EVERYTHING) -> Iterator[tuple[Case, str]]:
    """Yield every case with the reason why this run leaves it out; "" for cases that run.

    With `reduced`, only one model of each family runs, once, in fp32 and in alternating modes.
    """
    turns = cycle(Mode)
    for model in zoo.models:
        turn = None if model.extra else next(turns)
        for mode in Mode:
            for precision in PRECISIONS:
                case = Case(model.name, mode, precision)
                reason = model.no_low_precision if precision != _FULL else ""
                if reduced and (precision != _FULL or mode is not turn):
                    reason = "the reduced board runs one model of each family once, in fp32"
                if not wanted.has(case):
                    reason = "this run was asked for others"
                yield case, reason


def spec_of(model: Model, case: Case, folder: Path, output: Path) -> ExportSpec:
    """Return the spec of one case; the zoo's paths are relative to `folder`."""
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
