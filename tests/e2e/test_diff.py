"""`slipway diff` on published packages whose weights, configs or manifests were changed."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from cli.main import main
from exporter.aoti.load import read_contents
from exporter.reports.comparison import Comparison
from tests.e2e.conftest import Export
from tests.exporter.comparison.altered import add_to_rows, altered_copy, read, write

ROWS = [3, 5, 900]
TABLE = "video_id_emb.weight"


@pytest.fixture(scope="module")
def artifact(artifact_of: Export) -> Path:
    return Path(artifact_of("dlrm_hstu"))


@pytest.fixture(scope="module")
def altered(artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("altered") / "new"
    return altered_copy(artifact, folder, add_to_rows(TABLE, ROWS, 0.5), job_id="new")


def diff(*words: object) -> Comparison:
    """What the command writes as JSON; calls are not timed."""
    *_, folder = words
    output = Path(str(folder)) / "diff.json"
    arguments = ["diff", *map(str, words[:-1]), "--json", str(output), "--latency-seconds", "0"]
    assert main(arguments) == 0
    return Comparison.model_validate_json(output.read_bytes())


def test_three_rows_of_a_table_are_all_that_differs(
    artifact: Path, altered: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    html = tmp_path / "diff.html"
    words = [str(artifact), str(altered), "--html", str(html), "--json", str(tmp_path / "diff.json")]
    assert main(["diff", *words, "--latency-seconds", "0.2", "--exit-code"]) == 1
    comparison = Comparison.model_validate_json((tmp_path / "diff.json").read_bytes())
    [tower] = comparison.towers
    assert (comparison.same, comparison.config.total, tower.interface.total) == (False, 0, 0)
    assert tower.code is not None and tower.code.same
    assert (tower.tables_changed, tower.weights.changed) == (1, 0)
    table = tower.tables[0]
    assert (table.name, table.rows_changed, table.rows_compared) == ("video_id_emb", 3, 2000)
    assert {row.row for row in table.most_changed} == {*ROWS}
    old, new = (read_contents(each / tower.name / "aoti" / "aoti_model.pt2") for each in (artifact, altered))
    [name] = [name for name in old.weights if name.endswith(TABLE)]
    a, b = (np.asarray(side.weights[name], dtype=np.float64) for side in (old, new))
    norms = [np.linalg.norm(side, axis=1) for side in (a, b)]
    assert table.mean_cosine == pytest.approx(((a * b).sum(axis=1) / (norms[0] * norms[1])).mean())
    assert table.largest_norm_change == pytest.approx(np.abs(norms[1] - norms[0]).max())
    assert tower.outputs is not None and tower.outputs.rows > 100
    moved = {each.name for each in tower.outputs.outputs if each.rows_changed}
    assert "probs_is_click" in moved and "__TARGET_REPEAT_INTERLEAVE_KEY__" not in moved
    assert tower.latency is not None
    assert [each.batch for each in tower.latency.ratios] == [1, 64]
    assert all(each.low <= each.ratio <= each.high for each in tower.latency.ratios)
    assert "<svg" in html.read_text() and "://" not in html.read_text().replace("file://", "")
    assert "3 of 2,542 rows" in capsys.readouterr().out


def test_an_artifact_does_not_differ_from_itself(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", str(artifact), f"{artifact}/manifest.json", "--exit-code"]) == 0
    assert "no differences in what is served" in capsys.readouterr().out


def test_json_goes_to_the_standard_output_alone(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", str(artifact), str(artifact), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["same"] is True


def test_the_lookups_of_two_stages_are_compared_too(two_stage_of: Export, tmp_path: Path) -> None:
    artifact = Path(two_stage_of("hstu_match"))
    changed = altered_copy(artifact, tmp_path / "new", add_to_rows(TABLE, [7], 0.5))
    [item] = diff(artifact, changed, "--tower", "item", tmp_path).towers
    assert [(table.name, table.rows_changed) for table in item.tables] == [("video_id_emb", 1)]
    assert item.outputs is not None
    assert [each.rows_changed for each in item.outputs.outputs] == [1]
    assert item.code is not None and item.code.same


def test_packages_for_another_machine_are_compared_without_being_run(
    artifact: Path, altered: Path, tmp_path: Path
) -> None:
    elsewhere = shutil.copytree(altered, tmp_path / "new")
    write(elsewhere, read(elsewhere).model_copy(update={"architecture": "riscv64"}))
    comparison = diff(artifact, elsewhere, tmp_path)
    [tower] = comparison.towers
    assert tower.tables[0].rows_changed == 3
    assert tower.outputs is not None and "this machine lacks riscv64" in tower.outputs.note
    assert tower.latency is not None and tower.latency.note == tower.outputs.note
    assert "architecture" in {change.place for change in comparison.artifact.listed}


def test_rows_that_are_gone_leave_the_outputs_out_and_rows_asked_for_are_an_error(
    artifact: Path, altered: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = shutil.copytree(altered, tmp_path / "new")
    manifest = read(moved)
    sources = tuple(each.model_copy(update={"uri": "/nowhere/rows"}) for each in manifest.sources)
    write(moved, manifest.model_copy(update={"sources": sources}))
    [tower] = diff(artifact, moved, tmp_path).towers
    assert tower.outputs is not None
    assert tower.outputs.note.startswith("[source_not_found] /nowhere/rows names no parquet file")
    assert main(["diff", str(artifact), str(moved), "--rows", "/not/there"]) == 1
    assert "error [source_not_found]: /not/there names no parquet file" in capsys.readouterr().err


@pytest.mark.parametrize("named", ["aoti/aoti_model.pt2", "pipeline.config"])
def test_a_damaged_artifact_is_one_error_that_names_the_file(
    artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], named: str
) -> None:
    damaged = shutil.copytree(artifact, tmp_path / "new")
    file = damaged / "model" / named
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert main(["diff", str(artifact), str(damaged)]) == 1
    error = capsys.readouterr().err
    assert f"error [invalid_artifact]: {damaged}/model/{named} is damaged" in error.replace("file://", "")


def test_a_package_that_is_none_is_named_where_it_lies(
    artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = shutil.copytree(artifact, tmp_path / "new")
    (hostile / "model" / "aoti" / "aoti_model.pt2").write_bytes(b"no package")
    write(hostile, read(hostile))
    assert main(["diff", str(artifact), str(hostile)]) == 1
    error = capsys.readouterr().err
    assert f"error [invalid_artifact]: {hostile}/model/aoti/aoti_model.pt2 is not a package" in error


def test_a_tower_that_neither_has_is_refused(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", str(artifact), str(artifact), "--tower", "item"]) == 1
    assert "error [invalid_spec]: neither release has the item tower" in capsys.readouterr().err


def test_a_setting_of_a_stranger_is_text_on_the_page(artifact: Path, altered: Path, tmp_path: Path) -> None:
    hostile = shutil.copytree(altered, tmp_path / "new")
    config = hostile / "model" / "pipeline.config"
    script = "<script>alert(1)</script>"
    config.write_text(config.read_text().replace("user:user_id", f"user:{script}", 1))
    write(hostile, read(hostile))
    html = tmp_path / "diff.html"
    assert main(["diff", str(artifact), str(hostile), "--html", str(html), "--latency-seconds", "0"]) == 0
    assert script not in html.read_text() and "&lt;script&gt;alert(1)" in html.read_text()


def test_weights_that_moved_are_ranked_by_how_far(artifact: Path, tmp_path: Path) -> None:
    def edit(weights: dict[str, torch.Tensor]) -> None:
        weights["_item_embedding_mlp.0.bias"] += 10
        weights["_item_embedding_mlp.2.bias"] *= 1.001

    changed = altered_copy(artifact, tmp_path / "new", edit)
    [tower] = diff(artifact, changed, tmp_path).towers
    assert (tower.weights.changed, tower.tables_changed) == (2, 0)
    assert [each.name for each in tower.weights.listed] == [
        "_item_embedding_mlp.0.bias",
        "_item_embedding_mlp.2.bias",
    ]
    assert tower.weights.listed[1].relative == pytest.approx(0.001, rel=0.01)
