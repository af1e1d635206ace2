"""pepnet: what its message says, and what its groups decide."""

import pytest

from exporter.config.blocks.mlp import MlpConfig
from exporter.config.families.multi_task.pepnet import EpnetConfig, PepnetConfig, PpnetConfig
from exporter.errors import InvalidPipelineConfig, UnsupportedConfig
from exporter.spec import TowerName
from tests.exporter.config.families.edited import parse_recorded

_DROPOUT = "ppnet_dropout_ratio: 0.1"
_UNITS = "ppnet_hidden_units: 16\n    ppnet_hidden_units: 8"


def parse(*edits: tuple[str, str]) -> PepnetConfig:
    model = parse_recorded("pepnet", *edits)
    assert isinstance(model, PepnetConfig)
    return model


def names(model: PepnetConfig) -> list[list[str]]:
    return [[tower.task.name for tower in towers] for towers in model.task_towers]


def test_every_field_is_read() -> None:
    model = parse()
    assert model.epnet == EpnetConfig(gamma=1.5, hidden_unit=16)
    layers = MlpConfig(hidden_units=(16, 8), activation="nn.SiLU")
    assert model.ppnet == PpnetConfig(gamma=2.5, layers=layers)
    assert model.domains is None
    assert names(model) == [["ctr"], ["stay"]]


def test_what_the_config_leaves_out_has_defaults() -> None:
    model = parse(("epnet_hidden_unit: 16\n    epnet_gamma: 1.5", ""), ("ppnet_gamma: 2.5", ""))
    assert model.epnet == EpnetConfig(gamma=2.0, hidden_unit=None)
    assert model.ppnet is not None
    assert model.ppnet.gamma == 2.0


def test_groups_decide_which_parts_there_are() -> None:
    model = parse(
        ('group_name: "domain"', 'group_name: "other"'), ('group_name: "uia"', 'group_name: "more"')
    )
    assert (model.epnet, model.ppnet) == (None, None)
    assert not model.reads(TowerName.MODEL, "other")
    assert all(parse().reads(TowerName.MODEL, group) for group in ("all", "domain", "uia"))


def test_domains_have_towers_of_their_own() -> None:
    model = parse((_DROPOUT, 'domain_input_name: "domain" task_domain_num: 3'))
    assert names(model) == [["ctr_0", "ctr_1", "ctr_2"], ["stay_0", "stay_1", "stay_2"]]


@pytest.mark.parametrize("without", ["task_domain_num: 3", 'domain_input_name: "" task_domain_num: 3'])
def test_without_a_name_of_domains_a_task_has_one_tower(without: str) -> None:
    assert names(parse((_DROPOUT, without))) == [["ctr"], ["stay"]]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('group_name: "all"', 'group_name: "everything"', "needs feature group all, for the features"),
        ('"user_level"\n    group_type: DEEP', '"user_level"\n    group_type: SEQUENCE', "EPNet needs DEEP"),
        ('"user_age"\n    group_type: DEEP', '"user_age"\n    group_type: SEQUENCE', "PPNet needs DEEP"),
        (_UNITS, "", "a group uia, and no ppnet_hidden_units"),
        (_UNITS, "ppnet_hidden_units: 0", "hidden_units are empty or hold a 0"),
        ("epnet_hidden_unit: 16", "epnet_hidden_unit: 0", "epnet_hidden_unit is 0"),
        ('"nn.SiLU"', '""', "ppnet_activation is empty"),
        (_DROPOUT, f"{_DROPOUT} {_DROPOUT} {_DROPOUT}", "has 3 values for 2 ppnet_hidden_units"),
        (_DROPOUT, 'domain_input_name: "domain" task_domain_num: 0', "task_domain_num is 0"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(old: str, new: str, problem: str) -> None:
    with pytest.raises(InvalidPipelineConfig, match=problem):
        parse((old, new))


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(UnsupportedConfig, match="ppnet_hidden_units: activation 'SiLU' is not known"):
        parse(('"nn.SiLU"', '"SiLU"'))
