"""Secrets and limits of incoming and outgoing webhooks, read from the environment."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, IPvAnyNetwork, SecretStr, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from exporter.spec import Frozen
from jobs.hooks.deliveries import PAUSES
from jobs.hooks.secret import require_webhook_secret


def _split(value: object) -> object:
    """Split a list as written in an environment variable: separated by commas or blanks."""
    return tuple(value.replace(",", " ").split()) if isinstance(value, str) else value


def _require_webhook_secret(secret: SecretStr) -> SecretStr:
    require_webhook_secret(secret.get_secret_value())
    return secret


def _seconds(value: object) -> object:
    """Convert the text of an environment variable, which pydantic would not read as seconds."""
    return float(value) if isinstance(value, str) else value


Duration = Annotated[timedelta, BeforeValidator(_seconds), Field(gt=timedelta())]
Durations = Annotated[tuple[Duration, ...], NoDecode, BeforeValidator(_split)]
Secret = Annotated[SecretStr, AfterValidator(_require_webhook_secret)]
Secrets = Annotated[tuple[Secret, ...], NoDecode, BeforeValidator(_split)]
Networks = Annotated[tuple[IPvAnyNetwork, ...], NoDecode, BeforeValidator(_split)]


class _SecretFile(Frozen):
    """The content of a file of secrets, with the checks of the environment variable."""

    secrets: Secrets = ()


class HookSettings(BaseSettings):
    """Settings of webhooks, read from SLIPWAY_<NAME>; durations are in seconds."""

    model_config = SettingsConfigDict(env_prefix="SLIPWAY_", frozen=True)

    webhook_secrets: Secrets = Field(
        default=(),
        description="Secrets (whsec_…), any of which may have signed an incoming event; separated by commas.",
    )
    webhook_secrets_file: Path | None = Field(
        default=None,
        description="File with more secrets like SLIPWAY_WEBHOOK_SECRETS, separated by blanks or lines; "
        "read again for every event.",
    )
    max_event_bytes: int = Field(default=256 << 10, gt=0, description="Largest incoming event, in bytes.")
    event_memory: Duration = Field(
        default=timedelta(days=30),
        description="Seconds for which a received event is remembered, so that a repetition starts no "
        "second export.",
    )

    callback_secrets: Secrets = Field(
        default=(),
        description="Secrets (whsec_…), each of which signs the events sent to a job's callback_url.",
    )
    callback_networks: Networks = Field(
        default=(),
        description="Private networks that callbacks may reach, such as 10.1.0.0/16. Default: only public "
        "addresses.",
    )
    callback_pauses: Durations = Field(
        default=PAUSES,
        description="Seconds to wait after each failed try of a delivery, separated by commas; when a try "
        "after the last pause fails too, the delivery is given up.",
    )
    callback_timeout: Duration = Field(
        default=timedelta(seconds=15), description="Time limit of one try to send an event, in seconds."
    )
    callback_senders: int = Field(
        default=4,
        ge=0,
        le=64,
        description="Number of threads that send events in this process; 0 leaves sending to other replicas.",
    )
    callback_poll: Duration = Field(
        default=timedelta(seconds=0.5),
        description="Seconds between two searches for deliveries that are due.",
    )
    delivery_memory: Duration = Field(
        default=timedelta(days=14), description="Seconds for which deliveries that have ended are kept."
    )

    @model_validator(mode="after")
    def _file_is_readable(self) -> Self:
        self.signing_secrets()
        return self

    def signing_secrets(self) -> tuple[str, ...]:
        """Return the secrets that may have signed an incoming event."""
        listed = self.webhook_secrets
        if self.webhook_secrets_file is not None:
            listed += _SecretFile(secrets=self.webhook_secrets_file.read_text()).secrets
        return tuple(secret.get_secret_value() for secret in listed)
