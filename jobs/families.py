"""The setting that lists an operator's custom model families, which several programs read."""

from typing import Annotated

from pydantic import BeforeValidator
from pydantic_settings import NoDecode

from exporter.spec import FamilyName


def split_list(value: object) -> object:
    """Split a list that is separated by commas or blanks."""
    return tuple(value.replace(",", " ").split()) if isinstance(value, str) else value


FamilyNames = Annotated[tuple[FamilyName, ...], NoDecode, BeforeValidator(split_list)]
