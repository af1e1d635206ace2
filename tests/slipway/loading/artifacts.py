"""Small artifacts as an export publishes them: compiled packages with manifests, in a folder."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import fbgemm_gpu  # noqa: F401  registers the operator that the towers call
import torch
from torch import Tensor, nn
from torch.export import Dim, export

from exporter.aoti.architecture import architecture
from exporter.aoti.code import CompiledCode
from exporter.aoti.compile import compile_code, versions
from exporter.aoti.torch_private import sizes_zero_and_one_stay_dynamic
from exporter.artifact.read import file_ref
from exporter.manifest import DimEntry, Manifest, SparseEntry, TensorEntry, TowerEntry
from exporter.models.contract import Demands
from exporter.spec import Device, TowerName
from tests.jobs.factories import make_entry, make_manifest

ROWS, WIDTH = 2000, 16
INPUTS = {"id.lengths": torch.tensor([2, 0, 1, 2]), "id.values": torch.tensor([1, 2, 3, 4, 1999])}
_OUTSIDE = "id.values has an id outside the 2,000 rows of table id_emb"
_POOLED = TensorEntry(name="pooled", dtype="float32", shape=("batch", WIDTH))


class Pooling(nn.Module):
    """Sums rows of a table by lengths, and refuses ids and lengths that contradict each other."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(ROWS, WIDTH)

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        demands = Demands()
        ids = demands.require_ids(inputs["id.values"], ROWS, _OUTSIDE)
        lengths = demands.require_sum(inputs["id.lengths"], ids.shape[0], "id.lengths")
        demands.raise_if_unmet()
        ends = torch.ops.fbgemm.asynchronous_complete_cumsum(lengths)
        rows = self.table(ids).cumsum(0)
        padded = torch.cat([torch.zeros(1, WIDTH), rows])
        return {"pooled": padded[ends[1:]] - padded[ends[:-1]]}

    demands = (_OUTSIDE, "id.lengths has a negative length, or does not add up to the number of values")


class Dense(nn.Module):
    def __init__(self, hidden: int = 8) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, hidden), nn.ReLU(), nn.Linear(hidden, 3))

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"emb": self.layers(inputs["pooled"])}


class Whole(nn.Module):
    def __init__(self, hidden: int = 8) -> None:
        super().__init__()
        self.pooling, self.dense = Pooling(), Dense(hidden)

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        pooled: dict[str, Tensor] = self.pooling(inputs)
        outputs: dict[str, Tensor] = self.dense(pooled)
        return outputs


def compiled(module: nn.Module, inputs: dict[str, Tensor]) -> CompiledCode:
    """Compile for any number of rows up to 64."""
    batch, values = Dim("batch", min=0, max=64), Dim("values", min=0, max=640)
    dims = ({name: {0: values if name == "id.values" else batch} for name in inputs},)
    with torch.no_grad(), sizes_zero_and_one_stay_dynamic():
        return compile_code(export(module.eval(), (inputs,), dynamic_shapes=dims, strict=False))


def publish(folder: Path, packages: Mapping[str, tuple[CompiledCode, nn.Module]], job: str = "job1") -> Path:
    """Write an artifact whose tower is `aoti_model.pt2`, behind `sparse_model.pt2` if there is one."""
    refs = {}
    for name, (code, module) in packages.items():
        path = f"user/aoti/{name}"
        code.assemble(module.state_dict(), folder / path)
        refs[name] = file_ref(path, folder / path)
    config = folder / "user" / "pipeline.config"
    config.write_text("# of no model\n")
    batch = DimEntry(name="batch", low=0, high=64, reason="rows per call")
    values = DimEntry(name="values_id", low=0, high=640, reason="values of all rows")
    sparse = None
    if "sparse_model.pt2" in refs:
        sparse = SparseEntry(package=refs["sparse_model.pt2"], tensors=(_POOLED,), dims=(batch,))
    entry: TowerEntry = make_entry(TowerName.USER).model_copy(
        update={
            "package": refs["aoti_model.pt2"],
            "sparse": sparse,
            "files": (file_ref("user/pipeline.config", config),),
            "inputs": (
                TensorEntry(name="id.lengths", dtype="int64", shape=("batch",)),
                TensorEntry(name="id.values", dtype="int64", shape=("values_id",)),
            ),
            "outputs": (TensorEntry(name="emb", dtype="float32", shape=("batch", 3)),),
            "dims": (batch, values),
            "demands": Pooling.demands,
        }
    )
    write_manifest(
        folder,
        make_manifest(job, entry).model_copy(
            update={
                "architecture": architecture(Device.CPU),
                "versions": versions(),
                "op_libraries": ("fbgemm_gpu",),
            }
        ),
    )
    return folder


def write_manifest(folder: Path, manifest: Manifest) -> None:
    (folder / "manifest.json").write_text(manifest.model_dump_json())


def read_manifest(folder: Path) -> Manifest:
    return Manifest.model_validate_json((folder / "manifest.json").read_bytes())


def change_manifest(folder: Path, **changes: object) -> None:
    write_manifest(folder, read_manifest(folder).model_copy(update=changes))


def flip_byte(path: Path, at: int) -> None:
    """Change one byte of a file, which may be read-only."""
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(at)
        [byte] = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))


def digest_of_tree(folder: Path) -> str:
    """Return a digest of names and contents of all files below a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()
