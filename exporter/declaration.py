"""The declaration by which your own model family describes a tower: inputs, their columns, varying sizes."""

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from exporter.errors import InvalidDeclaration
from exporter.frozen import Frozen, in_words
from exporter.spec import TowerName

ROWS = "batch"  # name of the dim that every declaration has: rows per call, 1 to max_batch_size

_INT32_VALUES = 1 << 31

DimName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
TensorName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$")]
Axis = Annotated[int, Field(ge=1)] | DimName
DType = Literal["float32", "int64", "int32"]


class DimDeclaration(Frozen):
    """A size beside `batch` that varies from call to call; tensors that name the same one agree on it."""

    name: DimName
    low: int = Field(default=0, ge=0, description="Smallest size in a call.")
    high: int | None = Field(default=None, ge=1, description="Largest size in a call, whatever the batch.")
    high_per_row: int | None = Field(
        default=None,
        ge=1,
        description="Largest size per row, instead of `high`: a call takes max_batch_size times as many.",
    )
    reason: str = Field(
        default="elements of all rows", description="Description for people of what the dim counts."
    )

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        if self.high is not None and self.high_per_row is not None:
            raise ValueError(f"dim {self.name} has both high and high_per_row: give one of them")
        return self

    def high_in(self, max_batch_size: int) -> int | None:
        """Return the largest size in a call of `max_batch_size` rows; None if it is unbounded."""
        return self.high_per_row * max_batch_size if self.high_per_row else self.high


class TensorDeclaration(Frozen):
    """A tensor: axis 0 is `batch` or a declared dim, every other axis a fixed size."""

    name: TensorName
    dtype: DType
    shape: tuple[Axis, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _axes(self) -> Self:
        if not isinstance(self.shape[0], str) or any(isinstance(axis, str) for axis in self.shape[1:]):
            raise ValueError(
                f"{self.name} has shape {list(self.shape)}: its first axis is `batch` or the name of a dim, "
                "and every other one a number"
            )
        return self

    @property
    def dim(self) -> str:
        return str(self.shape[0])

    @property
    def width(self) -> int:
        """The number of values in one step along axis 0."""
        width = 1
        for axis in self.shape[1:]:
            assert isinstance(axis, int)
            width *= axis
        return width


class InputDeclaration(TensorDeclaration):
    """An input, and how rows fill it.

    With axis 0 `batch`, a row has one value (or one vector, if there are more axes). With another dim, a row
    has any number of them, which the input named in `lengths` holds. Whole numbers are ids: row numbers of a
    table, 0 to `table_rows` - 1, in the rows and in every call of the package.
    """

    column: str | None = Field(
        default=None, min_length=1, description="Column that fills the input. Default: the input's own name."
    )
    table_rows: int | None = Field(
        default=None, ge=1, description="For whole numbers: the number of rows of their table."
    )
    lengths: TensorName | None = Field(
        default=None,
        description="Name of the input that holds the number of elements of each row; of an input of shape "
        "[batch] it is 1 in every row.",
    )
    fill: float | None = Field(default=None, description="Value for a row that has null or nothing.")

    @property
    def is_whole(self) -> bool:
        return self.dtype != "float32"

    @property
    def source_column(self) -> str:
        return self.column or self.name


class TowerDeclaration(Frozen):
    """One tower of a family: the inputs of its module, by name, and the sizes that vary."""

    name: TowerName = TowerName.MODEL
    inputs: tuple[InputDeclaration, ...] = Field(min_length=1)
    dims: tuple[DimDeclaration, ...] = ()
    embedded: tuple[TensorDeclaration, ...] = Field(
        default=(),
        description="For two_stage: the tensors that the module's `lookup` returns and `compute` takes.",
    )

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        named = {dim.name for dim in self.dims}
        require_distinct("dim", (ROWS, *(dim.name for dim in self.dims)))
        require_distinct("input", (tensor.name for tensor in self.inputs))
        require_distinct("embedded tensor", (tensor.name for tensor in self.embedded))
        require_distinct("column", (tensor.source_column for tensor in self.filled))
        for tensor in (*self.inputs, *self.embedded):
            if tensor.dim not in named | {ROWS}:
                raise ValueError(f"{tensor.name} has the dim {tensor.dim}, which is not declared in dims")
        if unused := named - {tensor.dim for tensor in self.inputs}:
            raise ValueError(f"dim {min(unused)} is declared, and no input has it")
        for tensor in self.filled:
            _check_filled(tensor)
        for tensor in self.counting:
            _check_counting(tensor)
        self._check_lengths()
        return self

    @property
    def counting(self) -> tuple[InputDeclaration, ...]:
        """The inputs that hold the number of elements per row of other inputs."""
        names = {tensor.lengths for tensor in self.inputs}
        return tuple(tensor for tensor in self.inputs if tensor.name in names)

    @property
    def filled(self) -> tuple[InputDeclaration, ...]:
        """The inputs that are filled from a column each."""
        names = {tensor.lengths for tensor in self.inputs}
        return tuple(tensor for tensor in self.inputs if tensor.name not in names)

    def counted_by(self, lengths: str) -> tuple[InputDeclaration, ...]:
        """Return the inputs whose elements the input named `lengths` counts."""
        return tuple(tensor for tensor in self.inputs if tensor.lengths == lengths)

    def dim(self, name: str) -> DimDeclaration:
        return next(dim for dim in self.dims if dim.name == name)

    def _check_lengths(self) -> None:
        names = {tensor.name for tensor in self.inputs}
        for tensor in self.filled:
            if tensor.lengths is not None and tensor.lengths not in names:
                raise ValueError(f"{tensor.name} has its lengths in {tensor.lengths}, which is no input")
        for lengths in self.counting:
            counted = self.counted_by(lengths.name)
            if len({tensor.dim for tensor in counted}) > 1:
                both = " and ".join(tensor.name for tensor in counted)
                raise ValueError(f"{lengths.name} counts {both}, which must then share one dim")


def invalid_declaration(error: ValidationError) -> InvalidDeclaration:
    """Return an InvalidDeclaration with pydantic's first error and the place that it is about."""
    first = error.errors()[0]
    where = ".".join(str(step) for step in first["loc"])
    problem = in_words(first["msg"])
    return InvalidDeclaration(f"{where}: {problem}" if where else problem, where=where)


def require_distinct(kind: str, names: Iterable[str]) -> None:
    """Raise ValueError for a name that occurs twice."""
    for name, count in Counter(names).items():
        if count > 1:
            raise ValueError(f"two {kind}s are named {name}")


def _check_filled(tensor: InputDeclaration) -> None:
    """Require a table for whole numbers, and lengths for inputs with several elements per row."""
    if tensor.is_whole != (tensor.table_rows is not None):
        raise ValueError(
            f"{tensor.name} holds {tensor.dtype}: give table_rows, or declare float32"
            if tensor.is_whole
            else f"{tensor.name} holds float32, and table_rows is for whole numbers"
        )
    if tensor.lengths is None and tensor.dim != ROWS:
        raise ValueError(
            f"{tensor.name} has dim {tensor.dim}: name the input with its lengths, an int64 [batch]"
        )
    if tensor.dtype == "int32" and tensor.table_rows is not None and tensor.table_rows > _INT32_VALUES:
        raise ValueError(f"{tensor.name} is int32, which cannot name {tensor.table_rows} rows: declare int64")
    if tensor.fill is not None and tensor.table_rows is not None:
        whole = tensor.fill == int(tensor.fill)
        if not (whole and 0 <= tensor.fill < tensor.table_rows):
            raise ValueError(f"{tensor.name} is filled with {tensor.fill}, which is no row of its table")


def _check_counting(tensor: InputDeclaration) -> None:
    if tensor.shape != (ROWS,) or not tensor.is_whole:
        raise ValueError(f"{tensor.name} holds lengths: declare it int64 (or int32) of shape [batch]")
    if any(given is not None for given in (tensor.column, tensor.table_rows, tensor.lengths, tensor.fill)):
        raise ValueError(f"{tensor.name} holds lengths: it takes no column, table_rows, lengths or fill")
