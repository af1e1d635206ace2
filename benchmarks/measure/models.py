"""Models to measure with: the demo model on its real rows, with any number of layers, and a ranking model.

Weights are random: a second model that differs only in its weights is a new export.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import save_file

from examples.movielens.download import download
from examples.movielens.prepare import prepare
from examples.movielens.train import CONFIG
from exporter.checkpoint.keymap import PREFIX
from exporter.config.parse import parse_pipeline_config
from exporter.models.registry import build_model
from exporter.spec import ExportSpec

_LAYERS = "attn_num_layers: 2"
_MOVIELENS = Path(".slipway/demo")  # the folder where the demo keeps the data
_RECORDED = Path(__file__).parents[2] / "tests" / "fixtures" / "torcheasyrec"


@dataclass(frozen=True, kw_only=True)
class Model:
    """A pipeline config, with rows for its towers."""

    name: str
    config: str
    rows: Path
    items: Path | None = None

    def spec(self, folder: Path, *, seed: int) -> ExportSpec:
        """Return an export with new weights; weights and artifact are written below `folder`."""
        config, checkpoint = folder / f"{self.name}.config", folder / f"{self.name}-{seed}.safetensors"
        config.write_text(self.config)
        write_weights(self.config, checkpoint, seed=seed)
        return ExportSpec(
            config_uri=config.as_uri(),
            checkpoint_uri=str(checkpoint),
            item_input_uri=str(self.items) if self.items else None,
            sample_input_uri=str(self.rows),
            output_uri=str(folder / "artifacts"),
        )


def demo_model(folder: Path, *, layers: int = 2) -> Model:
    """Return the demo's two-tower model on MovieLens-100K, which is fetched once; the demo has two layers."""
    rows = folder / "movielens"
    if not rows.exists():
        prepare(download(_MOVIELENS.absolute()), rows)
    text = CONFIG.read_text()
    assert text.count(_LAYERS) == 1
    return Model(
        name="demo" if f"attn_num_layers: {layers}" == _LAYERS else f"{layers}-layers",
        config=text.replace(_LAYERS, f"attn_num_layers: {layers}"),
        rows=rows / "train.parquet",
        items=rows / "items.parquet",
    )


def ranking_model() -> Model:
    """Return the recorded dlrm_hstu with its rows of up to 96 events and several candidates."""
    return Model(
        name="dlrm_hstu",
        config=(_RECORDED / "dlrm_hstu" / "pipeline.config").read_text(),
        rows=_RECORDED / "data" / "train.parquet",
    )


def retrieval_model() -> Model:
    """Return the recorded hstu_match with its rows and items."""
    return Model(
        name="hstu_match",
        config=(_RECORDED / "hstu_match" / "pipeline.config").read_text(),
        rows=_RECORDED / "data" / "train.parquet",
        items=_RECORDED / "data" / "items.parquet",
    )


def widen(model: Model, width: int) -> Model:
    """Return an HSTU model whose layers are `width` wide, in heads of 32 or, from 128 on, 64 each."""
    heads = width // (32 if width < 128 else 64)
    sizes = {
        "embedding_dim": width,
        "num_heads": heads,
        "hidden_dim": width // heads,
        "attention_dim": width // heads,
    }
    (layer,) = re.findall(r"\n +stu \{.*?\}", model.config, re.DOTALL)
    wide = layer
    for name, size in sizes.items():
        wide = re.sub(rf"\b{name}: \d+", f"{name}: {size}", wide)
    # The item tower's last layer is as wide as the user tower's output, where there is such a tower.
    config = re.sub(
        r"(item_tower \{.*?mlp \{.*?hidden_units: )\d+",
        rf"\g<1>{width}",
        model.config,
        count=1,
        flags=re.DOTALL,
    )
    return replace(model, name=f"{model.name}-{width}", config=config.replace(layer, wide))


def write_weights(config: str, path: Path, *, seed: int) -> None:
    """Write the weights of a newly initialised model."""
    torch.manual_seed(seed)
    weights = build_model(parse_pipeline_config(config)).state_dict()
    save_file({PREFIX + name: tensor.contiguous() for name, tensor in weights.items()}, path)
