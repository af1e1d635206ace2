"""The dense half of a tower in TorchEasyRec's folder: what lies side by side is regrouped, then computed."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from exporter.config.schema import FeatureGroup, PipelineConfig
from exporter.dims.halves import Halves
from exporter.towers.tower import ServedModule


class DenseHalf(nn.Module):
    """Module from the tensors between the halves to the outputs; it reads no tables."""

    def __init__(self, served: ServedModule, pipeline: PipelineConfig, halves: Halves) -> None:
        super().__init__()
        self.served = served
        self._halves = halves
        self._columns = {  # group -> where the columns of its features lie
            group.name: [self._find(name, group, pipeline) for name in group.features]
            for group in pipeline.groups
            if group.kind.is_row_vector and group.features
        }

    def forward(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        row_vectors = {each.name for each in self._halves.row_vectors}
        embedded = {_group_key(name): value for name, value in tensors.items() if name not in row_vectors}
        for key, value in embedded.items():
            if key.endswith(".sequence_length"):
                embedded[key] = value.long()
        for group, columns in self._columns.items():
            parts = [tensors[name][:, first:end] for name, first, end in columns]
            embedded[group] = torch.cat(parts, dim=1)
        return self.served.compute(embedded)

    def _find(self, name: str, group: FeatureGroup, pipeline: PipelineConfig) -> tuple[str, int, int]:
        feature = pipeline.feature(name)
        table = group.table_of(feature).name if feature.is_sparse else ""
        vectors, column = self._halves.find(name, table)
        return vectors.name, column.first, column.end


def _group_key(name: str) -> str:
    """Return the embedded group's key: `uih__sequence_length` is `uih.sequence_length`."""
    group, _, part = name.rpartition("__")
    return f"{group}.{part}"
