"""Where the API finds things; the only place of the service that reads the environment."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from jobs.redis_url import RedisUrl
from telemetry.choices import LogFormat, LogLevel


class ServiceSettings(BaseSettings):
    """Read from SLIPWAY_<NAME>."""

    model_config = SettingsConfigDict(env_prefix="SLIPWAY_", frozen=True)

    redis_url: RedisUrl = "redis://127.0.0.1:6379/0"
    max_request_bytes: int = Field(default=8 << 20, gt=0, description="A pipeline config fits well.")
    log_format: LogFormat = LogFormat.CONSOLE
    log_level: LogLevel = LogLevel.INFO
