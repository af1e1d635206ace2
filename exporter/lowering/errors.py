"""Errors of lower precision, as leaves of the exporter's tree of errors.

ExportError
├── TableOutOfRange    a table has numbers that its dtype cannot hold
└── PrecisionLost      outputs differ from those in fp32 by more than the tolerance
"""

from exporter.errors import ExportError


class TableOutOfRange(ExportError):
    """A table has numbers that its dtype cannot hold."""

    code = "table_out_of_range"
    advice = "keep that table in fp32 or int8: name it in tables.dtypes"


class PrecisionLost(ExportError):
    """The package agrees with eager in the same precision, but differs too much from the model in fp32."""

    code = "precision_lost"
    advice = "keep some tables in fp32 by tables.dtypes, or allow more by fp32_tolerance"
