"""compose.yaml without an engine: what its services run and are told, on this machine's loopback.

Names of services become ports, folders of containers become folders below one, and nothing else is changed.
What only an engine shows is left out: images, networks, limits, owners of volumes, health over time.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, JsonValue

from deploy.dockerfile import stages_of

ROOT = Path(__file__).parents[1]

_VARIABLE = re.compile(r"\$\$|\$\{(\w+)(?::([-?])([^}]*))?\}")
_PLACE = re.compile(r"(?<![\w./$])/(data|run|scratch|var/cache|tmp)(?=[/\s'\"\\]|$)")


class _Build(BaseModel):
    model_config = ConfigDict(extra="forbid")

    context: str
    dockerfile: str
    target: str = "final"


class _Written(BaseModel):
    """What is read of a service; the rest is an engine's."""

    command: list[str] = []
    environment: Mapping[str, str] = {}
    build: _Build | None = None


@dataclass(frozen=True, kw_only=True)
class Service:
    """What a container would run, and be told."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    health: str = ""  # the health check of its image


def services_in(text: str, given: Mapping[str, str]) -> Mapping[str, Service]:
    """The services of a compose file, with these variables in `.env`."""
    document: dict[str, JsonValue] = yaml.safe_load(interpolated(text, given))
    listed = document["services"]
    assert isinstance(listed, dict)
    return {name: _service(_Written.model_validate(each)) for name, each in listed.items()}


def interpolated(text: str, given: Mapping[str, str]) -> str:
    """The text as compose reads it; a variable that must be set and is not is a KeyError."""

    def value(match: re.Match[str]) -> str:
        name, kind, word = match[1], match[2], match[3]
        if name is None:
            return "$"
        found = given.get(name, "")
        if not found and kind == "?":
            raise KeyError(f"{name}: {word}")
        return found or (word if kind == "-" else "")

    return _VARIABLE.sub(value, text)


def _service(written: _Written) -> Service:
    if written.build is None:
        return Service(command=tuple(written.command), environment=written.environment)
    stages = stages_of((ROOT / written.build.dockerfile).read_text())
    environment: dict[str, str] = {}
    said: dict[str, str] = {}
    names, name = list[str](), written.build.target
    while name in stages:
        names.insert(0, name)
        name = stages[name].base
    for instruction in (each for name in names for each in stages[name].instructions):
        if instruction.word == "ENV":
            environment |= dict(pair.split("=", 1) for pair in shlex.split(instruction.rest))
        said[instruction.word] = instruction.rest
    del environment["PATH"]  # of the image's own folders
    first = yaml.safe_load(said.get("ENTRYPOINT", "[]"))
    return Service(
        command=(*first, *(written.command or yaml.safe_load(said["CMD"]))),
        environment={**environment, **written.environment},
        health=said["HEALTHCHECK"].partition(" CMD ")[2],
    )


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where things are on this machine that containers know by other names."""

    folder: Path  # for what lies in containers
    addresses: Mapping[str, str]  # host:port of compose to host:port here

    def here(self, text: str) -> str:
        """A command's word or a variable's value, as it reads on this machine."""
        text = _PLACE.sub(lambda match: f"{self.folder}/{match[1]}", text)
        for there, here in self.addresses.items():
            text = text.replace(there, here)
        return text

    def command(self, service: Service) -> list[str]:
        return [self.here(word) for word in service.command]

    def environment(self, service: Service) -> dict[str, str]:
        return {name: self.here(value) for name, value in service.environment.items()}
