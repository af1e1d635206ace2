"""Write the inputs of an export, with untrained weights: `python untrained.py FOLDER`."""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from failing_family.model import CLICKS, NUMBERS, LastClicksTower
from safetensors.torch import save_file

ROWS = 128


def main(folder: Path) -> None:
    """Write config.json, model.safetensors and rows.parquet."""
    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    model = LastClicksTower().train()
    clicks = torch.randn(ROWS, CLICKS, NUMBERS) * 3 + 1
    model({"clicks": clicks})  # the running statistics of the norm
    (folder / "config.json").write_text("{}")
    save_file(model.state_dict(), folder / "model.safetensors")
    pq.write_table(pa.table({"clicks": clicks.flatten(1).tolist()}), folder / "rows.parquet")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
