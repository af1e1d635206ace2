"""The scripted half is a file that torch alone loads, and that refuses what contradicts itself."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from exporter.lowering.tables import quantise_tables
from exporter.options.tables import Tables
from exporter.packages.scripted_part import WrittenPart, plan_torcheasyrec_halves
from exporter.torcheasyrec.scripted_file import ScriptedHalf
from exporter.towers.tower import Tower
from tests.exporter.models.recorded import Batch, read_batch, recorded_tower, untrained

CPU = torch.device("cpu")
# Runs in a process that has imported nothing but torch, and a library that reads tensors.
PROGRAM = """
import sys
import torch
from safetensors.torch import load_file, save_file

scripted = torch.jit.load(sys.argv[1], map_location="cpu")
tensors, _ = scripted(load_file(sys.argv[2]), torch.device("cpu"))
save_file({f"{place:02}": value.contiguous() for place, value in enumerate(tensors.values())}, sys.argv[3])
print("\\n".join(tensors))
sys.exit("exporter" in sys.modules or "fbgemm_gpu" in sys.modules)
"""


def write(model: str, tower: str, folder: Path) -> tuple[Tower, WrittenPart]:
    whole = recorded_tower(model, tower)
    scripted, _ = plan_torcheasyrec_halves(whole, max_batch_size=64)
    return whole, scripted.write(folder)


@pytest.mark.parametrize(
    ("model", "tower", "batch"),
    [
        ("dlrm_hstu", "model", "model__b7"),
        ("dlrm_hstu", "model", "model__b3_empty"),
        ("hstu_match", "item", "item_tower__items_b7"),
        ("multi_tower_din_w", "model", "model__b7"),
        ("dcn_v2", "model", "model__b7"),
        ("dlrm_hstu_fp16", "model", "model__b7"),
    ],
)
def test_torch_alone_computes_eagers_lookups(model: str, tower: str, batch: str, tmp_path: Path) -> None:
    _, written = write(model, tower, tmp_path)
    inputs = read_batch(model, batch, "in")
    save_file(inputs, tmp_path / "in.safetensors")
    files = (written.package.path, tmp_path / "in.safetensors", tmp_path / "out.safetensors")
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, *map(str, files)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    expected = written.part.look_up(inputs)
    assert run.stdout.split() == list(expected)
    found = load_file(tmp_path / "out.safetensors")
    for value, name in zip((found[place] for place in sorted(found)), expected, strict=True):
        assert torch.equal(value, expected[name]), name


@pytest.mark.parametrize("dtype", ["fp16", "int8", "int4"])
def test_low_tables_are_looked_up_as_eager_does(dtype: str, tmp_path: Path) -> None:
    recorded = recorded_tower("multi_tower_din", "model")
    tower = untrained(recorded.config)
    tower.module.load_state_dict(recorded.module.state_dict())
    quantise_tables(tower.module, Tables.model_validate({"dtype": dtype}))
    scripted, dense = plan_torcheasyrec_halves(tower, max_batch_size=64)
    half = ScriptedHalf(scripted.write(tmp_path).package.path, CPU, ())
    inputs = read_batch("multi_tower_din", "model__b7", "in")
    with torch.no_grad():
        expected, found = tower.module(inputs), dense.module(half(inputs))
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-6, atol=1e-6)


def changed(inputs: Batch, name: str, value: torch.Tensor) -> Batch:
    return {**inputs, name: value}


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> ScriptedHalf:
    _, written = write("dlrm_hstu", "model", tmp_path_factory.mktemp("half"))
    return ScriptedHalf(written.package.path, CPU, written.link.order)


@pytest.fixture
def inputs() -> Batch:
    return read_batch("dlrm_hstu", "model__b7", "in")


def test_inputs_that_it_does_not_read_are_ignored(half: ScriptedHalf, inputs: Batch) -> None:
    expected = half(inputs)
    found = half({"another.values": torch.zeros(3), **inputs})
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_an_input_that_is_missing_is_named(half: ScriptedHalf, inputs: Batch) -> None:
    del inputs["user_id.lengths"]
    with pytest.raises(RuntimeError, match="there is no input user_id.lengths"):
        half(inputs)


@pytest.mark.parametrize(
    ("name", "edit", "words"),
    [
        ("user_id.values", "float", "user_id.values has another dtype"),
        ("user_id.values", "two axes", "user_id.values has 2 axes"),
        ("user_id.lengths", "shorter", "user_id.lengths is 6 long, and batch is 7"),
        ("uih_seq__video_id.values", "shorter", "long, and seq_uih_seq is"),
        ("uih_seq__video_id.values", "negative", "uih_seq__video_id.values has an id outside the"),
        ("uih_seq__video_id.values", "huge", "uih_seq__video_id.values has an id outside the"),
        ("user_id.lengths", "more", "user_id.lengths has a negative length, or does not add up"),
        ("uih_seq__watch_time.lengths", "moved", "uih_seq__watch_time.lengths differs from"),
        ("uih_seq__watch_time.values", "wider", "has rows of 2 numbers, not 1"),
    ],
)
def test_what_contradicts_itself_is_refused(
    name: str, edit: str, words: str, half: ScriptedHalf, inputs: Batch
) -> None:
    value = inputs[name].clone()
    match edit:
        case "float":
            value = value.float()
        case "two axes":
            value = value.unsqueeze(1)
        case "shorter":
            value = value[:-1]
        case "negative":
            value[0] = -1
        case "huge":
            value[0] = 2**62
        case "more":
            value[-1] += 1
        case "moved":
            value[0] -= 1
            value[-1] += 1
        case "wider":
            value = torch.cat([value, value], dim=1)
    with pytest.raises(RuntimeError, match=words):
        half(changed(inputs, name, value))
