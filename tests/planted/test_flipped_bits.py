"""A thousand flipped bits, in packages of both modes, cold and warm, and in shards: none is published."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from exporter.artifact.read import file_ref
from exporter.code_cache.cache import open_code_cache
from exporter.data.rows import Rows
from exporter.distributed.ranks import Ranks
from exporter.manifest import ReadBack
from exporter.packages import package_tower as packaging
from exporter.packages.parts import plan_packages
from exporter.packages.request import PackagingRequest
from exporter.readback.errors import ArchiveDiffers, WeightsDiffer
from exporter.readback.packages import WrittenPackage, read_back
from exporter.readback.tower_weights import TowerWeights
from exporter.shards.rank import write_tables
from exporter.shards.read_back import read_back_rows
from exporter.spec import ExportSpec
from exporter.stages import StageClock, no_progress
from exporter.verify.cases import Cases, make_cases
from tests.exporter.readback.packages import flipped, open_recorded, packaged_spec
from tests.exporter.shards.conftest import order_of, spec_of
from tests.exporter.stage_events import ignore_stages

pytestmark = [pytest.mark.planted, pytest.mark.slow]

FLIPS = 100  # of each of ten kinds of files
PACKAGED: dict[str, tuple[str, dict[str, object]]] = {
    "unified": ("hstu_match", {}),
    "two_stage": ("hstu_match", {"mode": "two_stage"}),
    "int8": ("hstu_match", {"mode": "two_stage", "tables": {"dtype": "int8"}}),
}
SHARDED: dict[str, tuple[str, int, str]] = {
    "fp32": ("dlrm_hstu_sharded", 0, "fp32"),
    "int8": ("dlrm_hstu_sharded", 0, "int8"),
    "int4": ("hstu_match", 1, "int4"),
    "maps of ids": ("dcn_v2", 0, "fp16"),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Checked:
    """The packages of one tower as an export compared them."""

    packages: tuple[WrittenPackage, ...]
    origin: TowerWeights | None

    def is_published(self) -> bool:
        """Return whether nothing objects: neither the comparison nor the digest, taken before the upload."""
        try:
            read_back(self.packages, self.origin)
        except (WeightsDiffer, ArchiveDiffers):
            return False
        return all(file_ref("", each.file.path).sha256 == each.file.sha256 for each in self.packages)


def few_cases(rows: Rows, request: PackagingRequest) -> Cases:
    """Two cases of the gate: what is tested here is the comparison before it."""
    cases = make_cases(rows, request.tower.plan)
    return replace(cases, must_agree=cases.must_agree[:2], must_be_refused=())


def package_twice(spec: ExportSpec, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Checked]:
    """Package a tower cold and then warm; yield what was compared each time."""
    compared: list[Checked] = []

    def record(packages: list[WrittenPackage], origin: TowerWeights | None, *others: object) -> ReadBack:
        compared.append(Checked(packages=tuple(packages), origin=origin))
        return read_back(packages, origin)

    monkeypatch.setattr(packaging, "read_back", record)
    opened = open_recorded(spec, folder, 1)
    plan = plan_packages(opened.tower, spec)
    for attempt, code in (("first", "cold"), ("second", "warm")):
        request = PackagingRequest(
            tower=opened.tower,
            parts=plan.parts,
            inputs=opened.inputs,
            make_cases=lambda: Cases(must_agree=(), must_be_refused=()),
            device=opened.device,
            folder=folder / attempt,
            weights=TowerWeights(filled=opened.filled, tables=opened.lowered.tables),
            fp32=opened.lowered.fp32,
        )
        request = replace(request, make_cases=partial(few_cases, opened.rows, request))
        (folder / attempt).mkdir()
        made = packaging.package_tower(
            request, open_code_cache(str(folder / "code")), StageClock("item", ignore_stages)
        )
        assert made.origin.code == code
        yield compared.pop()


@pytest.mark.parametrize("kind", PACKAGED)
def test_no_flipped_bit_of_a_package_is_published(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, changes = PACKAGED[kind]
    published = tried = 0
    for checked in package_twice(packaged_spec(model, tmp_path, **changes), tmp_path, monkeypatch):
        assert checked.is_published()
        draw = random.Random(kind)
        for _ in range(FLIPS):
            package = draw.choice(checked.packages)
            with flipped(package.file.path, draw.randrange(package.file.size), draw.randrange(8)):
                published += checked.is_published()
                tried += 1
        assert checked.is_published()
    assert (tried, published) == (2 * FLIPS, 0)


@pytest.mark.parametrize("kind", SHARDED)
def test_no_flipped_bit_of_a_ranks_file_is_published(kind: str, tmp_path: Path) -> None:
    model, tower, dtype = SHARDED[kind]
    spec = spec_of(model, tmp_path, tables={"layout": "sharded", "dtype": dtype})
    order, local = order_of(spec, tmp_path, Ranks(rank=1, size=2), tower=tower), tmp_path / "rows"
    made = write_tables(order, local, no_progress)
    assert made.file is not None
    opened = open_recorded(spec, tmp_path, tower)
    weights, draw, published = TowerWeights(filled=opened.filled), random.Random(kind), 0
    for _ in range(FLIPS):
        with flipped(local, draw.randrange(made.file.size), draw.randrange(8)):
            try:
                read_back_rows(made.shards, local, weights, title="tower")
            except WeightsDiffer:
                continue
            published += file_ref("", local).sha256 == made.file.sha256
    assert published == 0
