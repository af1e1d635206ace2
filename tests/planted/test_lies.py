"""No lie is published: each is refused with its code, by the name of what is wrong."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.installed_families import Install
from tests.planted.lies.catalogue import LIES
from tests.planted.lies.lie import Lie
from tests.planted.lies.model import source_of
from tests.planted.lies.report import PROPERTY, row
from tests.planted.lies.telling import tell

# Told in the ordinary suite as well: it costs no search for a smallest case.
ORDINARY = "manifest_input_order"


PARAMS = [
    pytest.param(lie, id=lie.name, marks=() if lie.name == ORDINARY else pytest.mark.planted) for lie in LIES
]


@pytest.mark.slow
@pytest.mark.parametrize("lie", PARAMS)
def test_a_lie_is_not_published(
    lie: Lie,
    install: Install,
    tmp_path: Path,
    kept_code: Path,
    record_property: Callable[[str, object], None],
) -> None:
    installed = install("liable_family", source_of(lie.family), offers=lie.family)
    told = tell(lie, installed, tmp_path, kept_code)
    record_property(PROPERTY, row(told))
    if lie.recovers:
        assert told.published and told.failure is None, told.failure
    else:
        assert not told.published and told.failure is not None, f"published although {lie.does}"
        assert told.failure.code == lie.code, told.failure
    said = told.failure.message if told.failure else told.note
    assert not told.missing, f"{said!r} does not name {told.missing}"
    if lie.smallest and told.failure:
        assert told.smallest == (lie.smallest,), told.failure.report
