"""Every bit of a package is held against the checkpoint, and what differs is named."""

import random
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from exporter.aoti.code import CompiledCode
from exporter.checkpoint.stored_zip import data_start
from exporter.lowering import tables as lowering_tables
from exporter.manifest import ReadBack
from exporter.models.embedding import id_map
from exporter.packages.parts import plan_packages
from exporter.readback.errors import ArchiveDiffers, WeightsDiffer
from exporter.readback.packages import WrittenPackage, read_back
from exporter.readback.tower_weights import TowerWeights
from exporter.spec import ExportSpec
from tests.dynamic_models import spec_for, write_dynamic_checkpoint
from tests.exporter.readback.packages import (
    Written,
    code_files,
    flipped,
    open_recorded,
    packaged_spec,
    places_in,
    swapped_rows,
    with_weights,
    write_packages,
)
from tests.exporter.shards.conftest import FIXTURES

TABLE = "embedding_group.seq_emb_impls.__BASE__.ec_dict.16.embeddings.video_id_emb.weight"
ROWS = FIXTURES / "data" / "rec2"
REC2: dict[str, object] = {"sample_input_uri": str(ROWS / "train.parquet")}
KINDS: Mapping[str, tuple[str, dict[str, object]]] = {
    "unified": ("hstu_match", {}),
    "two_stage": ("hstu_match", {"mode": "two_stage"}),
    "fp16": ("dlrm_hstu", {"tables": {"dtype": "fp16"}, "mode": "two_stage"}),
    "int8": ("dlrm_hstu_sharded", {"tables": {"dtype": "int8"}}),
    "int4": ("multi_tower_din", {"tables": {"dtype": "int4"}}),
    "trained in fp16": ("dlrm_hstu_fp16", {}),
    "widened": ("dlrm_hstu_fp16", {"tables": {"dtype": "fp32"}}),
    "averages": ("dlrm_hstu_ema", {}),
    "rotations": ("dc2vr", {}),
    "zch": ("dcn_v2", {}),
    "bf16": ("dlrm_hstu", {"precision": "bf16"}),
    "codebooks": ("sid_rqvae", REC2),
}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Written]:
    def write(model: str = "hstu_match", tower: int = 0, **changes: object) -> Written:
        spec = packaged_spec(model, tmp_path, **changes)
        return write_packages(open_recorded(spec, tmp_path, tower), spec, tmp_path / "written")

    return write


def flip_every_constant(written: Written, seed: int) -> int:
    """Flip a random bit of every constant in turn; each must be found, and its tensor named."""
    draw, flips = random.Random(seed), 0
    for package, start in written.blobs():
        for name, at in places_in(package, start, draw):
            with flipped(package.file.path, at, draw.randrange(8)), pytest.raises(WeightsDiffer) as caught:
                read_back([package], written.origin)
            assert (caught.value.where, name in caught.value.message) == (name, True)
            flips += 1
    return flips


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_of_any_constant_is_found_and_named(kind: str, write: Callable[..., Written]) -> None:
    model, changes = KINDS[kind]
    written = write(model, **changes)
    sound = written.read_back()
    assert sound.tensors == sound.from_checkpoint > 5 and sound.bytes > 4_000
    assert flip_every_constant(written, seed=len(kind)) >= sound.tensors - 3  # some may be empty
    assert written.read_back() == sound


def test_a_flipped_bit_of_a_dynamic_table_and_of_its_map_is_found(tmp_path: Path) -> None:
    checkpoint = write_dynamic_checkpoint(tmp_path / "checkpoint", ranks=3)
    spec = ExportSpec.model_validate(
        {**dict(spec_for(checkpoint, tmp_path)), "mode": "unified", "tables": {}}
    )
    written = write_packages(open_recorded(spec, tmp_path), spec, tmp_path / "written")
    names = {constant.fqn for constant in written.packages[0].code.table}
    assert any(".dynamicemb." in name for name in names)
    assert written.read_back().from_checkpoint == len(names) == flip_every_constant(written, seed=5)


def test_the_message_names_row_column_and_both_values(write: Callable[..., Written]) -> None:
    written = write()
    [(package, start)] = written.blobs()
    before = 0
    for constant in package.code.table:
        if constant.fqn == TABLE:
            break
        before += constant.size
    sign = start + before + (1234 * 16 + 5) * 4 + 3
    value = package.weights[TABLE][1234, 5].item()
    with flipped(package.file.path, sign, 7), pytest.raises(WeightsDiffer) as caught:
        written.read_back()
    assert caught.value.code == "weights_differ"
    assert caught.value.message == (
        f"user tower: aoti_model.pt2: {TABLE}: row 1234, column 5: {-value!r} was written, and the "
        f"checkpoint has {value!r}"
    )


def test_two_rows_that_were_swapped_in_loading_are_found(write: Callable[..., Written]) -> None:
    written = write()
    table = written.packages[0].weights[TABLE]
    with pytest.raises(WeightsDiffer, match="video_id_emb.weight: row 700, column 0"):
        with_weights(written, {TABLE: swapped_rows(table, 700, 1900)}).read_back()


def test_a_stale_row_is_found(write: Callable[..., Written]) -> None:
    written = write()
    stale = written.packages[0].weights[TABLE].detach().clone()
    stale[1501] = stale[1501] * 0.999
    with pytest.raises(WeightsDiffer, match="video_id_emb.weight: row 1501, column 0"):
        with_weights(written, {TABLE: stale}).read_back()


def test_a_weight_loaded_into_another_of_its_shape_is_found(write: Callable[..., Written]) -> None:
    written = write()
    weights = written.packages[0].weights
    one, other = (f"user_tower._hstu_encoder._stu_module._stu_layers.{each}._uvqk_weight" for each in (0, 1))
    with pytest.raises(WeightsDiffer, match=r"_uvqk_weight: row 0, column 0"):
        with_weights(written, {one: weights[other], other: weights[one]}).read_back()


@pytest.mark.parametrize("dtype", ["fp16", "int8", "int4"])
def test_one_row_that_was_quantised_wrongly_is_found(
    dtype: str, write: Callable[..., Written], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = lowering_tables.fuse_rows

    def wrong(rows: Tensor, *args: object, **kwargs: object) -> Tensor:
        fused = right(rows, *args, **kwargs)  # type: ignore[arg-type]  # passed on as they came
        if len(rows) > 1500:
            fused[1500] = fused[1499]
        return fused

    monkeypatch.setattr(lowering_tables, "fuse_rows", wrong)
    with pytest.raises(WeightsDiffer, match=r"video_id_emb\.\w+: row 1500, column \d+: .* made anew, has"):
        write(tables={"dtype": dtype}).read_back()


def test_a_row_that_was_widened_wrongly_is_found(
    write: Callable[..., Written], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = lowering_tables.widen_table

    def wrong(rows: Tensor) -> nn.Module:
        table = right(rows)
        with torch.no_grad():
            table.weight[7, 3] += 1
        return table

    monkeypatch.setattr(lowering_tables, "widen_table", wrong)
    with pytest.raises(WeightsDiffer, match="row 7, column 3"):
        write("dlrm_hstu_fp16", tables={"dtype": "fp32"}).read_back()


def test_a_map_of_ids_that_was_merged_wrongly_is_found(
    write: Callable[..., Written], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = id_map.IdMap.settle

    def wrong(self: id_map.IdMap, *args: object) -> None:
        right(self, *args)  # type: ignore[arg-type]  # passed on as they came
        rows = self._mch_remapped_ids_mapping
        rows[[3, 4]] = rows[[4, 3]]

    monkeypatch.setattr(id_map.IdMap, "settle", wrong)
    with pytest.raises(WeightsDiffer, match="_mch_remapped_ids_mapping: number 3: "):
        write("dcn_v2").read_back()


class Constants(nn.Module):
    """A module with a weight, a buffer that is not saved, and a plain tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(40))
        self.register_buffer("steps", torch.arange(40.0), persistent=False)


def package_of(
    values: Mapping[str, Tensor], constants: Mapping[str, Tensor] | None, folder: Path
) -> WrittenPackage:
    module = Constants()
    weights = module.state_dict()
    code = CompiledCode(files=code_files({**weights, **values}), values=values)
    return WrittenPackage(
        title="model tower",
        file=code.assemble(weights, folder / "model.pt2"),
        code=code,
        module=module,
        weights=weights,
        constants=constants,
    )


def test_constants_of_the_code_are_held_against_the_traced_program(tmp_path: Path) -> None:
    steps, scale = torch.arange(40.0), torch.rand(3)
    program = {"steps": steps, "lifted_tensor_0": scale}
    own = {"steps": steps, "_tensor_constant0": scale.clone()}
    sound = read_back([package_of(own, program, tmp_path)], None)
    assert (sound.tensors, sound.from_checkpoint) == (3, 0)
    for name in own:
        altered = {**own, name: own[name] + 1e-6 + own[name] * 1e-6}
        with pytest.raises(
            WeightsDiffer, match=f"the constant {name} of the compiled code is not the traced"
        ):
            read_back([package_of(altered, program, tmp_path)], None)
    read_back([package_of({**own, "_made_by_compiler": torch.rand(7)}, program, tmp_path)], None)


def test_a_flipped_bit_of_a_constant_of_the_code_is_found(tmp_path: Path) -> None:
    own = {"steps": torch.arange(40.0), "_tensor_constant0": torch.rand(3)}
    written = Written(packages=(package_of(own, None, tmp_path),), origin=None)  # type: ignore[arg-type]  # held against its own module
    assert flip_every_constant(written, seed=1) == 3


def test_every_tensor_of_a_scripted_half_is_read_back(tmp_path: Path) -> None:
    spec = packaged_spec("dcn_v2", tmp_path, mode="two_stage", layout="torcheasyrec")
    opened = open_recorded(spec, tmp_path)
    scripted = plan_packages(opened.tower, spec).scripted
    assert scripted is not None
    written = scripted.write(tmp_path)
    origin = TowerWeights(filled=opened.filled, tables=opened.lowered.tables)
    report = written.read_back(origin, ReadBack())
    tensors = scripted.half.graph.state_dict()
    assert (report.tensors, report.from_checkpoint) == (len(tensors), len(tensors))
    assert report.bytes == sum(tensor.nbytes for tensor in tensors.values())
    name = next(name for name in tensors if name.endswith("weight"))
    owner, _, leaf = name.rpartition(".")
    swapped = swapped_rows(tensors[name], 0, 1)
    setattr(scripted.half.graph.get_submodule(owner), leaf, nn.Parameter(swapped))
    with pytest.raises(WeightsDiffer, match="row 0, column 0"):
        scripted.write(tmp_path).read_back(origin, ReadBack())


def test_damage_to_a_scripted_half_is_found(tmp_path: Path) -> None:
    spec = packaged_spec("hstu_match", tmp_path, mode="two_stage", layout="torcheasyrec")
    opened = open_recorded(spec, tmp_path)
    scripted = plan_packages(opened.tower, spec).scripted
    assert scripted is not None
    written = scripted.write(tmp_path)
    origin = TowerWeights(filled=opened.filled, tables=opened.lowered.tables)
    draw = random.Random(1)
    with zipfile.ZipFile(written.package.path) as archive, written.package.path.open("rb") as file:
        places = [
            data_start(e, file) + draw.randrange(e.compress_size)
            for e in archive.infolist()
            if e.compress_size
        ]
    for place in places:
        with (
            flipped(written.package.path, place, draw.randrange(8)),
            pytest.raises((ArchiveDiffers, WeightsDiffer)),
        ):
            written.read_back(origin, ReadBack())
