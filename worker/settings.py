"""Where a worker runs and how patient it is; the only place of the worker that reads the environment."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from jobs.families import FamilyNames
from jobs.redis_url import RedisUrl
from telemetry.choices import LogFormat, LogLevel, OtlpEndpoint


def _seconds(given: object) -> object:
    """An environment variable's number is text, which pydantic would read as hours and minutes."""
    return float(given) if isinstance(given, str) else given


Duration = Annotated[timedelta, BeforeValidator(_seconds), Field(gt=timedelta(0))]


class WorkerSettings(BaseSettings):
    """Read from SLIPWAY_<NAME>; durations are in seconds."""

    model_config = SettingsConfigDict(env_prefix="SLIPWAY_", frozen=True)

    redis_url: RedisUrl = "redis://127.0.0.1:6379/0"
    work_dir: Path = Field(default=Path(".slipway/work"), description="Workspaces of attempts.")
    lease: Duration = Field(
        default=timedelta(seconds=60), description="Longer than ending an attempt takes: four seconds."
    )
    attempt_time_limit: Duration = timedelta(hours=4)
    sweep_interval: Duration = timedelta(seconds=20)
    heartbeat_interval: Duration = timedelta(seconds=5)
    attempt_command: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="Instead of torchrun: a program that is given the workspace as its last argument.",
    )
    log_format: LogFormat = LogFormat.CONSOLE
    log_level: LogLevel = LogLevel.INFO
    otlp_endpoint: OtlpEndpoint = None


class RankSettings(BaseSettings):
    """Which of an attempt's processes this is, as torchrun tells it, and where it sends its spans."""

    model_config = SettingsConfigDict(frozen=True)

    rank: int = 0
    world_size: int = 1
    otlp_endpoint: OtlpEndpoint = Field(default=None, validation_alias="SLIPWAY_OTLP_ENDPOINT")


class AttemptSettings(BaseSettings):
    """What an attempt may load; read from SLIPWAY_<NAME>."""

    model_config = SettingsConfigDict(env_prefix="SLIPWAY_", frozen=True)

    families: FamilyNames = Field(
        default=(), description="Model families of one's own: docs/families.md. By commas."
    )
    stage_time_limit: Duration = timedelta(hours=2)  # past it a stage is ended, with the stack it hung in
