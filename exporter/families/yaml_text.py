"""Reader of tower declarations in YAML."""

import yaml
from pydantic import Field, ValidationError, model_validator

from exporter.declaration import TowerDeclaration, invalid_declaration, require_distinct
from exporter.errors import InvalidDeclaration
from exporter.spec import Frozen


class _Document(Frozen):
    """The whole document of a declaration."""

    towers: tuple[TowerDeclaration, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _towers_are_distinct(self) -> "_Document":
        require_distinct("tower", (tower.name for tower in self.towers))
        return self


def declaration_from_yaml(text: str) -> tuple[TowerDeclaration, ...]:
    """Read the towers of a YAML document: `towers:`, a list of entries with the fields of `TowerDeclaration`.

    Raises:
        InvalidDeclaration: the text is not YAML, or a declaration is invalid; naming the place.
    """
    try:
        return _Document.model_validate(yaml.safe_load(text)).towers
    except yaml.YAMLError as error:
        raise InvalidDeclaration(f"the declaration is not YAML: {error}") from error
    except ValidationError as error:
        raise invalid_declaration(error) from error
