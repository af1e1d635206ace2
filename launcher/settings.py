"""Settings of the launcher; the only place of the launcher that reads the environment."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from jobs.stores.redis_url import RedisUrl


class LauncherSettings(BaseSettings):
    """Settings of the launcher, read from SLIPWAY_<NAME>."""

    model_config = SettingsConfigDict(env_prefix="SLIPWAY_", frozen=True)

    redis_url: RedisUrl | None = Field(
        default=None, description="URL of an existing Redis. Default: the launcher starts one."
    )
    data_dir: Path = Field(
        default=Path(".slipway"), description="Folder of Redis's data, logs and workspaces."
    )
    host: str = Field(default="127.0.0.1", description="Address on which the API listens.")
    port: int = Field(default=8080, ge=0, le=65535, description="Port of the API; 0 takes any free port.")
