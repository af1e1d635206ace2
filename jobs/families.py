"""The model families of one's own that an operator lists, as settings of several programs read them."""

from typing import Annotated

from pydantic import BeforeValidator
from pydantic_settings import NoDecode

from exporter.spec import FamilyName


def split_list(value: object) -> object:
    """A list as people write it in an environment variable: separated by commas or blanks."""
    return tuple(value.replace(",", " ").split()) if isinstance(value, str) else value


FamilyNames = Annotated[tuple[FamilyName, ...], NoDecode, BeforeValidator(split_list)]
