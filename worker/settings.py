"""Settings of the worker and of its attempts; the only place of the worker that reads the environment."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from exporter.artifact.signing import SigningKey
from exporter.families.own_code import OwnFamily
from exporter.spec import Target
from exporter.storage.uris import Folders
from exporter.torch_releases import TorchRelease
from jobs.families import FamilyNames, split_list
from jobs.stores.redis_url import RedisUrl
from processes.settings import CodeCacheSetting
from telemetry.choices import LogFormat, LogLevel, OtlpEndpoint


def _parse_seconds(given: object) -> object:
    """Parse an environment variable's number of seconds, which pydantic would read as hours and minutes."""
    return float(given) if isinstance(given, str) else given


Duration = Annotated[timedelta, BeforeValidator(_parse_seconds), Field(gt=timedelta(0))]


def _none_if_empty(given: object) -> object:
    """Treat an empty variable as one that is not set: compose cannot leave one out."""
    return None if given == "" else given


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
        description="Pause before the next attempt at a job whose attempt broke; each further pause is "
        "four times as long.",
    )
    attempt_time_limit: Duration = Field(
        default=timedelta(hours=4),
        description="Time limit of an attempt; an attempt that exceeds it is ended, and its job fails.",
    )
    job_retention: Duration = Field(
        default=timedelta(days=90),
        description="How long records of ended jobs are kept. Artifacts, and the records of each model's "
        "latest and promoted release, are never removed.",
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
        description="Longest time that a worker may be idle while messages wait for it; after that the probe "
        "`python -m worker.alive` fails.",
    )
    attempt_command: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="Program to run instead of Slipway's ranks; it gets the attempt's workspace as its last "
        "argument. Default: Slipway's ranks.",
    )
    resident_attempts: int = Field(
        default=100,
        ge=0,
        description="Number of attempts that the worker's resident process forks before it is replaced. It "
        "has torch imported, which takes half a gigabyte, so that attempts begin at once. 0: none; every "
        "attempt imports what it needs.",
    )
    rdzv_host: str | None = Field(
        default=None,
        min_length=1,
        description="Address at which other workers reach this one, for attempts on several hosts. Default: "
        "the address of its host name. Use a trusted network: whoever can connect there can run code.",
    )
    rdzv_port: int = Field(
        default=0,
        ge=0,
        lt=1 << 16,
        description="Port at SLIPWAY_RDZV_HOST where the hosts of an attempt meet; 0 takes any free port.",
    )
    rdzv_time_limit: Duration = Field(
        default=timedelta(minutes=10),
        description="How long the hosts of an attempt wait until all have come; after that the job fails "
        "with host_missing.",
    )
    targets: TargetNames = Field(
        default=(),
        description="Targets that the worker takes jobs for, separated by commas: cpu, avx2, avx512, cuda, "
        "sm_80, ... Default: all that its machine can compile for.",
    )
    torch: Annotated[TorchRelease | None, BeforeValidator(_none_if_empty)] = Field(
        default=None,
        description="Release of torch, as 2.13, to which the worker keeps: it takes only jobs that name it, "
        "and does not start with another one. Default: also jobs that name none.",
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
        description="Additional environment variables that attempts may see, separated by commas; a "
        "trailing * matches any ending. Variables of the machine, the compiler and the object store are "
        "always visible.",
    )
    attempt_open_files: int = Field(
        default=65_536,
        ge=256,
        description="Largest number of files that an attempt may have open; each mapped table of a "
        "checkpoint is one of them.",
    )
    attempt_file_bytes: int = Field(
        default=1 << 40, ge=1 << 20, description="Largest file that an attempt may write, in bytes."
    )
    attempt_processes: int | None = Field(
        default=None,
        ge=64,
        description="Largest number of processes and threads that the attempt's user may have, including "
        "those of other programs. Default: no limit.",
    )
    storage_role: str | None = Field(
        default=None,
        pattern=r"^arn:[\w:/+=,.@-]+$",
        description="ARN of a role that the worker assumes for every attempt, narrowed to the prefixes of "
        "its job. For S3 alone: jobs with URIs of other object stores are refused. Default: attempts use "
        "the worker's own credentials for the object store.",
    )
    storage_role_lifetime: Duration = Field(
        default=timedelta(hours=1),
        description="Lifetime of the credentials of SLIPWAY_STORAGE_ROLE, at most what the role allows; "
        "they are renewed after half of it.",
    )


def _require_valid_key(pem: SecretStr) -> SecretStr:
    SigningKey(pem.get_secret_value())
    return pem


class SigningSettings(BaseSettings):
    """Settings for signing artifacts, in a worker or in `slipway export`; read from SLIPWAY_<NAME>."""

    model_config = SettingsConfigDict(env_prefix="SLIPWAY_", frozen=True)

    signing_key: Annotated[SecretStr, AfterValidator(_require_valid_key)] | None = Field(
        default=None,
        description="Ed25519 private key that signs artifacts: its PEM text and not a path, because "
        "attempts could read a file. Default: artifacts are not signed.",
    )

    @property
    def key(self) -> SigningKey | None:
        return SigningKey(self.signing_key.get_secret_value()) if self.signing_key else None


OWN_FAMILY = "SLIPWAY_OWN_FAMILY"  # between `slipway export` and the ranks that it starts


class RankSettings(BaseSettings):
    """Settings of one rank: its number, as torchrun passes it, the endpoint of its spans, and a family.

    The family is one of the caller's own: `slipway export` passes it on, and a worker never does.
    """

    model_config = SettingsConfigDict(frozen=True)

    rank: int = 0
    world_size: int = 1
    otlp_endpoint: OtlpEndpoint = Field(default=None, validation_alias="SLIPWAY_OTLP_ENDPOINT")
    own_family: OwnFamily | None = Field(default=None, validation_alias=OWN_FAMILY)


class AttemptSettings(CodeCacheSetting, BaseSettings):
    """Settings of what an attempt may load; read from SLIPWAY_<NAME>."""

    model_config = SettingsConfigDict(env_prefix="SLIPWAY_", frozen=True)

    families: FamilyNames = Field(
        default=(),
        description="Custom model families whose code attempts may load, separated by commas; see "
        "docs/families.md.",
    )
    file_roots: Annotated[Folders, NoDecode] | None = Field(
        default=None,
        description="Folders that plain paths and file:// URIs must lie in after symbolic links are "
        "resolved, separated by commas. Default: any folder, because the API has already checked them; files "
        "that a config's features name only below the config's folder or assets_uri.",
    )
    max_checkpoint_files: int = Field(
        default=100_000, gt=0, description="Largest number of files with weights in a checkpoint."
    )
    max_checkpoint_bytes: int = Field(
        default=1 << 43,
        gt=0,
        description="Largest total size of a checkpoint's files, in bytes; the default is 8 TiB.",
    )
    max_rows_files: int = Field(
        default=100_000, gt=0, description="Largest number of parquet files of a tower's rows."
    )
    max_rows_bytes: int = Field(
        default=1 << 43,
        gt=0,
        description="Largest total size of a tower's parquet files, in bytes; the default is 8 TiB.",
    )
    stage_time_limit: Duration = Field(
        default=timedelta(hours=2),
        description="Time limit of one stage of a tower; a stage that exceeds it is ended, and the Python "
        "stack it was in is reported.",
    )


def variables_of(settings: type[BaseSettings]) -> tuple[str, ...]:
    """Return the names of the environment variables that a settings class reads."""
    prefix = settings.model_config.get("env_prefix", "")
    return tuple(
        str(field.validation_alias or f"{prefix}{name}").upper()
        for name, field in settings.model_fields.items()
    )
