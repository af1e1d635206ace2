"""A tower of lower precision stands beside itself in fp32, which it leaves as it was."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from exporter.aoti.torch_private import compiler_settings
from exporter.dtypes import Precision, TableDtype
from exporter.lowering.lower_tower import LoweredTower, lower_tower
from exporter.lowering.precision import without_tf32
from exporter.lowering.tables import table_modules
from exporter.models.embedding.tables import FloatTable, Int8Table
from exporter.options.tables import Tables
from exporter.towers.tower import Tower
from tests.exporter.models.recorded import load_recorded_weights, random_inputs, recorded_tower, untrained

CPU = torch.device("cpu")


def fresh_tower(tables: Tables, precision: Precision = Precision.FP32) -> Tower:
    """The recorded user tower, of which there is no other, asked to be so."""
    config = recorded_tower("hstu_match", "user").config
    tower = untrained(replace(config, options=replace(config.options, tables=tables, precision=precision)))
    load_recorded_weights(tower.module, "hstu_match")
    return tower


def inputs_of(tower: Tower) -> dict[str, Tensor]:
    torch.manual_seed(2)
    return random_inputs(tower, [3, 0, 5])


def outputs_of(lowered: LoweredTower) -> tuple[Tensor, Tensor]:
    """Of the lowered tower, and in fp32."""
    inputs = inputs_of(lowered.tower)
    assert lowered.fp32 is not None
    with torch.no_grad():
        return lowered.tower.module(inputs)["user_tower_emb"], lowered.fp32(inputs)["user_tower_emb"]


def recorded_output() -> Tensor:
    tower = recorded_tower("hstu_match", "user")
    with torch.no_grad():
        output: Tensor = tower.module(inputs_of(tower))["user_tower_emb"]
    return output


def test_a_tower_in_fp32_stays_as_it_is() -> None:
    tower = fresh_tower(Tables())
    lowered = lower_tower(tower, CPU)
    assert lowered.tower.module is tower.module and lowered.fp32 is None
    assert all(table.dtype == "fp32" and table.error is None for table in lowered.tables)
    assert lowered.tables[0].bytes == lowered.tables[0].fp32_bytes


def test_single_tables_are_quantised_by_name() -> None:
    lowered = lower_tower(fresh_tower(Tables(dtypes={"video_id_emb": TableDtype.INT8})), CPU)
    tables = table_modules(lowered.tower.module)
    kinds = {path.rpartition(".")[2]: type(table) for path, table in tables.items()}
    assert kinds.pop("video_id_emb") is Int8Table
    assert set(kinds.values()) == {FloatTable}
    low, fp32 = outputs_of(lowered)
    assert torch.equal(fp32, recorded_output())
    assert 0 < (low - fp32).abs().max() < 0.05 * fp32.abs().max()


def test_weights_that_stay_are_shared_with_the_reference() -> None:
    lowered = lower_tower(fresh_tower(Tables(dtype=TableDtype.INT4)), CPU)
    assert lowered.fp32 is not None
    reference = lowered.fp32.module.state_dict()
    for name, tensor in lowered.tower.module.state_dict().items():
        if name in reference:
            assert tensor.data_ptr() == reference[name].data_ptr()


@pytest.mark.parametrize("precision", [Precision.BF16, Precision.FP16])
def test_outputs_of_a_lower_precision_are_fp32(precision: Precision) -> None:
    low, fp32 = outputs_of(lower_tower(fresh_tower(Tables(), precision), CPU))
    assert low.dtype is torch.float32
    assert torch.equal(fp32, recorded_output())
    assert 1e-5 < (low - fp32).abs().max() < 0.04 * fp32.abs().max()


def test_what_is_asked_of_other_towers_tables_changes_nothing() -> None:
    assert lower_tower(fresh_tower(Tables(dtypes={"elsewhere": TableDtype.INT4})), CPU).fp32 is None


def test_the_bound_is_the_requests_where_it_names_one() -> None:
    asked = Tables(dtype=TableDtype.INT8)
    default, own = (lower_tower(fresh_tower(asked), CPU, tolerance=each) for each in (None, 0.2))
    assert default.fp32 is not None and own.fp32 is not None
    assert (default.fp32.tolerance, own.fp32.tolerance) == (0.05, 0.2)


def test_tf32_is_allowed_to_the_tower_and_not_to_its_reference() -> None:
    tower, seen = fresh_tower(Tables()), []
    options = replace(tower.config.options, tf32=True)
    with without_tf32():  # puts back what is allowed
        before = compiler_settings()
        lowered = lower_tower(replace(tower, config=replace(tower.config, options=options)), CPU)
        assert torch.backends.cuda.matmul.allow_tf32 and compiler_settings() != before
        assert lowered.fp32 is not None and lowered.fp32.tolerance == 0.005
        lowered.fp32.module.register_forward_hook(
            lambda *_: seen.append(torch.backends.cuda.matmul.allow_tf32)
        )
        lowered.fp32(inputs_of(tower))
        assert seen == [False] and torch.backends.cuda.matmul.allow_tf32
