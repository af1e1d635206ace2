"""What the environment gives: to child processes, with changes; and a place for what can be made again."""

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
NO_CODE_CACHE = "off"  # what stands for the URI where there is to be none


def inherited_environment(
    changes: Mapping[str, str | None], permits: Callable[[str], bool] = lambda name: True
) -> dict[str, str]:
    """What `permits` of this process's environment, with `changes` laid over it; None removes a variable."""
    kept = {name: value for name, value in os.environ.items() if permits(name)}
    environment: dict[str, str | None] = {**kept, **changes}
    return {name: value for name, value in environment.items() if value is not None}


def secret_values() -> tuple[str, ...]:
    """What this process's environment holds and nobody is to read in a log: by the names of variables."""
    by_name = [value for name, value in os.environ.items() if _SECRET.search(name)]
    in_urls = [found[1] for value in os.environ.values() for found in _PASSWORD.finditer(value)]
    return tuple(dict.fromkeys([*by_name, *in_urls]))


def user_cache(name: str) -> Path:
    """The folder of this name in which Slipway keeps for the user what can be made again."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(given) if given.startswith("/") else Path.home() / ".cache") / "slipway" / name


def compiler_folder() -> Path:
    """Where they are unless the environment says otherwise: for all attempts of this user on this machine."""
    return user_cache("compiler")


class CodeCacheSetting(BaseModel):
    """Where compiled code is shared: a part of the settings of every program that uses it."""

    code_cache: str | None = Field(
        default=None,
        description="Compiled code that exports share: a folder or an object-store prefix, or `off` for "
        "no reuse. Default: ~/.cache/slipway/code.",
    )

    @property
    def code_cache_uri(self) -> str | None:
        return None if self.code_cache == NO_CODE_CACHE else self.code_cache or str(user_cache("code"))


class CompilerSettings(BaseSettings):
    """Where torch's compiler keeps its own files, by torch's name for it, and finds those of an image."""

    model_config = SettingsConfigDict(frozen=True)

    torchinductor_cache_dir: Path = Field(
        default_factory=compiler_folder,
        description="Where torch's compiler keeps what it asks a machine once. "
        "Default: ~/.cache/slipway/compiler.",
    )
    slipway_compiled_ahead: Path | None = Field(
        default=None,
        description="What `python -m worker.warm_up` made when an image was built; attempts copy it to "
        "where the compiler keeps its files.",
    )
