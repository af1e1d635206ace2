"""Write docs/configuration.md from the settings classes: `python -m docs.configuration`."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from enum import Enum
from pathlib import Path

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from cli.settings import CheckSettings, ExportSettings
from exporter.storage.settings import AlibabaSettings, AzureSettings, GoogleSettings, OssSettings
from launcher.settings import LauncherSettings
from processes.settings import CompilerSettings
from service.client.settings import ClientSettings
from service.hooks.settings import HookSettings
from service.settings import ServiceSettings
from worker.settings import AttemptEnvironmentSettings, AttemptSettings, SigningSettings, WorkerSettings

DOCUMENT = Path(__file__).with_suffix(".md")

PROGRAMS: Mapping[str, type[BaseSettings]] = {
    "The API": ServiceSettings,
    "The API's webhooks": HookSettings,
    "Workers": WorkerSettings,
    "Attempts, as started by a worker or `slipway export`": AttemptEnvironmentSettings,
    "Signing of manifests by a worker or `slipway export`": SigningSettings,
    "Attempts of a worker": AttemptSettings,
    "The compiler in attempts": CompilerSettings,
    "`slipway export`": ExportSettings,
    "`slipway check`": CheckSettings,
    "`slipway submit`, `watch`, `logs`, `list`, `cancel`, `retry`, `diff`": ClientSettings,
    "`oss://`, in every program": OssSettings,
    "`oss://`, in the variables of all tools of Alibaba Cloud": AlibabaSettings,
    "`gs://`, beside the variables of Google's own tools": GoogleSettings,
    "`az://`, beside the variables of Azure's default chain": AzureSettings,
    "`slipway up` and `make up`, which pass the rest of the environment on": LauncherSettings,
}

_HEAD = """# Configuration

Written from the settings classes by `make configuration`; a test compares the two. Every program reads its
settings once, from the environment, and does not start if one of them is invalid. Durations are in seconds,
lists are separated by commas. Object stores are configured like their providers' own tools
([Stores](stores.md)); S3 by AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_DEFAULT_REGION and
AWS_ENDPOINT_URL, or by a role of the machine.
"""


def variables_of(settings: type[BaseSettings]) -> Iterator[tuple[str, FieldInfo]]:
    """Yield a program's settings by the variables they are read from, without those of nested settings."""
    prefix = settings.model_config.get("env_prefix", "")
    for name, field in settings.model_fields.items():
        if not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseSettings)):
            yield str(field.validation_alias or f"{prefix}{name}").upper(), field


def variables_of_all() -> frozenset[str]:
    return frozenset(name for settings in PROGRAMS.values() for name, _ in variables_of(settings))


def current_text() -> str:
    """Return the document's text as the settings define it."""
    return "\n".join([_HEAD, *(_section(title, settings) for title, settings in PROGRAMS.items())])


def _section(title: str, settings: type[BaseSettings]) -> str:
    head = [f"## {title}", "", "| variable | default | meaning |", "| --- | --- | --- |"]
    rows = [f"| {name} | {_default(field)} | {field.description} |" for name, field in variables_of(settings)]
    return "\n".join([*head, *rows, ""])


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=False)
    if field.default_factory is not None or value is None or value == ():
        return "none"
    return f"`{_text(value)}`"


def _text(value: object) -> str:
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.10g}"
    if isinstance(value, tuple):
        return ",".join(map(_text, value))
    return str(value.value if isinstance(value, Enum) else value)


if __name__ == "__main__":
    DOCUMENT.write_text(current_text())
