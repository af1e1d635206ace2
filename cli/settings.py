"""Settings of the command line, read from the environment here and nowhere else in `cli`."""

import os

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from jobs.families import FamilyNames
from processes.settings import CodeCacheSetting


class ExportSettings(BaseSettings):
    """Settings of commands that open models, read from SLIPWAY_<NAME>."""

    model_config = SettingsConfigDict(env_prefix="SLIPWAY_", frozen=True)

    families: FamilyNames = Field(
        default=(), description="Custom model families whose code may be loaded, separated by commas."
    )


class CheckSettings(CodeCacheSetting, ExportSettings):
    """Settings of `slipway check`, read from SLIPWAY_<NAME>."""


def leave_the_gpu_to_forks() -> None:
    """Let libraries find out whether there is a GPU without starting its driver, as in workers' attempts.

    Each tower is exported and checked in a fork, which cannot use a GPU whose driver this process started.
    """
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
