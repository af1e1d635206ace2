"""How the readers of config messages refuse: one sentence, at a place in the config."""

from typing import NoReturn

from exporter.errors import InvalidPipelineConfig, UnsupportedConfig


def invalid(where: str, problem: str, *, hint: str) -> NoReturn:
    """The config contradicts itself."""
    raise InvalidPipelineConfig(f"{where}: {problem}", hint=hint, where=where)


def unsupported(where: str, problem: str, *, hint: str) -> NoReturn:
    """The config asks for something Slipway does not build."""
    raise UnsupportedConfig(f"{where}: {problem}", hint=hint, where=where)
