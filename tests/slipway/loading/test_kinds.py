"""The loader loads compiled packages, and says who loads other ones."""

import pytest

from exporter.manifest import FileRef, SparseEntry
from exporter.options.layout import PackageKind
from exporter.spec import TowerName
from slipway.loading.errors import ArtifactInvalid
from slipway.loading.layout.manifest import parse_manifest
from tests.jobs.factories import make_entry, make_manifest


def _manifest(kind: PackageKind) -> bytes:
    package = FileRef(path="user/sparse", size=3, sha256="0" * 64)
    sparse = SparseEntry(package=package, kind=kind, tensors=(), dims=())
    entry = make_entry(TowerName.USER).model_copy(update={"sparse": sparse})
    return make_manifest("job", entry).model_dump_json().encode()


def test_two_compiled_packages_are_read() -> None:
    [tower] = parse_manifest(_manifest(PackageKind.AOTI), "manifest.json").towers
    assert tower.packages[0].path == "user/sparse"


def test_lookups_in_torchscript_are_left_to_torcheasyrecs_loader() -> None:
    with pytest.raises(ArtifactInvalid, match=r"sparse.*torchscript") as raised:
        parse_manifest(_manifest(PackageKind.TORCHSCRIPT), "manifest.json")
    assert "TorchEasyRec" in raised.value.hint
