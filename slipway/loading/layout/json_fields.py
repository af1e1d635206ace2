"""Typed access to the fields of a JSON file, whose errors name the file and the field."""

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from slipway.loading.errors import ArtifactDamaged, ArtifactInvalid


def read_file(path: Path) -> bytes:
    """Read a whole file; raise ArtifactDamaged if that is impossible."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ArtifactDamaged(f"{path} cannot be read: {error.strerror}", where=str(path)) from error


class Fields:
    """One JSON object. Methods return a field of their type; they raise ArtifactInvalid if it is another."""

    def __init__(self, value: object, where: str) -> None:
        """Take a parsed object that stands at `where`, as "manifest.json: towers.0"."""
        if not isinstance(value, dict):
            raise ArtifactInvalid(f"{where} is no JSON object", where=where)
        self._value: Mapping[str, object] = value
        self.where = where

    @classmethod
    def parse(cls, data: bytes, where: str) -> "Fields":
        """Parse a file's bytes."""
        try:
            return cls(json.loads(data), where)
        except (ValueError, RecursionError) as error:
            raise ArtifactInvalid(f"{where} is no JSON: {error}", where=where) from error

    def has(self, name: str) -> bool:
        """Return whether the field is there and is not null."""
        return self._value.get(name) is not None

    def text(self, name: str) -> str:
        """Return a string."""
        value = self._value.get(name)
        if not isinstance(value, str):
            raise self._wrong(name, "a string")
        return value

    def number(self, name: str) -> int:
        """Return an integer that is not negative."""
        return self._natural(name, self._value.get(name))

    def path(self, name: str) -> str:
        """Return a path that cannot lead out of the artifact's folder."""
        text = self.text(name)
        parts = text.split("/")
        if "\0" in text or "\\" in text or any(part in ("", ".", "..") for part in parts):
            raise self._wrong(name, "a path below the artifact's folder")
        return str(PurePosixPath(text))

    def items(self, name: str) -> list[object]:
        """Return a list."""
        value = self._value.get(name)
        if not isinstance(value, list):
            raise self._wrong(name, "a list")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of strings; an absent one is empty."""
        items = self.items(name) if self.has(name) else []
        if not all(isinstance(item, str) for item in items):
            raise self._wrong(name, "a list of strings")
        return tuple(str(item) for item in items)

    def numbers(self, name: str) -> tuple[int, ...]:
        """Return a list of integers that are not negative."""
        return tuple(self._natural(name, item) for item in self.items(name))

    def decimals(self, name: str) -> Mapping[str, float]:
        """Return an object of numbers."""
        found = self._value.get(name)
        if not isinstance(found, dict) or not all(isinstance(each, int | float) for each in found.values()):
            raise self._wrong(name, "an object of numbers")
        return {str(key): float(each) for key, each in found.items()}

    def names(self) -> tuple[str, ...]:
        """Return the names of all fields."""
        return tuple(self._value)

    def child(self, name: str) -> "Fields":
        """Return an object."""
        return Fields(self._value.get(name), f"{self.where}.{name}")

    def children(self, name: str) -> tuple["Fields", ...]:
        """Return a list of objects."""
        return tuple(
            Fields(item, f"{self.where}.{name}.{number}") for number, item in enumerate(self.items(name))
        )

    def _natural(self, name: str, value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self._wrong(name, "a number")
        return value

    def _wrong(self, name: str, expected: str) -> ArtifactInvalid:
        where = f"{self.where}.{name}"
        return ArtifactInvalid(f"{where} is not {expected}", where=where)
