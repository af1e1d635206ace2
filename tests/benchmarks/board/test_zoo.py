from pathlib import Path

import pytest

from benchmarks.board.zoo import Wanted, Zoo, cases, read_zoo, require_models, spec_of
from exporter.config.families.registry import SUPPORTED
from exporter.config.parse import parse_pipeline_config
from exporter.errors import InvalidSpec
from exporter.spec import Mode

ZOO = Path(__file__).parents[3] / "tests" / "board" / "zoo.json"


@pytest.fixture(scope="module")
def zoo() -> Zoo:
    return read_zoo(ZOO)


def test_the_zoo_has_a_model_of_every_family_or_says_why_not(zoo: Zoo) -> None:
    configs = [(ZOO.parent / model.config).read_text() for model in zoo.models]
    families = {parse_pipeline_config(config).model.family for config in configs}
    assert families | set(zoo.left_out) == set(SUPPORTED)


def test_nothing_is_left_out_without_a_reason(zoo: Zoo) -> None:
    tried = {case for case, reason in cases(zoo, reduced=False) if not reason}
    assert {(model.name, mode, "fp32") for model in zoo.models for mode in Mode} <= tried
    assert {(case.model, case.mode) for case in tried if case.precision == "bf16"} == {
        (model.name, mode) for model in zoo.models if model.low_precision for mode in Mode
    }


def test_reduced_one_model_of_each_family_runs_once(zoo: Zoo) -> None:
    tried = [case for case, reason in cases(zoo, reduced=True) if not reason]
    configs = [ZOO.parent / model.config for model in zoo.models if not model.extra]
    families = [parse_pipeline_config(config.read_text()).model.family for config in configs]
    assert sorted(families) == sorted(set(SUPPORTED) - set(zoo.left_out))
    assert [case.model for case in tried] == [model.name for model in zoo.models if not model.extra]
    assert {case.mode for case in tried} == set(Mode)


def test_only_the_cases_that_are_asked_for_run(zoo: Zoo) -> None:
    wanted = Wanted(models=["dssm", "dat"], precisions=["fp32"])
    tried = [case for case, reason in cases(zoo, reduced=False, wanted=wanted) if not reason]
    assert {case.model for case in tried} == {"dssm", "dat"}
    assert {(case.mode, case.precision) for case in tried} == {(mode, "fp32") for mode in Mode}
    with pytest.raises(InvalidSpec, match="the zoo has no model dsmm"):
        require_models(zoo, ["dsmm"])


def test_a_low_precision_is_a_pass_of_each_tower(zoo: Zoo) -> None:
    by_name = {model.name: model for model in zoo.models}
    case = next(case for case, _ in cases(zoo, reduced=False) if case.precision == "bf16")
    spec = spec_of(by_name[case.model], case, ZOO.parent, Path("out"))
    assert {(each.tower, each.submodule) for each in spec.passes} == set(
        by_name[case.model].low_precision.items()
    )


def test_a_precision_left_out_without_a_reason_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "zoo.json"
    file.write_text('{"models": [{"name": "a", "config": "c", "checkpoint": "k", "rows": "r"}]}')
    with pytest.raises(InvalidSpec, match="a names no submodule for a lower precision"):
        read_zoo(file)
