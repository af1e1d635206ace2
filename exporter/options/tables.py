"""The layout of a model's embedding tables, and the dtype of their rows."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from exporter.dtypes import TableDtype
from exporter.frozen import Frozen

MAX_TABLES = 4096  # that a request may name


class TableLayout(StrEnum):
    """The place of embedding tables: inside a package, or in files of their own."""

    PACKAGED = "packaged"  # inside the package that looks them up
    SHARDED = "sharded"  # in files of rows, one per rank; lookups are not compiled


class Tables(Frozen):
    """The layout of a model's embedding tables and the dtype of their rows."""

    layout: TableLayout = TableLayout.PACKAGED
    dtype: TableDtype | None = Field(
        default=None,
        description="Dtype in which the rows of all tables are stored; lookups return fp32 in any case. "
        "Default: each table's own in the checkpoint, fp32 or fp16. fp32 widens tables of fp16.",
    )
    dtypes: Mapping[Annotated[str, Field(min_length=1, max_length=512)], TableDtype] = Field(
        default={},
        max_length=MAX_TABLES,
        description="Dtype of single tables, by the names that `slipway plan` lists; overrides `dtype`.",
    )

    def dtype_of(self, table: str, trained: TableDtype) -> TableDtype:
        """Return the dtype in which the rows of the table of this name are stored, `trained` by default."""
        return self.dtypes.get(table, self.dtype or trained)

    @property
    def sharded(self) -> bool:
        return self.layout is TableLayout.SHARDED


def _with_layout(given: object) -> object:
    """Let `"sharded"` stand for `{"layout": "sharded"}`."""
    return {"layout": given} if isinstance(given, str) else given


class _OrLayout:
    """Adds the short form, a layout's name alone, to the JSON schema of requests and responses."""

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [handler(core), {"type": "string", "enum": [each.value for each in TableLayout]}]}


TablesOrLayout = Annotated[Tables, BeforeValidator(_with_layout), _OrLayout()]
