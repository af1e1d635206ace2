"""A lie at one size that no case has is published, and `slipway check` finds it with 200 drawn sizes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.artifact.read import read_manifest
from exporter.check.report import CheckReport
from exporter.spec import ExportSpec
from tests.installed_families import Install
from tests.planted.lies.catalogue import AT_ONE_SIZE
from tests.planted.lies.lie import Lie
from tests.planted.lies.model import source_of, write_sources
from tests.planted.lies.telling import Order, export_apart

pytestmark = [pytest.mark.slow, pytest.mark.planted]

FAMILY = "ScorerFamily"
LIMIT_S = 600.0
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("rows", "lie"), [pytest.param(*each, id=str(each[0])) for each in AT_ONE_SIZE.items()]
)
def test_a_lie_at_one_size_is_found_by_slipway_check(
    rows: int, lie: Lie, install: Install, tmp_path: Path
) -> None:
    name = install(f"liable_at_{rows}", source_of(FAMILY), offers=FAMILY)
    config = tmp_path / "model.json"
    config.write_text("{}")
    sources = write_sources(FAMILY, tmp_path)
    spec = ExportSpec.model_validate(
        {"family": name, "config_uri": str(config), "max_batch_size": 512, **sources}
    )
    outcome = export_apart(Order(spec=spec, workspace=tmp_path / "work", lie=lie.name)).outcome
    assert outcome.failure is None and outcome.towers[0].failure is None
    published = f"{spec.output_uri}/job"
    assert rows not in {case.sizes.get("batch") for case in read_manifest(published).towers[0].verified.cases}
    report = check_apart(published, name, tmp_path / "site")
    failed = [finding for tower in report.towers for finding in tower.failed]
    assert not report.passed and failed, report.towers[0].failure
    assert {finding.sizes["batch"] for finding in failed} == {rows}
    assert f"with {rows} rows score differs by" in " ".join(finding.detail for finding in failed)


def check_apart(published: str, family: str, site: Path) -> CheckReport:
    """Run `slipway check` with a family that is installed in the folder `site`."""
    variables = [f"PYTHONPATH={site}{os.pathsep}{ROOT}", f"SLIPWAY_FAMILIES={family}"]
    command = [sys.executable, "-m", "cli.main", "check", "--artifact", published, "--sizes", "200", "--json"]
    done = subprocess.run(
        ["env", *variables, *command], check=False, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.stdout, done.stderr[-2000:]
    return CheckReport.model_validate_json(done.stdout)
