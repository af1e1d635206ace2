"""Errors of the loader, as errors of an export: for commands, which show those."""

from exporter.errors import ExportError, InvalidArtifact, SignatureRefused, StorageError
from slipway.loading import errors as loader


def as_export_error(error: loader.LoaderError) -> ExportError:
    """Return the error to raise instead of one of the loader's."""
    if isinstance(error, loader.SignatureRefused):
        return SignatureRefused(error.message, hint=error.hint, where=error.where)
    if isinstance(error, loader.PrepareFailed):
        return StorageError(error.message, hint=error.hint, where=error.where)
    return InvalidArtifact(error.message, hint=error.hint, where=error.where)
