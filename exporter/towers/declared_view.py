"""Tower config of a declared tower: every input that comes from a column is a feature. No torch."""

from exporter.config.declared_model import DeclaredConfig
from exporter.config.schema import Feature, FeatureKind, PipelineConfig, Sequence, TableConfig, TowerConfig
from exporter.declaration import ROWS, DimDeclaration, InputDeclaration, TowerDeclaration

# Separators where a row is one string: between the elements of a row, and between the numbers of a vector.
_ELEMENTS, _NUMBERS = ";", ","


def declared_tower(
    declaration: TowerDeclaration, *, family: str, text: str, origin: str = "", is_own: bool = False
) -> TowerConfig:
    """Return the config of a declared tower, for reading rows; the family builds the model from `text`.

    `origin` tells apart what else the model is built from, and `is_own` that no package offers the family.
    """
    return TowerConfig(
        name=declaration.name,
        view="declared",
        pipeline=PipelineConfig(
            text=text,
            features=tuple(_feature(tensor, declaration) for tensor in declaration.filled),
            groups=(),
            model=DeclaredConfig(family=family, declaration=declaration, origin=origin, is_own=is_own),
            train_input_path="",
        ),
    )


def _feature(tensor: InputDeclaration, declaration: TowerDeclaration) -> Feature:
    """Return an input as a feature; inputs of one dim are features of one sequence, equally long in a row."""
    dim = None if tensor.dim == ROWS else declaration.dim(tensor.dim)
    return Feature(
        name=tensor.source_column,
        bare_name=tensor.source_column,
        kind=FeatureKind.ID if tensor.is_whole else FeatureKind.RAW,
        sequence=_sequence(dim) if dim else None,
        table=TableConfig(name=tensor.name, rows=tensor.table_rows, dim=0) if tensor.table_rows else None,
        value_dim=tensor.width,
        fixed_width=True,
        fill_value=_filler(tensor),
        separator=_NUMBERS,
    )


def _sequence(dim: DimDeclaration) -> Sequence:
    return Sequence(name=dim.name, length=dim.high_per_row or dim.high or 0, delim=_ELEMENTS)


def _filler(tensor: InputDeclaration) -> str | None:
    """Return the values of one filling element, as the text of a row that is one string."""
    if tensor.fill is None:
        return None
    value = str(int(tensor.fill)) if tensor.is_whole else repr(tensor.fill)
    return _NUMBERS.join([value] * tensor.width)
