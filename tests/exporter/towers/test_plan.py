"""A spec and a config become planned towers, or an error that names the field."""

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from exporter.dtypes import Precision, TableDtype
from exporter.errors import InvalidPipelineConfig, InvalidSpec, PassRefused
from exporter.options.index_spec import FlatIndex
from exporter.options.layout import Layout
from exporter.options.tables import TableLayout, Tables
from exporter.spec import (
    AttentionKind,
    ExportSpec,
    LowPrecision,
    Mode,
    SetPrecision,
    SwapAttention,
    TowerName,
)
from exporter.towers.pinning import pin_spec
from exporter.towers.plan import plan_export, plan_towers

FIXTURES = Path(__file__).parents[2] / "fixtures" / "torcheasyrec"


@pytest.fixture(scope="module")
def text() -> str:
    return (FIXTURES / "hstu_match" / "pipeline.config").read_text()


def _spec(
    *towers: TowerName, item_input_uri: str | None = "items.parquet", sample_input_uri: str | None = None
) -> ExportSpec:
    return ExportSpec(
        config_uri="models/pipeline.config",
        checkpoint_uri="ckpt",
        item_input_uri=item_input_uri,
        sample_input_uri=sample_input_uri,
        output_uri="out",
        towers=towers or None,
        max_batch_size=128,
    )


def test_every_tower_is_planned_in_its_view(text: str) -> None:
    planned = plan_towers(_spec(), text)
    assert [(tower.config.name, tower.config.view) for tower in planned] == [
        (TowerName.USER, "training"),
        (TowerName.ITEM, "scalar"),
    ]
    assert all(tower.plan.dim("batch").high == 128 for tower in planned)


def test_a_kept_plan_is_that_of_the_same_choices_and_config_alone(text: str) -> None:
    planned = plan_towers(_spec(), text)
    other_weights = {"checkpoint_uri": "another", "output_uri": "elsewhere", "sample_input_uri": "rows"}
    assert plan_towers(_spec().model_copy(update=other_weights), text) is planned
    for changes in (
        {"max_batch_size": 64},
        {"towers": (TowerName.USER,)},
        {"tables": Tables(dtype=TableDtype.FP16)},
        {"materialise_items": True},
    ):
        assert plan_towers(_spec().model_copy(update=changes), text) != planned
    assert plan_towers(_spec(), text + "\n") is not planned
    with pytest.raises(InvalidSpec, match="no table nowhere"):
        plan_towers(_spec().model_copy(update={"tables": Tables(dtypes={"nowhere": TableDtype.FP16})}), text)


def test_passes_and_autocast_do_not_go_together(text: str) -> None:
    asked = SetPrecision(tower=TowerName.ITEM, submodule="item_tower.mlp", precision=LowPrecision.BF16)
    spec = _spec().model_copy(update={"passes": (asked,), "precision": Precision.FP16})
    with pytest.raises(InvalidSpec, match="the towers are to compute in fp16") as raised:
        plan_towers(spec, text)
    assert raised.value.where == "passes"


def test_tf32_is_refused_where_no_target_has_it() -> None:
    with pytest.raises(ValidationError, match="`tf32` is for CUDA"):
        ExportSpec(config_uri="c", checkpoint_uri="c", output_uri="o", tf32=True)
    both = ExportSpec(config_uri="c", checkpoint_uri="c", output_uri="o", tf32=True, target=("cpu", "sm_90"))
    assert [both.for_target(each).tf32 for each in both.targets] == [False, True]


def test_triton_is_refused_where_no_target_runs_it() -> None:
    with pytest.raises(ValidationError, match="`kernel: triton` is for CUDA"):
        ExportSpec(config_uri="c", checkpoint_uri="c", output_uri="o", kernel="triton")
    both = ExportSpec.model_validate({**_spec().model_dump(), "kernel": "triton", "target": ["cpu", "sm_90"]})
    assert [both.for_target(each).kernel for each in both.targets] == [None, "triton"]


@pytest.mark.parametrize(
    ("config", "target", "asked", "user"),
    [
        ("TRITON", "sm_90", None, "triton"),
        ("TRITON", "sm_90", "pytorch", "pytorch"),
        ("PYTORCH", "sm_90", "triton", "triton"),
        ("TRITON", "cpu", None, "pytorch"),
    ],
)
def test_on_cuda_the_request_or_the_config_chooses_the_kernel(
    text: str, config: str, target: str, asked: str | None, user: str
) -> None:
    given = {**_spec().model_dump(exclude={"device"}), "target": target, "kernel": asked}
    planned = plan_towers(
        ExportSpec.model_validate(given), text.replace("kernel: PYTORCH", f"kernel: {config}")
    )
    kernels = {tower.name: tower.config.options.kernel for tower in planned}
    assert kernels == {TowerName.USER: user, TowerName.ITEM: "pytorch"}  # the item tower has no such layers


def test_a_pass_for_triton_is_refused_where_one_target_is_a_cpu(text: str) -> None:
    asked = SwapAttention(tower=TowerName.USER, submodule="user_tower", attention=AttentionKind.TRITON)
    spec = _spec().model_copy(update={"passes": (asked,), "target": ("sm_90", "avx2")})
    with pytest.raises(PassRefused, match="is for CUDA, and a package is to be made for avx2") as raised:
        plan_towers(spec, text)
    assert raised.value.where == "passes: user_tower"
    assert plan_towers(spec.for_target("sm_90"), text)


def test_the_family_is_known_from_the_plan(text: str) -> None:
    assert plan_export(_spec(), text)[0].family == "hstu_match"


def test_the_item_tower_needs_item_rows(text: str) -> None:
    with pytest.raises(InvalidSpec) as raised:
        plan_export(_spec(item_input_uri=None), text)
    assert raised.value.where == "item_input_uri"


def test_the_user_tower_does_not_need_item_rows(text: str) -> None:
    assert len(plan_export(_spec(TowerName.USER, item_input_uri=None), text)) == 1


@pytest.mark.parametrize(
    "edit",
    [('train_input_path: "data/train.parquet"', ""), ("num_buckets: 500", "hash_bucket_size: 500")],
)
def test_the_user_tower_needs_encoded_training_rows(text: str, edit: tuple[str, str]) -> None:
    edited = text.replace("FG_NONE", "FG_DAG").replace(*edit, 1)
    with pytest.raises(InvalidSpec) as raised:
        plan_export(_spec(), edited)
    assert raised.value.where == "sample_input_uri"
    plan_export(_spec(sample_input_uri="rows.parquet"), edited)
    plan_export(_spec(TowerName.ITEM), edited)


def test_a_tower_that_the_model_lacks_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpec, match="no tower model"):
        plan_export(_spec(TowerName.MODEL), text)


def test_errors_in_the_config_name_its_uri_and_line(text: str) -> None:
    with pytest.raises(InvalidPipelineConfig) as raised:
        plan_export(_spec(), f"modle_dir: 1\n{text}")
    assert raised.value.where == "models/pipeline.config:1:1"


def test_planning_does_not_import_torch() -> None:
    program = "import sys, exporter.towers.plan, exporter.config.render; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("train.parquet", "s3://b/run/train.parquet"),
        ("a.parquet, b/*.parquet", "s3://b/run/a.parquet,s3://b/run/b/*.parquet"),
        ("/data/a.parquet,s3://c/b.parquet", "/data/a.parquet,s3://c/b.parquet"),
    ],
)
def test_pinning_finds_the_configs_own_rows_beside_it(written: str, read: str, text: str) -> None:
    own = text.replace('train_input_path: "data/train.parquet"', f'train_input_path: "{written}"')
    spec = _spec().model_copy(update={"config_uri": "s3://b/run/pipeline.config"})
    pinned = pin_spec(spec, own, plan_export(spec, own))
    assert (pinned.config, pinned.config_uri, pinned.sample_input_uri) == (own, None, read)


def test_pinning_keeps_the_rows_that_were_asked_for(text: str) -> None:
    spec = _spec(sample_input_uri="mine.parquet")
    assert pin_spec(spec, text, plan_export(spec, text)).sample_input_uri == "mine.parquet"


def _item_vectors(*towers: TowerName, item_id_column: str | None = None) -> ExportSpec:
    return _spec(*towers).model_copy(update={"materialise_items": True, "item_id_column": item_id_column})


def test_items_are_named_by_the_samplers_id_field(text: str) -> None:
    [user, item] = plan_towers(_item_vectors(), text)
    assert (user.item_id_column, item.item_id_column) == (None, "video_id")


def test_without_a_sampler_items_are_named_by_the_first_id_feature(text: str) -> None:
    begin = text.index("  negative_sampler {")
    unsampled = text[:begin] + text[text.index("  }\n", begin) + 4 :]
    assert plan_towers(_item_vectors(), unsampled)[1].item_id_column == "video_id"


def test_another_column_may_name_the_items(text: str) -> None:
    assert plan_towers(_item_vectors(item_id_column="asin"), text)[1].item_id_column == "asin"


def test_a_column_of_ids_cannot_be_called_like_that_of_vectors(text: str) -> None:
    with pytest.raises(InvalidSpec) as raised:
        plan_towers(_item_vectors(item_id_column="vector"), text)
    assert raised.value.where == "item_id_column"


def test_item_vectors_need_the_item_tower(text: str) -> None:
    with pytest.raises(InvalidSpec, match="need an item or embedding tower.* is user") as raised:
        plan_towers(_item_vectors(TowerName.USER), text)
    assert raised.value.where == "materialise_items"


def test_a_model_without_an_item_tower_has_no_item_vectors() -> None:
    ranking = (FIXTURES / "dlrm_hstu" / "pipeline.config").read_text()
    with pytest.raises(InvalidSpec, match="need an item or embedding tower"):
        plan_towers(_item_vectors(), ranking)


@pytest.mark.parametrize("field", [{"item_index": {"kind": "flat"}}, {"item_id_column": "asin"}])
def test_an_index_without_vectors_is_refused(field: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="without `materialise_items: true`"):
        ExportSpec.model_validate({**_spec().model_dump(), **field})


def test_the_other_towers_alone_make_no_item_vectors() -> None:
    asked = _item_vectors(item_id_column="asin").model_copy(update={"item_index": FlatIndex()})
    user = asked.only((TowerName.USER,))
    assert (user.towers, user.materialise_items, user.item_index) == ((TowerName.USER,), False, None)
    assert ExportSpec.model_validate(user.model_dump()) == user
    assert asked.only((TowerName.ITEM,)).item_index == FlatIndex()


@pytest.mark.parametrize("tables", ["sharded", {"layout": "sharded"}])
def test_tables_go_into_shards_beside_a_dense_package(tables: object, text: str) -> None:
    given = {**_spec().model_dump(), "tables": tables}
    assert ExportSpec.model_validate({**given, "mode": "two_stage"}).tables == Tables(
        layout=TableLayout.SHARDED
    )
    with pytest.raises(ValidationError, match="`tables: sharded` needs `mode: two_stage`"):
        ExportSpec.model_validate(given)


def test_a_model_repository_needs_packages_that_look_up() -> None:
    given = {**_spec().model_dump(), "layout": "triton", "mode": "two_stage"}
    assert ExportSpec.model_validate({**given, "triton_prefix": "feed"}).layout is Layout.TRITON
    with pytest.raises(ValidationError, match="`layout: triton` needs packages that look up"):
        ExportSpec.model_validate({**given, "tables": "sharded"})


@pytest.mark.parametrize("prefix", ["", "a/b", "..", "a b", "-a", "x" * 65])
def test_a_prefix_is_part_of_a_folders_name(prefix: str) -> None:
    with pytest.raises(ValidationError, match="triton_prefix"):
        ExportSpec.model_validate({**_spec().model_dump(), "layout": "triton", "triton_prefix": prefix})


def test_a_prefix_without_models_is_refused() -> None:
    with pytest.raises(ValidationError, match="`triton_prefix` is of no use without `layout: triton`"):
        ExportSpec.model_validate({**_spec().model_dump(), "triton_prefix": "feed"})


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"mode": "two_stage", "tables": "sharded"}, "no tables in shards"),
        ({"family": "own"}, "no custom family"),
    ],
)
def test_a_layout_is_refused_that_torcheasyrec_could_not_load(fields: dict[str, object], named: str) -> None:
    given = {**_spec().model_dump(), **fields}
    assert ExportSpec.model_validate(given).layout is Layout.SLIPWAY
    with pytest.raises(ValidationError, match=named):
        ExportSpec.model_validate({**given, "layout": "torcheasyrec"})


def test_a_family_of_ones_own_brings_its_kernels() -> None:
    own = {"config": "", "family": "own", "checkpoint_uri": "x", "sample_input_uri": "x", "output_uri": "x"}
    spec = ExportSpec.model_validate({**own, "target": "cuda", "kernel": "triton"})
    with pytest.raises(InvalidSpec) as raised:
        plan_export(spec, "", families=("own",))
    assert raised.value.where == "kernel"


def test_a_family_of_ones_own_has_no_tables_to_shard() -> None:
    spec = ExportSpec(
        config="",
        family="own",
        checkpoint_uri="x",
        sample_input_uri="x",
        output_uri="x",
        mode=Mode.TWO_STAGE,
        tables=Tables(layout=TableLayout.SHARDED),
    )
    with pytest.raises(InvalidSpec) as raised:
        plan_export(spec, "", families=("own",))
    assert raised.value.where == "tables"
