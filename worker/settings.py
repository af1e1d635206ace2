"""Where a worker runs and how patient it is; the only place of the worker that reads the environment."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from exporter.spec import Target
from jobs.families import FamilyNames
from jobs.redis_url import RedisUrl
from processes.settings import NO_CODE_CACHE, user_cache
from telemetry.choices import LogFormat, LogLevel, OtlpEndpoint


def _seconds(given: object) -> object:
    """An environment variable's number is text, which pydantic would read as hours and minutes."""
    return float(given) if isinstance(given, str) else given


Duration = Annotated[timedelta, BeforeValidator(_seconds), Field(gt=timedelta(0))]


def _split(given: object) -> object:
    """A list as people write it in an environment variable."""
    return tuple(given.replace(",", " ").split()) if isinstance(given, str) else given


TargetNames = Annotated[tuple[Target, ...], NoDecode, BeforeValidator(_split)]


class WorkerSettings(BaseSettings):
    """Read from SLIPWAY_<NAME>; durations are in seconds."""

    model_config = SettingsConfigDict(env_prefix="SLIPWAY_", frozen=True)

    redis_url: RedisUrl = Field(default="redis://127.0.0.1:6379/0", description="Where the jobs are.")
    work_dir: Path = Field(default=Path(".slipway/work"), description="Workspaces of attempts.")
    lease: Duration = Field(
        default=timedelta(seconds=60), description="Longer than ending an attempt takes: four seconds."
    )
    retry_pause: Duration = Field(
        default=timedelta(seconds=5),
        description="Before a job is begun again whose attempt broke; the next pause is four times as long.",
    )
    attempt_time_limit: Duration = Field(
        default=timedelta(hours=4), description="An attempt that takes longer is ended, and the job fails."
    )
    sweep_interval: Duration = Field(
        default=timedelta(seconds=20), description="Between two looks for jobs that nobody would run."
    )
    heartbeat_interval: Duration = Field(
        default=timedelta(seconds=5), description="Between two signs of life; three missed ones mean death."
    )
    alive_file: Path | None = Field(
        default=None, description="Written with every beat, for the probe `python -m worker.alive`."
    )
    longest_hunger: Duration = Field(
        default=timedelta(minutes=5),
        description="Idle for longer while messages wait for it, a worker fails the probe.",
    )
    attempt_command: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="Instead of torchrun: a program that is given the workspace as its last argument.",
    )
    targets: TargetNames = Field(
        default=(),
        description="What it takes jobs for, by commas: cpu, avx2, avx512, cuda, sm_80, ...; "
        "default: all that its machine can compile for.",
    )
    log_format: LogFormat = Field(
        default=LogFormat.CONSOLE, description="console for people, json for machines."
    )
    log_level: LogLevel = Field(default=LogLevel.INFO, description="What is less than this is not logged.")
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
    stage_time_limit: Duration = Field(
        default=timedelta(hours=2), description="Past it a stage is ended, with the stack it hung in."
    )
    code_cache: str | None = Field(
        default=None,
        description="Compiled code that exports share: a folder or an object-store prefix, or `off` for "
        "no reuse. Default: ~/.cache/slipway/code.",
    )

    @property
    def code_cache_uri(self) -> str | None:
        return None if self.code_cache == NO_CODE_CACHE else self.code_cache or str(user_cache("code"))
