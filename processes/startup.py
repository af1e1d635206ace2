"""Read a program's settings, or exit with one line that says which of them is wrong."""

import sys
from collections.abc import Callable
from typing import TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings, SettingsError

from exporter.errors import ExportError
from processes.errors import InvalidSettings

_Settings = TypeVar("_Settings", bound=BaseSettings)


def settings_or_exit(read: Callable[[], _Settings]) -> _Settings:
    """Return the settings that `read` gives; exit with one line if they are invalid."""
    try:
        return read()
    except ValidationError as error:  # without the values, because a URL may hold a password
        first = error.errors()[0]
        name = f"SLIPWAY_{'_'.join(str(step) for step in first['loc'])}".upper()
        sys.exit(format_error(InvalidSettings(f"{name}: {first['msg']}", where=name)))
    except SettingsError as error:
        sys.exit(format_error(InvalidSettings(str(error))))


def format_error(error: ExportError) -> str:
    """Return `error [code]: message (hint)`."""
    return f"error [{error.code}]: {error.message} ({error.hint})"
