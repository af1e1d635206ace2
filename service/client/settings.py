"""Which service the client calls; the only place of the client that reads the environment."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class ClientSettings(BaseSettings):
    """Read from SLIPWAY_<NAME>."""

    model_config = SettingsConfigDict(env_prefix="SLIPWAY_", frozen=True)

    url: str = Field(default="http://127.0.0.1:8080", description="The API that submit, watch and list call.")
