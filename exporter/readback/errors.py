"""Errors of packages and shards that are read back, as leaves of the exporter's tree of errors.

ExportError
├── WeightsDiffer    a byte of a weight, as it was written, is not the checkpoint's
└── ArchiveDiffers   a package's file holds something else than what was compiled
"""

from exporter.errors import ExportError


class WeightsDiffer(ExportError):
    """A weight in a file that was about to be published is not the checkpoint's."""

    code = "weights_differ"
    advice = "nothing of the tower was published; export again, and check the machine's memory and disk"


class ArchiveDiffers(ExportError):
    """A package's file does not hold exactly what was compiled."""

    code = "archive_differs"
    advice = "nothing of the tower was published; export again, and check the machine's memory and disk"
