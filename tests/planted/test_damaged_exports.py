"""Whole exports, cold and warm, whose packages are damaged once they are written: nothing is published."""

import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.attempt.attempt import Attempt
from exporter.checkpoint.stored_zip import data_start
from exporter.distributed.ranks import Ranks
from exporter.outcome import ExportOutcome
from exporter.packages import package_tower as packaging
from exporter.packages.parts import CompiledPart, assemble_parts
from exporter.pipeline.export import export
from exporter.spec import ExportSpec
from tests.exporter.readback.packages import packaged_spec
from tests.exporter.stage_events import ignore_stages

pytestmark = [pytest.mark.planted, pytest.mark.slow]

Damage = Callable[[Path], None]


def export_damaged(spec: ExportSpec, folder: Path, damage: Damage | None) -> ExportOutcome:
    """Export as a worker does; damage each package once it is written."""

    def assemble(*arguments: object) -> tuple[CompiledPart, ...]:
        parts = assemble_parts(*arguments)  # type: ignore[arg-type]  # passed on as they came
        for part in parts:
            if damage is not None:
                damage(part.package.path)
        return parts

    folder.mkdir()
    attempt = Attempt(job_id=folder.name, spec=spec, workspace=folder, code_cache=str(folder.parent / "code"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packaging, "assemble_parts", assemble)
        outcome = export(attempt, Ranks(rank=0, size=1), ignore_stages)
    assert outcome is not None
    return outcome


@pytest.mark.parametrize("mode", ["unified", "two_stage"])
def test_exports_of_damaged_packages_publish_nothing(mode: str, tmp_path: Path) -> None:
    spec = packaged_spec("hstu_match", tmp_path, mode=mode, towers=["item"])
    draw = random.Random(mode)

    def flip(path: Path) -> None:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            entry = draw.choice([each for each in archive.infolist() if each.file_size])
            at = data_start(entry, file) + draw.randrange(entry.file_size)
        data = bytearray(path.read_bytes())
        data[at] ^= 1 << draw.randrange(8)
        path.write_bytes(data)

    for name, damage in (("cold", flip), ("sound", None), ("warm", flip), ("again", flip)):
        outcome = export_damaged(spec, tmp_path / name, damage)
        manifests = list((tmp_path / "out").rglob("manifest.json"))
        if damage is None:
            assert outcome.failure is None and len(manifests) == 1
        else:
            [tower] = outcome.towers
            assert tower.failure is not None
            assert tower.failure.code in {"weights_differ", "archive_differs"}
            assert len(manifests) == (name in {"warm", "again"})
