"""Configs of a folder are counted by what their plans say."""

from pathlib import Path

import pytest

from benchmarks.board.accepted import ask, main

FIXTURES = Path(__file__).parents[1] / "fixtures" / "torcheasyrec"


def test_refusals_are_counted_by_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = (FIXTURES / "dssm" / "pipeline.config").read_text()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "good.config").write_text(good)
    for name in ("one", "two"):
        (tmp_path / f"{name}.config").write_text("\n" + good.replace("batch_size:", "batch_sise:"))
    assert main([str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "1 of 3 accepted" in told
    assert '│ 2       │ Message type "DataConfig" has no field named "batch_sise"' in told
    assert "│ a/good.config │ dssm" in told


def test_a_folder_without_configs_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 1
    assert "no *.config" in capsys.readouterr().err


def test_a_refusal_keeps_its_code_and_line(tmp_path: Path) -> None:
    config = tmp_path / "x.config"
    config.write_text("model_config {\n  simple_multi_task {}\n}")
    answer = ask(config)
    assert answer.code in {"unsupported_config", "invalid_pipeline_config"}
    assert "x.config:" in answer.refusal
