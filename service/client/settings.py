"""Settings of the command line's client, read from the environment here and nowhere else in it."""

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class ClientSettings(BaseSettings):
    """Settings of the commands that call a service, read from SLIPWAY_<NAME>."""

    model_config = SettingsConfigDict(env_prefix="SLIPWAY_", frozen=True)

    api_key: SecretStr | None = Field(
        default=None, description="API key to send, if the service requires one."
    )
    url: str = Field(
        default="http://127.0.0.1:8080",
        description="URL of the service that submit, watch, logs, list, cancel, retry and diff call.",
    )
