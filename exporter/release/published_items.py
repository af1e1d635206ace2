"""Vectors of all items of a release: as published, or computed by its item package."""

from itertools import chain
from pathlib import Path

import pyarrow as pa

from exporter.artifact.read import fetch_files
from exporter.data.encode import encode_in_calls
from exporter.data.parquet import open_parquet
from exporter.items.ids import ids_of
from exporter.items.vector_files import VectorsWriter
from exporter.manifest import Metric, VectorsEntry
from exporter.options.index_spec import FlatIndex
from exporter.release.releases import JudgedRelease, Side
from exporter.release.scoring import TowerRunner
from exporter.release.search import PublishedItems
from exporter.serving.downloaded_tower import DownloadedTower
from exporter.spec import TowerName
from exporter.storage.open import open_store

_ROWS_READ = 512


def open_items(judged: JudgedRelease, side: Side) -> PublishedItems:
    """Return the items of a release on disk, with the index that a server would search.

    Raises:
        InvalidArtifact: a file of the vectors is missing or damaged.
        InvalidRows: an item's row cannot be encoded, or has no id.
    """
    tower = side.towers[TowerName.ITEM]
    if tower.entry.vectors is None:
        return _compute(judged, tower, side.folder / "vectors")
    folder = side.folder / "vectors"
    fetch_files(open_store(side.uris[TowerName.ITEM]), tower.entry.vectors.all_files, folder)
    return _find_published(tower.entry.vectors, folder)


def _find_published(vectors: VectorsEntry, folder: Path) -> PublishedItems:
    index = vectors.index
    return PublishedItems(
        parts=tuple(folder / file.path for file in vectors.files),
        id_column=vectors.id_column,
        index=None if index is None else folder / index.file.path,
        labels_are_ids=index is not None and index.labels == "item_ids",
        metric=Metric.INNER_PRODUCT if index is None else index.metric,
        exact=index is None or isinstance(index.parameters, FlatIndex),
    )


def _compute(judged: JudgedRelease, tower: DownloadedTower, folder: Path) -> PublishedItems:
    """Run the item package over all items, as an export would that materialises them."""
    assert judged.item_input_uri is not None, "asked to compute vectors of items that there are"
    folder.mkdir(parents=True)
    column = judged.id_column
    names = [column, *(feature.name for feature in tower.features)]
    size = min(_ROWS_READ, tower.manifest.max_batch_size)
    output = next(output for output in tower.entry.outputs if len(output.shape) == 2)
    batches = open_parquet(judged.item_input_uri).batches(names, rows_per_batch=size)
    first = next(batches)
    kind, width = ids_of(first, column).type, output.shape[1]
    assert isinstance(width, int)
    with (
        TowerRunner(tower, judged.scratch, judged.item_input_uri, judged.server) as runner,
        VectorsWriter(folder, column, kind, width=width) as writer,
    ):
        for batch in chain([first], batches):
            calls = encode_in_calls(
                batch.table, tower.features, tower.plan, where=batch.where, first_row=batch.first_row
            )
            ids: pa.Array = ids_of(batch, column)
            writer.write(ids, runner.submit(tuple(calls)).result()[output.name])
    return PublishedItems(
        parts=tuple(writer.parts),
        id_column=column,
        index=None,
        labels_are_ids=False,
        metric=Metric.INNER_PRODUCT,
        exact=True,
    )
