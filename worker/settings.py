"""Where a worker runs and how patient it is; the only place of the worker that reads the environment."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from telemetry.logging import LogFormat, LogLevel


class WorkerSettings(BaseSettings):
    """Read from SLIPWAY_<NAME>; durations are in seconds."""

    model_config = SettingsConfigDict(env_prefix="SLIPWAY_", frozen=True)

    redis_url: str = "redis://127.0.0.1:6379/0"
    work_dir: Path = Field(default=Path(".slipway/work"), description="Workspaces of attempts.")
    lease: Annotated[timedelta, Field(gt=timedelta(0))] = timedelta(seconds=60)
    attempt_time_limit: Annotated[timedelta, Field(gt=timedelta(0))] = timedelta(hours=4)
    sweep_interval: Annotated[timedelta, Field(gt=timedelta(0))] = timedelta(seconds=20)
    heartbeat_interval: Annotated[timedelta, Field(gt=timedelta(0))] = timedelta(seconds=5)
    attempt_command: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="Instead of torchrun: a program that is given the workspace as its last argument.",
    )
    log_format: LogFormat = LogFormat.CONSOLE
    log_level: LogLevel = LogLevel.INFO


class RankSettings(BaseSettings):
    """Which of an attempt's processes this is, as torchrun tells it."""

    model_config = SettingsConfigDict(frozen=True)

    rank: int = 0
    world_size: int = 1
