"""Whole exports, cold and warm, whose packages are damaged once they are written: nothing is published."""

from pathlib import Path

import pytest

from tests.exporter.readback.packages import packaged_spec
from tests.planted.lies.about_packages import FLIPS
from tests.planted.lies.telling import Order, export_apart

pytestmark = [pytest.mark.planted, pytest.mark.slow]


@pytest.mark.parametrize("mode", ["unified", "two_stage"])
def test_exports_of_damaged_packages_publish_nothing(mode: str, tmp_path: Path) -> None:
    spec = packaged_spec("hstu_match", tmp_path, mode=mode, towers=["item"])
    cold, *warm = FLIPS
    for name, lie in (("cold", cold), ("sound", None), *((each.name, each) for each in warm)):
        output = tmp_path / "out" / name
        order = Order(
            spec=spec.model_copy(update={"output_uri": str(output)}),
            workspace=tmp_path / name,
            code_cache=str(tmp_path / "code"),
            lie=lie.name if lie else None,
        )
        outcome = export_apart(order).outcome
        assert outcome.failure is None
        manifests = list(output.rglob("manifest.json"))
        [tower] = outcome.towers
        if lie is None:
            assert tower.failure is None and len(manifests) == 1
        else:
            assert tower.failure is not None
            assert tower.failure.code in {"weights_differ", "archive_differs"}
            assert manifests == []
