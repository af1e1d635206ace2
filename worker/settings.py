"""Settings of the worker and of its attempts; the only place of the worker that reads the environment."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from exporter.artifact.signing import SigningKey
from exporter.spec import Target
from exporter.storage.uris import Folders
from jobs.families import FamilyNames, split_list
from jobs.stores.redis_url import RedisUrl
from processes.settings import CodeCacheSetting
from telemetry.choices import LogFormat, LogLevel, OtlpEndpoint


def _parse_seconds(given: object) -> object:
    """Parse an environment variable's number of seconds, which pydantic would read as hours and minutes."""
    return float(given) if isinstance(given, str) else given


Duration = Annotated[timedelta, BeforeValidator(_parse_seconds), Field(gt=timedelta(0))]


VariableNames = Annotated[
    tuple[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\*?$")], ...],
    NoDecode,
    BeforeValidator(split_list),
]
TargetNames = Annotated[tuple[Target, ...], NoDecode, BeforeValidator(split_list)]


class WorkerSettings(BaseSettings):
    """Settings of the worker, read from SLIPWAY_<NAME>; durations are in seconds."""

    model_config = SettingsConfigDict(env_prefix="SLIPWAY_", frozen=True)

    redis_url: RedisUrl = Field(
        default="redis://127.0.0.1:6379/0", description="URL of the Redis that holds the jobs."
    )
    work_dir: Path = Field(default=Path(".slipway/work"), description="Folder of the attempts' workspaces.")
    lease: Duration = Field(
        default=timedelta(seconds=60),
        description="How long a worker holds a job without renewing its lease. Must be longer than the four "
        "seconds that ending an attempt takes.",
    )
    retry_pause: Duration = Field(
        default=timedelta(seconds=5),
        description="Pause before a job whose attempt broke is started again; each further pause is four "
        "times as long.",
    )
    attempt_time_limit: Duration = Field(
        default=timedelta(hours=4),
        description="Longest time an attempt may take; then it is ended, and the job fails.",
    )
    job_retention: Duration = Field(
        default=timedelta(days=90),
        description="How long records of ended jobs are kept. Artifacts, and the record of each model's "
        "latest release, are never removed.",
    )
    sweep_interval: Duration = Field(
        default=timedelta(seconds=20),
        description="Time between two sweeps for jobs that no worker would otherwise run.",
    )
    heartbeat_interval: Duration = Field(
        default=timedelta(seconds=5),
        validate_default=True,
        description="Time between two heartbeats; a worker that misses three counts as dead. At most a "
        "sixth of the lease.",
    )
    alive_file: Path | None = Field(
        default=None,
        description="File written at every heartbeat, for the probe `python -m worker.alive`. Default: none.",
    )
    longest_hunger: Duration = Field(
        default=timedelta(minutes=5),
        description="A worker that is idle for longer than this while messages wait for it fails the probe.",
    )
    attempt_command: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="Program to run instead of Slipway's ranks; its last argument is the attempt's "
        "workspace.",
    )
    rdzv_host: str | None = Field(
        default=None,
        min_length=1,
        description="Address at which other workers reach this one, for attempts on several hosts. Default: "
        "the address of its host name. Use a trusted network: whoever can connect there can run code.",
    )
    rdzv_port: int = Field(
        default=0, ge=0, lt=1 << 16, description="Port of that address; 0 takes any free port."
    )
    rdzv_time_limit: Duration = Field(
        default=timedelta(minutes=10),
        description="How long the hosts of an attempt wait for the last one; then the job fails with "
        "host_missing.",
    )
    targets: TargetNames = Field(
        default=(),
        description="Targets that the worker takes jobs for, separated by commas: cpu, avx2, avx512, cuda, "
        "sm_80, ... Default: all that its machine can compile for.",
    )
    log_format: LogFormat = Field(
        default=LogFormat.CONSOLE, description="Form of log lines: console for people, json for machines."
    )
    log_level: LogLevel = Field(
        default=LogLevel.INFO, description="Lowest level of messages that are logged."
    )
    otlp_endpoint: OtlpEndpoint = None

    @field_validator("heartbeat_interval")
    @classmethod
    def _require_frequent_beats(cls, interval: timedelta, info: ValidationInfo) -> timedelta:
        """Require that three beats fit into half a lease: after a longer silence no lease is judged expired.

        `jobs.lease.lease_expiry` says why.
        """
        lease: timedelta | None = info.data.get("lease")
        if lease is not None and interval > lease / 6:
            raise ValueError(
                f"{interval.total_seconds():g} seconds are more than a sixth of SLIPWAY_LEASE, "
                f"{lease.total_seconds():g}: shorten it, or have longer leases"
            )
        return interval


class AttemptEnvironmentSettings(BaseSettings):
    """Settings of the environment that attempts get from the worker; read from SLIPWAY_<NAME>."""

    model_config = SettingsConfigDict(env_prefix="SLIPWAY_", frozen=True)

    attempt_variables: VariableNames = Field(
        default=(),
        description="Further variables that attempts may see, separated by commas; a trailing * stands for "
        "any ending. Those of the machine, the compiler and the object store are always visible.",
    )
    attempt_open_files: int = Field(
        default=65_536,
        ge=256,
        description="Most files an attempt may hold open; each mapped table of a checkpoint holds one.",
    )
    attempt_file_bytes: int = Field(
        default=1 << 40, ge=1 << 20, description="Largest file that an attempt may write, in bytes."
    )
    attempt_processes: int | None = Field(
        default=None,
        ge=64,
        description="Most processes and threads that the attempt's user may have, other programs included. "
        "Default: no limit.",
    )
    storage_role: str | None = Field(
        default=None,
        pattern=r"^arn:[\w:/+=,.@-]+$",
        description="ARN of a role that the worker assumes for every attempt, narrowed to the prefixes of "
        "its job. Default: attempts use the worker's own credentials for the object store.",
    )
    storage_role_lifetime: Duration = Field(
        default=timedelta(hours=1),
        description="Lifetime of the role's credentials, at most what the role allows; they are renewed at "
        "half of it.",
    )


def _require_valid_key(pem: SecretStr) -> SecretStr:
    SigningKey(pem.get_secret_value())
    return pem


class SigningSettings(BaseSettings):
    """Settings for signing artifacts, in a worker or in `slipway export`; read from SLIPWAY_<NAME>."""

    model_config = SettingsConfigDict(env_prefix="SLIPWAY_", frozen=True)

    signing_key: Annotated[SecretStr, AfterValidator(_require_valid_key)] | None = Field(
        default=None,
        description="Ed25519 private key in PEM, and not its path: an attempt could read a file. "
        "Default: artifacts are not signed.",
    )

    @property
    def key(self) -> SigningKey | None:
        return SigningKey(self.signing_key.get_secret_value()) if self.signing_key else None


class RankSettings(BaseSettings):
    """Settings of one rank: its number, as torchrun passes it, and the endpoint of its spans."""

    model_config = SettingsConfigDict(frozen=True)

    rank: int = 0
    world_size: int = 1
    otlp_endpoint: OtlpEndpoint = Field(default=None, validation_alias="SLIPWAY_OTLP_ENDPOINT")


class AttemptSettings(CodeCacheSetting, BaseSettings):
    """Settings of what an attempt may load; read from SLIPWAY_<NAME>."""

    model_config = SettingsConfigDict(env_prefix="SLIPWAY_", frozen=True)

    families: FamilyNames = Field(
        default=(), description="Your own model families, separated by commas (docs/families.md)."
    )
    file_roots: Annotated[Folders, NoDecode] | None = Field(
        default=None,
        description="Folders that plain paths and file:// URIs may lead to, after resolving links; "
        "separated by commas. Default: any folder, because the API has already checked.",
    )
    max_checkpoint_files: int = Field(
        default=100_000, gt=0, description="Most files with weights in a checkpoint."
    )
    max_checkpoint_bytes: int = Field(
        default=1 << 43, gt=0, description="Most bytes of all files of a checkpoint; the default is 8 TiB."
    )
    max_rows_files: int = Field(default=100_000, gt=0, description="Most parquet files of rows for a tower.")
    max_rows_bytes: int = Field(
        default=1 << 43,
        gt=0,
        description="Most bytes of all parquet files for a tower; the default is 8 TiB.",
    )
    stage_time_limit: Duration = Field(
        default=timedelta(hours=2),
        description="Longest time a stage may take; then it is ended, and the stack is reported.",
    )


def variables_of(settings: type[BaseSettings]) -> tuple[str, ...]:
    """Return the names of the environment variables that a settings class reads."""
    prefix = settings.model_config.get("env_prefix", "")
    return tuple(
        str(field.validation_alias or f"{prefix}{name}").upper()
        for name, field in settings.model_fields.items()
    )
