"""Any weights of the same shapes make a package of one and the same code, and nothing else does."""

import hashlib
import zipfile
from pathlib import Path

import pytest
import torch
from torch import Tensor

from exporter.aoti.assemble import BLOB_SUFFIX, PIECE, assemble_package
from exporter.aoti.constants import Constant
from exporter.aoti.load import load_package
from exporter.errors import InvalidArtifact, WeightsDoNotFit
from tests.exporter.aoti.conftest import Compiled, scores

CPU = torch.device("cpu")


@pytest.mark.parametrize("copied_bytes", [0, 1 << 20], ids=["in place", "as a server loads it"])
def test_code_that_saw_only_zeros_computes_with_any_weights(
    compiled: Compiled, ids: dict[str, Tensor], tmp_path: Path, copied_bytes: int
) -> None:
    for seed in (1, 2):
        module = scores(seed)
        package = compiled.code.assemble(module.state_dict(), tmp_path / f"{seed}.pt2").path
        found = load_package(package, CPU, copied_bytes=copied_bytes)(ids)
        torch.testing.assert_close(found, module(ids))


def test_the_digest_is_that_of_the_file(compiled: Compiled, tmp_path: Path) -> None:
    written = compiled.code.assemble(scores(1).state_dict(), tmp_path / "aoti_model.pt2")
    data = written.path.read_bytes()
    assert (written.size, written.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert zipfile.ZipFile(written.path).testzip() is None


def test_the_same_weights_make_the_same_file(compiled: Compiled, tmp_path: Path) -> None:
    first, second = (
        compiled.code.assemble(scores(1).state_dict(), tmp_path / folder / "aoti_model.pt2")
        for folder in ("a", "b")
    )
    assert first.sha256 == second.sha256


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"layer.weight": torch.zeros(3, 7)}, r"layer.weight is float32 \[3, 7\], not float32 \[3, 6\]"),
        ({"layer.bias": torch.zeros(3).double()}, "layer.bias is float64"),
        ({"layer.weight": torch.zeros(6, 3).t()}, r"layer.weight has strides \(1, 3\), not \(6, 1\)"),
    ],
    ids=["shape", "dtype", "strides"],
)
def test_other_shapes_are_refused(
    compiled: Compiled, tmp_path: Path, changed: dict[str, Tensor], said: str
) -> None:
    with pytest.raises(WeightsDoNotFit, match=said):
        compiled.code.assemble({**scores(1).state_dict(), **changed}, tmp_path / "aoti_model.pt2")


def test_a_missing_weight_is_named(compiled: Compiled, tmp_path: Path) -> None:
    weights = scores(1).state_dict()
    del weights["mask"]
    with pytest.raises(WeightsDoNotFit, match="there is no mask"):
        compiled.code.assemble(weights, tmp_path / "aoti_model.pt2")


def test_weights_of_zeros_take_no_disk(tmp_path: Path) -> None:
    table = Constant(fqn="t", dtype=torch.uint8, shape=(3 * PIECE,), stride=(1,), offset=0, size=3 * PIECE)
    written = assemble_package(
        {"wrapper_weights.blob": b""}, [table], {"t": torch.zeros(3 * PIECE).byte()}, tmp_path / "t.pt2"
    )
    found = written.path.stat()
    assert found.st_size == written.size > 3 * PIECE
    assert found.st_blocks * 512 < PIECE
    assert hashlib.sha256(written.path.read_bytes()).hexdigest() == written.sha256


def test_a_package_whose_blob_does_not_match_its_table_is_refused(compiled: Compiled, tmp_path: Path) -> None:
    other = assemble_package(
        compiled.code.files, compiled.code.table[:1], scores(1).state_dict(), tmp_path / "x.pt2"
    )
    with zipfile.ZipFile(other.path) as archive:
        assert any(name.endswith(BLOB_SUFFIX) for name in archive.namelist())
    with pytest.raises(InvalidArtifact, match="do not match the table in its code"):
        load_package(other.path, CPU, copied_bytes=0)
