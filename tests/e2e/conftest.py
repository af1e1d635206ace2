"""The recorded models, exported once per run of the tests with the command that users type."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from cli.main import main
from exporter.config.parse import parse_pipeline_config
from exporter.models.registry import build_model
from exporter.spec import ExportSpec, TowerName
from tests.shared import fill_once

FIXTURES = Path(__file__).parents[1] / "fixtures" / "torcheasyrec"
TWO_TOWER = ("hstu_match", "hstu_match_desc")
RANKING = ("dlrm_hstu", "dlrm_hstu_trunc")
SAMPLES = dict.fromkeys((*TWO_TOWER, *RANKING), "train.parquet") | {"hstu_match_desc": "train_desc.parquet"}


def marks_of(model: str) -> tuple[pytest.MarkDecorator, ...]:
    """The second model of a family is exported by `make families`."""
    return (pytest.mark.families,) if model in (TWO_TOWER[1], RANKING[1]) else ()


Export = Callable[[str], str]


def export_command(model: str, output: Path) -> list[str]:
    """`slipway export` of a recorded model."""
    return [
        "export",
        *("--config", str(FIXTURES / model / "pipeline.config")),
        *("--checkpoint", str(FIXTURES / model / "model.ckpt-11")),
        *("--item-input", str(FIXTURES / "data" / "items.parquet")),
        *("--sample-input", str(FIXTURES / "data" / SAMPLES[model])),
        *("--output", str(output)),
    ]


@pytest.fixture(scope="session")
def artifact_of(run_folder: Path) -> Export:
    """The artifact of a recorded model, by name; exported when the first test of the run asks for it."""
    return lambda model: export_once(run_folder, model)


@pytest.fixture(scope="session")
def two_stage_of(run_folder: Path) -> Export:
    """The artifact of a recorded model, by name, exported in two stages."""
    return lambda model: export_once(run_folder, model, "--mode", "two_stage")


def export_once(run_folder: Path, model: str, *options: str) -> str:
    def export(output: Path) -> None:
        assert main([*export_command(model, output), *options]) == 0

    output = fill_once(run_folder, "-".join((model, *options)), export)
    [artifact] = output.iterdir()
    return str(artifact)


def new_weights(model: str, folder: Path) -> Path:
    """A checkpoint of a recorded model's architecture, with weights as before training."""
    torch.manual_seed(5)
    config = parse_pipeline_config((FIXTURES / model / "pipeline.config").read_text())
    weights = build_model(config).state_dict()
    save_file(
        {f"model.{name}": value.contiguous() for name, value in weights.items()}, folder / "w.safetensors"
    )
    return folder / "w.safetensors"


def sharded_spec(output: Path, *, nodes: int | None = None) -> ExportSpec:
    """The smaller tower of a recorded model, its tables by two ranks."""
    return ExportSpec(
        config=(FIXTURES / "hstu_match" / "pipeline.config").read_text(),
        checkpoint_uri=str(FIXTURES / "hstu_match" / "model.ckpt-11"),
        item_input_uri=str(FIXTURES / "data" / "items.parquet"),
        output_uri=str(output),
        towers=(TowerName.ITEM,),
        mode="two_stage",
        tables="sharded",
        ranks=2,
        nodes=nodes,
        max_batch_size=16,
    )


def flat(values: object) -> Iterator[float]:
    """The numbers of a column's lists, in order."""
    if isinstance(values, list):
        for value in values:
            yield from flat(value)
    else:
        assert isinstance(values, int | float)
        yield values
