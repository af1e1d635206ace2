"""Why a service does not start, or does not answer, for want of keys."""

from exporter.errors import ExportError


class UnsafeSetup(ExportError):
    """The service would be open to others without asking for keys."""

    code = "unsafe_setup"
    advice = "name a file of keys in SLIPWAY_API_KEYS_FILE (see docs/access.md), or listen on 127.0.0.1 only"

    def __init__(self, message: str) -> None:
        """Say what is missing."""
        super().__init__(
            message,
            hint="name a file of keys in SLIPWAY_API_KEYS_FILE, or listen on 127.0.0.1 only; "
            "docs/access.md shows the file",
        )
