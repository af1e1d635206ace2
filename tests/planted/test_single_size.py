"""A lie at one size that no case has is published, and `slipway check` finds it with 200 drawn sizes."""

from pathlib import Path

import pytest

from exporter.check.artifact import open_artifact
from exporter.check.run import check
from exporter.check.task import CheckTask
from exporter.spec import ExportSpec
from tests.installed_families import Install
from tests.planted.lies.catalogue import AT_ONE_SIZE
from tests.planted.lies.lie import Lie
from tests.planted.lies.model import source_of, write_sources
from tests.planted.lies.telling import Order, export_apart

pytestmark = [pytest.mark.slow, pytest.mark.planted]

FAMILY = "ScorerFamily"


@pytest.mark.parametrize(
    ("rows", "lie"), [pytest.param(*each, id=str(each[0])) for each in AT_ONE_SIZE.items()]
)
def test_a_lie_at_one_size_is_found_by_slipway_check(
    rows: int, lie: Lie, install: Install, tmp_path: Path
) -> None:
    name = install(f"liable_at_{rows}", source_of(FAMILY), offers=FAMILY)
    fields = {"family": name, "config": "{}", "max_batch_size": 512, **write_sources(FAMILY, tmp_path)}
    spec = ExportSpec.model_validate(fields)
    outcome = export_apart(Order(spec=spec, workspace=tmp_path / "work", lie=lie.name)).outcome
    assert outcome.failure is None and outcome.towers[0].failure is None
    published = open_artifact(f"{spec.output_uri}/job")
    assert rows not in {case.sizes.get("batch") for case in published.manifest.towers[0].verified.cases}
    task = CheckTask(spec=spec, published=published, families=(name,), sizes=200)
    report = check(task, lambda tower, finding: None)
    failed = [finding for tower in report.towers for finding in tower.failed]
    assert not report.passed and failed
    assert {finding.sizes["batch"] for finding in failed} == {rows}
    assert f"with {rows} rows score differs by" in " ".join(finding.detail for finding in failed)
