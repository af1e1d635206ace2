"""What the command line may load where it exports; the only place of it that reads the environment."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from jobs.families import FamilyNames
from processes.settings import NO_CODE_CACHE, user_cache


class ExportSettings(BaseSettings):
    """Read from SLIPWAY_<NAME>."""

    model_config = SettingsConfigDict(env_prefix="SLIPWAY_", frozen=True)

    families: FamilyNames = Field(default=(), description="Of one's own, that may be loaded. By commas.")


class CheckSettings(ExportSettings):
    """Read from SLIPWAY_<NAME>."""

    code_cache: str | None = Field(
        default=None,
        description="Compiled code that exports share: a folder or an object-store prefix, or `off` for "
        "no reuse. Default: ~/.cache/slipway/code.",
    )

    @property
    def code_cache_uri(self) -> str | None:
        return None if self.code_cache == NO_CODE_CACHE else self.code_cache or str(user_cache("code"))
