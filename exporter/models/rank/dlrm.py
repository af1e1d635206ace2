"""dlrm (Naumov et al. 2019, arXiv:1906.00091): dot products of pairs of features under an MLP.

B rows, N vectors, D width of each, P pairs.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from exporter.config.families.rank.dlrm import DlrmConfig
from exporter.config.schema import PipelineConfig
from exporter.models.blocks.interactions.dot import DotInteraction
from exporter.models.blocks.mlp import Mlp
from exporter.models.blocks.tasks import task_outputs
from exporter.models.dense_and_sparse import DenseAndSparseTower
from exporter.models.ranking import make_builders


class Dlrm(DenseAndSparseTower):
    """The whole model; it is served in the training view.

    The MLP reads the pairs' products and the dense vector, as in the paper, and in TorchEasyRec the sparse
    features too unless arch_with_sparse is false.
    """

    def __init__(self, pipeline: PipelineConfig) -> None:
        config = pipeline.model
        assert isinstance(config, DlrmConfig)
        super().__init__(pipeline, config.inputs)
        self._task = config.task
        self._appends_sparse = config.appends_sparse
        self.interaction = DotInteraction()
        pairs = self.vectors * (self.vectors - 1) // 2
        passed_on = self.vectors if config.appends_sparse else int(self.dense_mlp is not None)
        self.final_mlp = Mlp(pairs + passed_on * self.width, config.final)
        self.output_mlp = nn.Linear(config.final.width, config.task.num_class)

    def predict(self, groups: Mapping[str, Tensor]) -> dict[str, Tensor]:
        joined = self.join(groups)
        products = self.interaction(self.stack(joined))
        passed_on = joined if self._appends_sparse else joined[:-1]
        numbers = self.output_mlp(self.final_mlp(torch.cat([products, *passed_on], dim=1)))
        return task_outputs((self._task,), {self._task.name: numbers})


build_served, build_trained = make_builders(Dlrm)
