"""What can go wrong where precision is given up, as leaves of the exporter's tree.

ExportError
├── TableOutOfRange    a table has numbers that its dtype cannot hold
└── PrecisionLost      outputs are further from those in fp32 than they may be
"""

from exporter.errors import ExportError


class TableOutOfRange(ExportError):
    """A table has numbers that its dtype cannot hold."""

    code = "table_out_of_range"
    advice = "keep that table in fp32 or int8: name it in tables.dtypes"


class PrecisionLost(ExportError):
    """The package does what eager does in the same precision, too far from the model in fp32."""

    code = "precision_lost"
    advice = "keep some tables in fp32 by tables.dtypes, or allow more by fp32_tolerance"
