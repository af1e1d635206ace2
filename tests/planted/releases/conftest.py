"""A ranking and a retrieval model, trained and exported once; their releases are assembled from these."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.measure.small_world import (
    RETRIEVER,
    State,
    World,
    ranker,
    train,
    write_checkpoint,
    write_rows,
)
from cli.main import main
from tests.planted.releases.variants import Exported, judge, publish

TRAINED_ROWS, DAILY_ROWS, HELD_OUT = 1_200_000, 60_000, 60_000
TRAINED_CHOICES, DAILY_CHOICES, HELD_OUT_CHOICES = 150_000, 10_000, 20_000


@dataclass(frozen=True, kw_only=True)
class Trade:
    """A model with its world: it can be trained on for a day, and be judged on the next one's rows."""

    world: World
    exported: Exported
    folder: Path
    is_ranker: bool

    def train_on(self, state: State, day: int) -> State:
        """Return the weights after one more day's rows."""
        draw = self.world.impressions if self.is_ranker else self.world.choices
        rows = draw(DAILY_ROWS if self.is_ranker else DAILY_CHOICES, seed=100 + day)
        return train(self.exported.config, rows, seed=day, begin=state)

    def held_out(self, day: int) -> str:
        """Return the URI of a day's held-out rows."""
        path = self.folder / f"held-out-{day}.parquet"
        if not path.exists():
            draw = self.world.impressions if self.is_ranker else self.world.choices
            write_rows(draw(HELD_OUT if self.is_ranker else HELD_OUT_CHOICES, seed=1000 + day), path)
        return str(path)

    def baseline(self) -> Path:
        """Return a judged release, with the statistics of its day's rows beside it."""
        into = self.folder / "baseline"
        if not into.exists():
            publish(self.exported, into, self.exported.state)
            report = judge(into, None, self.held_out(0), self.exported, self.folder)
            assert report.blessed, report
        return into


@pytest.fixture(scope="session")
def ranking(tmp_path_factory: pytest.TempPathFactory) -> Trade:
    """Return the ranking model, trained and exported."""
    return _open(tmp_path_factory.mktemp("ranking"), is_ranker=True)


@pytest.fixture(scope="session")
def retrieval(tmp_path_factory: pytest.TempPathFactory) -> Trade:
    """Return the retrieval model, trained and exported with its items and their index."""
    return _open(tmp_path_factory.mktemp("retrieval"), is_ranker=False)


def _open(folder: Path, *, is_ranker: bool) -> Trade:
    world = World.make()
    config = ranker() if is_ranker else RETRIEVER
    rows = world.impressions(TRAINED_ROWS, seed=1) if is_ranker else world.choices(TRAINED_CHOICES, seed=1)
    state = train(config, rows, seed=0)
    exported = Exported(artifact=export_model(world, config, state, folder), state=state, config=config)
    return Trade(world=world, exported=exported, folder=folder, is_ranker=is_ranker)


def export_model(world: World, config: str, state: State, folder: Path) -> Path:
    """Export a model as a user does; return its artifact."""
    (folder / "pipeline.config").write_text(config)
    command = ["export", "--config", str(folder / "pipeline.config"), "--output", str(folder / "exported")]
    command += ["--checkpoint", write_checkpoint(state, folder / "model.safetensors")]
    command += ["--sample-input", write_rows(world.impressions(2000, seed=2), folder / "sample.parquet")]
    if config == RETRIEVER:
        command += ["--item-input", write_rows(world.items(), folder / "items.parquet")]
        command += ["--materialise-items", "--item-index", "flat"]
    assert main(command) == 0
    [artifact] = (folder / "exported").iterdir()
    return artifact
