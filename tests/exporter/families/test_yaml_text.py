"""A declaration may be YAML, and a wrong one says where."""

import pytest

from exporter.errors import InvalidDeclaration
from exporter.families.yaml_text import declaration_from_yaml

SOUND = """
towers:
  - name: user
    dims: [{name: clicks, high_per_row: 8}]
    inputs:
      - {name: clicks, dtype: int64, shape: [clicks], table_rows: 5, lengths: counts}
      - {name: counts, dtype: int32, shape: [batch]}
"""


def test_a_declaration_is_read() -> None:
    [tower] = declaration_from_yaml(SOUND)
    assert (tower.name, tower.inputs[0].table_rows, tower.dim("clicks").high_in(4)) == ("user", 5, 32)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (("towers:", "towers: ["), "is not YAML"),
        (("table_rows: 5", "rows: 5"), "towers.0.inputs.0.rows: Extra inputs are not permitted"),
        (("int32", "string"), "towers.0.inputs.1.dtype: Input should be"),
        (("name: user", "name: users"), "towers.0.name: Input should be"),
        (("towers:", "tower:"), "towers: Field required"),
    ],
)
def test_a_wrong_one_says_where(edit: tuple[str, str], message: str) -> None:
    with pytest.raises(InvalidDeclaration, match=message):
        declaration_from_yaml(SOUND.replace(*edit))
