"""What the environment gives: to child processes, with changes; and a place for what can be made again."""

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

NO_CODE_CACHE = "off"  # what stands for the URI where there is to be none


def inherited_environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    """This process's environment with `changes` laid over it; None removes a variable."""
    environment: dict[str, str | None] = {**os.environ, **changes}
    return {name: value for name, value in environment.items() if value is not None}


def user_cache(name: str) -> Path:
    """The folder of this name in which Slipway keeps for the user what can be made again."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(given) if given.startswith("/") else Path.home() / ".cache") / "slipway" / name


def compiler_folder() -> Path:
    """Where they are unless the environment says otherwise: for all attempts of this user on this machine."""
    return user_cache("compiler")


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
