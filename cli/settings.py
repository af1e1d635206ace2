"""What the command line may load where it exports; the only place of it that reads the environment."""

import os

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from jobs.families import FamilyNames
from processes.settings import CodeCacheSetting


class ExportSettings(BaseSettings):
    """Read from SLIPWAY_<NAME>."""

    model_config = SettingsConfigDict(env_prefix="SLIPWAY_", frozen=True)

    families: FamilyNames = Field(default=(), description="Of one's own, that may be loaded. By commas.")


class CheckSettings(CodeCacheSetting, ExportSettings):
    """Read from SLIPWAY_<NAME>."""


def leave_the_gpu_to_forks() -> None:
    """Let libraries find out whether there is a GPU without starting its driver, as in workers' attempts.

    Each tower is exported and checked in a fork, which cannot use a GPU whose driver this process started.
    """
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
