"""Where a worker runs and how patient it is; the only place of the worker that reads the environment."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from exporter.artifact.signing import SigningKey
from exporter.spec import Target
from exporter.storage.uris import Folders
from jobs.families import FamilyNames
from jobs.stores.redis_url import RedisUrl
from processes.settings import CodeCacheSetting
from telemetry.choices import LogFormat, LogLevel, OtlpEndpoint


def _parse_seconds(given: object) -> object:
    """An environment variable's number is text, which pydantic would read as hours and minutes."""
    return float(given) if isinstance(given, str) else given


Duration = Annotated[timedelta, BeforeValidator(_parse_seconds), Field(gt=timedelta(0))]


def split_list(given: object) -> object:
    """A list as people write it in an environment variable."""
    return tuple(given.replace(",", " ").split()) if isinstance(given, str) else given


VariableNames = Annotated[
    tuple[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\*?$")], ...],
    NoDecode,
    BeforeValidator(split_list),
]
TargetNames = Annotated[tuple[Target, ...], NoDecode, BeforeValidator(split_list)]


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
    job_retention: Duration = Field(
        default=timedelta(days=90),
        description="Jobs that ended longer ago are forgotten, but for each model's latest release; what "
        "they published stays.",
    )
    sweep_interval: Duration = Field(
        default=timedelta(seconds=20), description="Between two looks for jobs that nobody would run."
    )
    heartbeat_interval: Duration = Field(
        default=timedelta(seconds=5),
        validate_default=True,
        description="Between two signs of life; three missed ones mean death. At most a sixth of the lease.",
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
        description="Instead of Slipway's own: a program that is given the workspace as its last argument.",
    )
    rdzv_host: str | None = Field(
        default=None,
        min_length=1,
        description="An address of this worker's that others reach, for attempts on several hosts. "
        "Default: that of its host name. On a trusted network only: who can connect there can run code.",
    )
    rdzv_port: int = Field(
        default=0, ge=0, lt=1 << 16, description="The port there; default: 0, which is any that is free."
    )
    rdzv_time_limit: Duration = Field(
        default=timedelta(minutes=10),
        description="How long hosts of an attempt wait for the last; then the job fails: host_missing.",
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

    @field_validator("heartbeat_interval")
    @classmethod
    def _require_frequent_beats(cls, interval: timedelta, info: ValidationInfo) -> timedelta:
        """Three beats may be missed in half a lease, after which nobody is judged, see `lease_expiry`."""
        lease: timedelta | None = info.data.get("lease")
        if lease is not None and interval > lease / 6:
            raise ValueError(
                f"{interval.total_seconds():g} seconds are more than a sixth of SLIPWAY_LEASE, "
                f"{lease.total_seconds():g}: shorten it, or have longer leases"
            )
        return interval


class AttemptEnvironmentSettings(BaseSettings):
    """What attempts are given of the worker; read from SLIPWAY_<NAME>."""

    model_config = SettingsConfigDict(env_prefix="SLIPWAY_", frozen=True)

    attempt_variables: VariableNames = Field(
        default=(),
        description="Variables that attempts may see beside those that the machine, the compiler and the "
        "object store need; a name that ends in * stands for all that begin so. By commas.",
    )
    attempt_open_files: int = Field(
        default=65_536, ge=256, description="Each mapped table of a checkpoint holds a file open."
    )
    attempt_file_bytes: int = Field(default=1 << 40, ge=1 << 20, description="Of the largest file it writes.")
    attempt_processes: int | None = Field(
        default=None, ge=64, description="Processes and threads of its user, other programs' included."
    )
    storage_role: str | None = Field(
        default=None,
        pattern=r"^arn:[\w:/+=,.@-]+$",
        description="A role that the worker assumes for every attempt, narrowed to the prefixes of its job. "
        "Default: attempts get the worker's own credentials for the object store.",
    )
    storage_role_lifetime: Duration = Field(
        default=timedelta(hours=1),
        description="Of those credentials, renewed when half of it has passed; no more than the role allows.",
    )


def _require_valid_key(pem: SecretStr) -> SecretStr:
    SigningKey(pem.get_secret_value())
    return pem


class SigningSettings(BaseSettings):
    """With what a worker, or `slipway export`, signs what its attempts publish; read from SLIPWAY_<NAME>."""

    model_config = SettingsConfigDict(env_prefix="SLIPWAY_", frozen=True)

    signing_key: Annotated[SecretStr, AfterValidator(_require_valid_key)] | None = Field(
        default=None,
        description="An Ed25519 private key itself, in PEM: a file could be read by an attempt. "
        "Default: artifacts are not signed.",
    )

    @property
    def key(self) -> SigningKey | None:
        return SigningKey(self.signing_key.get_secret_value()) if self.signing_key else None


class RankSettings(BaseSettings):
    """Which of an attempt's processes this is, as torchrun tells it, and where it sends its spans."""

    model_config = SettingsConfigDict(frozen=True)

    rank: int = 0
    world_size: int = 1
    otlp_endpoint: OtlpEndpoint = Field(default=None, validation_alias="SLIPWAY_OTLP_ENDPOINT")


class AttemptSettings(CodeCacheSetting, BaseSettings):
    """What an attempt may load; read from SLIPWAY_<NAME>."""

    model_config = SettingsConfigDict(env_prefix="SLIPWAY_", frozen=True)

    families: FamilyNames = Field(
        default=(), description="Model families of one's own: docs/families.md. By commas."
    )
    file_roots: Annotated[Folders, NoDecode] | None = Field(
        default=None,
        description="Folders below which plain paths and file:// may lead, links followed; by commas. "
        "Default: anywhere, as the API has allowed it.",
    )
    max_checkpoint_files: int = Field(default=100_000, gt=0, description="Of weights, in a checkpoint.")
    max_checkpoint_bytes: int = Field(default=1 << 43, gt=0, description="Of all of them: 8 TiB.")
    max_rows_files: int = Field(default=100_000, gt=0, description="Of parquet, for a tower.")
    max_rows_bytes: int = Field(default=1 << 43, gt=0, description="Of all of them: 8 TiB.")
    stage_time_limit: Duration = Field(
        default=timedelta(hours=2), description="Past it a stage is ended, with the stack it hung in."
    )


def variables_of(settings: type[BaseSettings]) -> tuple[str, ...]:
    """The names of the variables that a settings class reads."""
    prefix = settings.model_config.get("env_prefix", "")
    return tuple(
        str(field.validation_alias or f"{prefix}{name}").upper()
        for name, field in settings.model_fields.items()
    )
