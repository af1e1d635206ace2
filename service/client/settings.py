"""Which service the client calls, and with which key; the one place of it to read the environment."""

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class ClientSettings(BaseSettings):
    """Read from SLIPWAY_<NAME>."""

    model_config = SettingsConfigDict(env_prefix="SLIPWAY_", frozen=True)

    api_key: SecretStr | None = Field(default=None, description="Where the service asks for one.")
    url: str = Field(default="http://127.0.0.1:8080", description="The API that submit, watch and list call.")
