"""Generate rows, train on them for a moment, and write the inputs of an export: `python train.py FOLDER`."""

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from own_family.model import DENSE, TABLE_ROWS, DeepFmTower
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import binary_cross_entropy

SIZES = {"dim": 8, "hidden": 16}
ROWS, STEPS, MOST_GENRES = 256, 8, 4


def main(folder: Path) -> None:
    """Write config.json, model.safetensors, rows.parquet, and the model's outputs for them, eager.parquet."""
    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    inputs = random_inputs()
    liked = (inputs["dense"][:, 0] + torch.randn(ROWS) > 0).float()
    model = DeepFmTower(**SIZES)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(STEPS):
        loss = binary_cross_entropy(model(inputs)["probability"], liked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.3f}")
    (folder / "config.json").write_text(json.dumps(SIZES))
    save_file(model.state_dict(), folder / "model.safetensors")
    pq.write_table(table_of(inputs), folder / "rows.parquet")
    with torch.no_grad():
        answers = {name: output.numpy() for name, output in model(inputs).items()}
    pq.write_table(pa.table(answers), folder / "eager.parquet")


def random_inputs() -> dict[str, Tensor]:
    """Return a batch of the tower's inputs; some rows have no genre."""
    lengths = torch.randint(0, MOST_GENRES + 1, (ROWS,))
    return {
        "user_id": torch.randint(0, TABLE_ROWS["user_id"], (ROWS,)),
        "movie_id": torch.randint(0, TABLE_ROWS["movie_id"], (ROWS,)),
        "genre.values": torch.randint(0, TABLE_ROWS["genre"], (int(lengths.sum()),)),
        "genre.lengths": lengths,
        "dense": torch.randn(ROWS, DENSE),
    }


def table_of(inputs: dict[str, Tensor]) -> pa.Table:
    """Return the same rows as a data warehouse holds them: one column per input, lists for genres."""
    genres = inputs["genre.values"].split(inputs["genre.lengths"].tolist())
    return pa.table(
        {
            "user_id": inputs["user_id"].numpy(),
            "movie_id": inputs["movie_id"].numpy(),
            "genres": pa.array([each.tolist() for each in genres], pa.list_(pa.int64())),
            "dense": inputs["dense"].tolist(),
        }
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
