"""Settings that several programs share, and the environment that child processes inherit."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import BaseModel, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

_SECRET = re.compile(
    r"(?i)(secret|token|password|(api|access|signing|private)_key|credential)(?!.*(_file|_uri|_url|_id)$)"
)
_PASSWORD = re.compile(r"://[^/\s:@]*:([^/\s@]+)@")
NO_CODE_CACHE = "off"  # the setting's value for no code cache


def inherited_environment(
    changes: Mapping[str, str | None], permits: Callable[[str], bool] = lambda name: True
) -> dict[str, str]:
    """Return the variables of this process that `permits` accepts, with `changes` applied.

    A change to None removes the variable.
    """
    kept = {name: value for name, value in os.environ.items() if permits(name)}
    environment: dict[str, str | None] = {**kept, **changes}
    return {name: value for name, value in environment.items() if value is not None}


def secret_values() -> tuple[str, ...]:
    """Return the values of this process's environment that no log may show.

    They are variables whose names say that they are secret, and passwords in URLs.
    """
    by_name = [value for name, value in os.environ.items() if _SECRET.search(name)]
    in_urls = [found[1] for value in os.environ.values() for found in _PASSWORD.finditer(value)]
    return tuple(dict.fromkeys([*by_name, *in_urls]))


def user_cache(name: str) -> Path:
    """Return the folder `name` in the user's cache folder, for files that can be made again."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(given) if given.startswith("/") else Path.home() / ".cache") / "slipway" / name


def compiler_folder() -> Path:
    """Return the compiler's default folder, which all attempts of this user on this machine share."""
    return user_cache("compiler")


class CodeCacheSetting(BaseModel):
    """The setting of the shared code cache, part of the settings of every program that uses it."""

    code_cache: str | None = Field(
        default=None,
        description="Folder or object-store prefix of compiled code that exports share; `off`: no reuse. "
        "Default: ~/.cache/slipway/code.",
    )

    @property
    def code_cache_uri(self) -> str | None:
        return None if self.code_cache == NO_CODE_CACHE else self.code_cache or str(user_cache("code"))


class CompilerSettings(BaseSettings):
    """Settings of the files that torch's compiler keeps on a machine, and of precompiled ones."""

    model_config = SettingsConfigDict(frozen=True)

    torchinductor_cache_dir: Path = Field(
        default_factory=compiler_folder,
        description="Folder where torch's compiler keeps precompiled headers of the machine. "
        "Default: ~/.cache/slipway/compiler.",
    )
    slipway_compiled_ahead: Path | None = Field(
        default=None,
        description="Folder that `python -m worker.warm_up` filled when an image was built; attempts copy "
        "it to the compiler's folder.",
    )
