"""Request bodies about the recorded two-tower model."""

from pathlib import Path

FIXTURES = Path(__file__).parents[1] / "fixtures" / "torcheasyrec"
CONFIG = FIXTURES / "hstu_match" / "pipeline.config"
CHECKPOINT = str(CONFIG.parent / "model.ckpt-11")
ROWS = ("--sample-input", str(FIXTURES / "data" / "train.parquet"))
ITEMS = ("--item-input", str(FIXTURES / "data" / "items.parquet"))


def export_request(**changes: object) -> dict[str, object]:
    """An export of hstu_match; a change to None leaves the field out."""
    body: dict[str, object] = {
        "config": CONFIG.read_text(),
        "checkpoint_uri": CHECKPOINT,
        "item_input_uri": str(FIXTURES / "data" / "items.parquet"),
        "sample_input_uri": str(FIXTURES / "data" / "train.parquet"),
        "output_uri": "/out",
        **changes,
    }
    return {name: value for name, value in body.items() if value is not None}
