"""`slipway plan`: the plan as a table and as JSON, at once and without torch."""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.main import main
from service.schemas import PlanView
from tests.installed_families import Install

CONFIG = Path(__file__).parents[1] / "fixtures" / "torcheasyrec" / "hstu_match" / "pipeline.config"
LIMIT_S = 3.0  # a second is promised on a machine that does nothing else


def _json(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, object]:
    assert main(["plan", "--config", str(CONFIG), "--json", *options]) == 0
    plan: dict[str, object] = json.loads(capsys.readouterr().out)
    return plan


def test_the_table_says_what_is_shared_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--config", str(CONFIG), "--max-batch-size", "8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    [row] = [line for line in lines if "uih_seq__video_id.values" in line]
    assert [cell.strip() for cell in row.strip("│ ").split("│")] == [
        "uih_seq__video_id.values",
        "0",
        "seq_uih_seq",
        "0 to 768 (events per row: 96)",
        "elements of all rows, shared by 4 inputs of sequence uih_seq",
    ]


def test_the_plan_can_be_had_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    plan = _json(capsys, "--tower", "item", "--max-batch-size", "8")
    assert plan["family"] == "hstu_match"
    assert plan["towers"] == [
        {
            "name": "item",
            "view": "scalar",
            "inputs": [
                {"name": "video_id.lengths", "dtype": "int64", "shape": ["batch"]},
                {"name": "video_id.values", "dtype": "int64", "shape": ["batch"]},
            ],
            "dims": [
                {
                    "name": "batch",
                    "low": 1,
                    "high": 8,
                    "reason": "rows per call, shared by 2 inputs",
                    "tried": None,
                    "share": None,
                }
            ],
            "group_tensors": [],
            "group_dims": [],
            "tables": [
                {
                    "name": "video_id_emb",
                    "rows": 2000,
                    "width": 16,
                    "features": ["video_id"],
                    "trained": "fp32",
                    "dtype": "fp32",
                    "fp32_bytes": 128_000,
                    "bytes": 128_000,
                }
            ],
            "kernel": "pytorch",
        }
    ]


def test_it_says_that_packages_will_refuse_more_than_is_tried(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--config", str(CONFIG), "--strict-bounds"]) == 0
    assert "the packages will refuse more than the export tries" in capsys.readouterr().out
    assert _json(capsys, "--strict-bounds")["strict_bounds"] is True
    assert _json(capsys)["strict_bounds"] is False


def test_a_layout_decides_on_what_passes_between_two_stages(capsys: pytest.CaptureFixture[str]) -> None:
    def dtypes(layout: str) -> dict[str, str]:
        plan = PlanView.model_validate(_json(capsys, "--mode", "two_stage", "--layout", layout))
        return {each.name: each.dtype for tower in plan.towers for each in tower.group_tensors}

    name = "uih_action__sequence_length"
    ours, theirs = dtypes("slipway"), dtypes("torcheasyrec")
    assert theirs[name] == "int32"
    assert ours.get(name) != "int32"


def test_two_stages_show_what_passes_between_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--config", str(CONFIG), "--mode", "two_stage"]) == 0
    assert "uih_action__sequence " in capsys.readouterr().out


def test_it_says_what_tables_will_be_kept_in(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--table-dtype", "int8", "--table-dtype", "video_id_emb=int4"]
    assert main(["plan", "--config", str(CONFIG), "--tower", "user", *asked]) == 0
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    assert ["user_id_emb", "500 × 16", "fp32", "int8", "12,000", "32,000", "user_id"] in rows
    assert ["video_id_emb", "2,000 × 16", "fp32", "int4", "24,000", "128,000", "uih_seq__video_id"] in rows


def test_rows_that_a_file_decided_are_those_of_the_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    config = CONFIG.parents[1] / "multi_tower" / "pipeline.config"
    assert main(["plan", "--config", str(config)]) == 0
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    row = ["tok_emb", "as in the checkpoint × 8", "fp32", "fp32", "unknown", "unknown", "user_query"]
    assert row in rows


def test_a_table_that_is_not_there_is_refused_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--config", str(CONFIG), "--table-dtype", "video_emb=int4"]) == 1
    told = capsys.readouterr().err
    assert (
        "[invalid_spec]: the model has no table video_emb; its tables are fans_user_num_range_emb, " in told
    )
    assert "video_id_emb" in told


def test_a_config_decides_what_the_request_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "pipeline.config"
    config.write_text(
        CONFIG.read_text().replace("export_config {", 'export_config { mixed_precision: "BF16"')
    )
    for options, precision in (([], "bf16"), (["--precision", "fp32"], "fp32")):
        spec = tmp_path / "spec.json"
        spec.write_text(json.dumps({"precision": options[1]} if options else {}))
        assert main(["plan", "--config", str(config), "--spec", str(spec), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["precision"] == precision


def test_it_says_which_towers_are_computed_by_triton(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"kernel": "triton", "target": ["sm_90", "cpu"]}))
    assert main(["plan", "--config", str(CONFIG), "--spec", str(spec)]) == 0
    told = capsys.readouterr().out
    assert "user tower: on CUDA its HSTU layers are computed by Triton kernels" in told
    assert "item tower: on CUDA" not in told


def test_a_spec_for_an_export_can_be_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = {"config": CONFIG.read_text(), "checkpoint_uri": "c", "output_uri": "o", "max_batch_size": 4}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    assert main(["plan", "--spec", str(tmp_path / "spec.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["max_batch_size"] == 4


def test_a_config_that_cannot_be_planned_names_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pipeline.config").write_text(f"modle_dir: 1\n{CONFIG.read_text()}")
    assert main(["plan", "--config", str(tmp_path / "pipeline.config")]) == 1
    assert "pipeline.config:1:1" in capsys.readouterr().err


def test_planning_is_quick_and_needs_no_torch() -> None:
    program = (
        "import sys, cli.main; code = cli.main.main(sys.argv[1:]); sys.exit(code or 'torch' in sys.modules)"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run([sys.executable, "-c", program, "plan", "--config", str(CONFIG)], check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ended.returncode == 0
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < LIMIT_S  # of the processor


def test_a_hundred_features_are_planned_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Fifty of the history, fifty of the user."""
    text = CONFIG.read_text()
    id_feature = (
        'id_feature {{ feature_name: "x{}" expression: "user:x{}" num_buckets: 9 embedding_dim: 16 }}'
    )
    event = "".join(f"features {{ {id_feature.format(i, i)} }}\n" for i in range(50))
    user = "".join(f"feature_configs {{ {id_feature.format(i, i)} }}\n" for i in range(50, 100))
    text = text.replace('sequence_name: "uih_seq"', f'sequence_name: "uih_seq"\n{event}', 1)
    text = text.replace("feature_configs", f"{user}feature_configs", 1)
    names = "".join(f'feature_names: "uih_seq__x{i}"\n' for i in range(50))
    text = text.replace(
        'feature_names: "uih_seq__video_id"', f'feature_names: "uih_seq__video_id"\n{names}', 1
    )
    names = "".join(f'feature_names: "x{i}"\n' for i in range(50, 100))
    text = text.replace('feature_names: "user_id"', f'feature_names: "user_id"\n{names}', 1)
    text = text.replace("num_position_buckets: ", "num_position_buckets: 9")
    (tmp_path / "pipeline.config").write_text(text)
    began = time.monotonic()
    assert main(["plan", "--config", str(tmp_path / "pipeline.config"), "--tower", "user", "--json"]) == 0
    assert time.monotonic() - began < LIMIT_S
    [tower] = json.loads(capsys.readouterr().out)["towers"]
    [history] = [dim for dim in tower["dims"] if dim["name"] == "seq_uih_seq"]
    assert history["reason"] == "elements of all rows, shared by 54 inputs of sequence uih_seq"


def test_a_family_of_ones_own_is_asked_for_its_plan(
    install: Install, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLIPWAY_FAMILIES", install("planned_family"))
    assert main(["plan", "--config", str(CONFIG), "--family", "planned_family", "--json"]) == 0
    plan = PlanView.model_validate_json(capsys.readouterr().out)
    assert [tensor.model_dump() for tensor in plan.towers[0].inputs] == [
        {"name": "x", "dtype": "float32", "shape": ("batch", 2)}
    ]


def test_what_an_attempt_refuses_of_a_family_its_plan_refuses(
    install: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLIPWAY_FAMILIES", install("unsharded_family"))
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"mode": "two_stage", "tables": "sharded"}))
    command = ["plan", "--config", str(CONFIG), "--family", "unsharded_family", "--spec", str(spec)]
    assert main(command) == 1
    assert "a custom family packages its tables itself, without shards" in capsys.readouterr().err


def test_a_family_that_is_not_listed_is_not_loaded(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    name = install("unlisted_family", "raise SystemExit('loaded')")
    assert main(["plan", "--config", str(CONFIG), "--family", name]) == 1
    assert "[family_not_listed]" in capsys.readouterr().err
