"""Secrets and limits of webhooks, in and out; reads the environment as service.settings does."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, IPvAnyNetwork, SecretStr, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from exporter.spec import Frozen
from jobs.hooks.deliveries import PAUSES
from jobs.hooks.secret import require_webhook_secret


def _split(value: object) -> object:
    """A list as people write it in an environment variable: separated by commas or blanks."""
    return tuple(value.replace(",", " ").split()) if isinstance(value, str) else value


def _checked(secret: SecretStr) -> SecretStr:
    require_webhook_secret(secret.get_secret_value())
    return secret


def _seconds(value: object) -> object:
    """An environment variable's number is text, which pydantic would not read as seconds."""
    return float(value) if isinstance(value, str) else value


Duration = Annotated[timedelta, BeforeValidator(_seconds), Field(gt=timedelta())]
Durations = Annotated[tuple[Duration, ...], NoDecode, BeforeValidator(_split)]
Secret = Annotated[SecretStr, AfterValidator(_checked)]
Secrets = Annotated[tuple[Secret, ...], NoDecode, BeforeValidator(_split)]
Networks = Annotated[tuple[IPvAnyNetwork, ...], NoDecode, BeforeValidator(_split)]


class _SecretFile(Frozen):
    """What a file of secrets holds, checked as the variable is."""

    secrets: Secrets = ()


class HookSettings(BaseSettings):
    """Read from SLIPWAY_<NAME>; durations are in seconds."""

    model_config = SettingsConfigDict(env_prefix="SLIPWAY_", frozen=True)

    webhook_secrets: Secrets = Field(
        default=(), description="whsec_…, one or more; any of them may have signed what comes in."
    )
    webhook_secrets_file: Path | None = Field(
        default=None, description="More of them, separated by blanks or lines; read anew for every event."
    )
    max_event_bytes: int = Field(default=256 << 10, gt=0, description="Of an event that comes in.")
    event_memory: Duration = Field(
        default=timedelta(days=30), description="For so long the same event starts nothing again."
    )

    callback_secrets: Secrets = Field(
        default=(), description="whsec_…; each of them signs what goes to a job's callback_url."
    )
    callback_networks: Networks = Field(
        default=(), description="Private networks that callbacks may reach all the same, as 10.1.0.0/16."
    )
    callback_pauses: Durations = Field(
        default=PAUSES, description="Between the tries of a delivery; then it is given up."
    )
    callback_timeout: Duration = Field(default=timedelta(seconds=15), description="Of a try, in all.")
    callback_senders: int = Field(default=4, ge=0, le=64, description="Threads; 0: others send.")
    callback_poll: Duration = Field(
        default=timedelta(seconds=0.5), description="Between two looks for deliveries that are due."
    )
    delivery_memory: Duration = Field(
        default=timedelta(days=14), description="For so long deliveries that ended can be seen."
    )

    @model_validator(mode="after")
    def _file_is_readable(self) -> Self:
        self.signing_secrets()
        return self

    def signing_secrets(self) -> tuple[str, ...]:
        """The secrets that may have signed what comes in."""
        listed = self.webhook_secrets
        if self.webhook_secrets_file is not None:
            listed += _SecretFile(secrets=self.webhook_secrets_file.read_text()).secrets
        return tuple(secret.get_secret_value() for secret in listed)
