"""wukong (Zhang et al. 2024, arXiv:2403.02545): layers of products and sums of vectors under an MLP.

B rows, N vectors, D width of each.
"""

from collections.abc import Mapping

from torch import Tensor, nn

from exporter.config.families.rank.wukong import WukongConfig
from exporter.config.schema import PipelineConfig
from exporter.models.blocks.interactions.wukong import WukongLayer
from exporter.models.blocks.mlp import Mlp
from exporter.models.blocks.tasks import task_outputs
from exporter.models.dense_and_sparse import DenseAndSparseTower
from exporter.models.ranking import make_builders


class Wukong(DenseAndSparseTower):
    """The whole model; it is served in the training view."""

    def __init__(self, pipeline: PipelineConfig) -> None:
        config = pipeline.model
        assert isinstance(config, WukongConfig)
        super().__init__(pipeline, config.inputs)
        self._task = config.task
        counts = (self.vectors, *(layer.vectors for layer in config.layers))
        self._wukong_layers = nn.ModuleList(
            WukongLayer(vectors, self.width, layer)
            for vectors, layer in zip(counts, config.layers, strict=False)
        )
        self.final_mlp = Mlp(counts[-1] * self.width, config.final)
        self.output_mlp = nn.Linear(config.final.width, config.task.num_class)

    def predict(self, groups: Mapping[str, Tensor]) -> dict[str, Tensor]:
        x_BND = self.stack(self.join(groups))
        for layer in self._wukong_layers:
            x_BND = layer(x_BND)
        numbers = self.output_mlp(self.final_mlp(x_BND.flatten(1)))
        return task_outputs((self._task,), {self._task.name: numbers})


build_served, build_trained = make_builders(Wukong)
