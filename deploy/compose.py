"""Read compose.yaml without a container engine: the commands and variables of its services, for this machine.

Service names become loopback ports, and container folders become folders below one. Nothing else is changed.
Left out is what needs an engine: images, networks, limits, owners of volumes, health over time.
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
    secrets: list[str] = []


class _ServiceText(BaseModel):
    """The fields of a service that are used here; the rest concerns an engine."""

    entrypoint: list[str] = []
    command: list[str] = []
    environment: Mapping[str, str] = {}
    build: _Build | None = None


@dataclass(frozen=True, kw_only=True)
class Service:
    """The command, variables and health check of a container."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    health: str = ""  # the health check of its image


def services_in(text: str, given: Mapping[str, str]) -> Mapping[str, Service]:
    """Return the services of a compose file, with these variables as its `.env`."""
    document: dict[str, JsonValue] = yaml.safe_load(interpolate(text, given))
    listed = document["services"]
    assert isinstance(listed, dict)
    return {name: _service(_ServiceText.model_validate(each)) for name, each in listed.items()}


def interpolate(text: str, given: Mapping[str, str]) -> str:
    """Replace variables as compose does; raise KeyError for a required variable that is not set."""

    def value(match: re.Match[str]) -> str:
        name, kind, word = match[1], match[2], match[3]
        if name is None:
            return "$"
        found = given.get(name, "")
        if not found and kind == "?":
            raise KeyError(f"{name}: {word}")
        return found or (word if kind == "-" else "")

    return _VARIABLE.sub(value, text)


def _service(written: _ServiceText) -> Service:
    if written.build is None:
        command = (*written.entrypoint, *written.command)
        return Service(command=command, environment=written.environment)
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
    del environment["PATH"]  # names folders of the image
    first = yaml.safe_load(said.get("ENTRYPOINT", "[]"))
    return Service(
        command=(*first, *(written.command or yaml.safe_load(said["CMD"]))),
        environment={**environment, **written.environment},
        health=said["HEALTHCHECK"].partition(" CMD ")[2],
    )


@dataclass(frozen=True, kw_only=True)
class Places:
    """Folders and addresses on this machine that replace those of containers."""

    folder: Path  # holds the containers' folders
    addresses: Mapping[str, str]  # host:port of compose to host:port here

    def translate(self, text: str) -> str:
        """Translate a word of a command or a variable's value for this machine."""
        text = _PLACE.sub(lambda match: f"{self.folder}/{match[1]}", text)
        for there, here in self.addresses.items():
            text = text.replace(there, here)
        return text

    def command(self, service: Service) -> list[str]:
        return [self.translate(word) for word in service.command]

    def environment(self, service: Service) -> dict[str, str]:
        return {name: self.translate(value) for name, value in service.environment.items()}
