"""The error of a service that would be open to other machines without keys."""

from exporter.errors import ExportError


class UnsafeSetup(ExportError):
    """The service would be open to other machines without asking for keys."""

    code = "unsafe_setup"
    advice = "name a file of keys in SLIPWAY_API_KEYS_FILE (see docs/access.md), or listen on 127.0.0.1 only"

    def __init__(self, message: str) -> None:
        """Take the message; the hint is always the same."""
        super().__init__(
            message,
            hint="name a file of keys in SLIPWAY_API_KEYS_FILE, or listen on 127.0.0.1 only; "
            "docs/access.md shows the file",
        )
