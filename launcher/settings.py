"""What the launcher starts and where; the only place of the launcher that reads the environment."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from jobs.stores.redis_url import RedisUrl


class LauncherSettings(BaseSettings):
    """Read from SLIPWAY_<NAME>."""

    model_config = SettingsConfigDict(env_prefix="SLIPWAY_", frozen=True)

    redis_url: RedisUrl | None = Field(default=None, description="Default: a redis-server of our own.")
    data_dir: Path = Field(default=Path(".slipway"), description="Redis's file, logs and workspaces.")
    host: str = Field(default="127.0.0.1", description="Where the API listens.")
    port: int = Field(default=8080, ge=0, le=65535, description="0: any free port.")
