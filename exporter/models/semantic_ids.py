"""Tower of the models of semantic ids: a vector per row, quantised by codebooks.

B rows, D width.
"""

from abc import abstractmethod
from collections.abc import Mapping

from torch import Tensor

from exporter.config.blocks.residual_quantizer import SidConfig
from exporter.config.schema import PipelineConfig
from exporter.models.blocks.residual_quantizer import Codebook, ResidualQuantizer
from exporter.models.blocks.semantic_ties import settle_ties
from exporter.models.embedded_tower import EmbeddedTower


class SidTower(EmbeddedTower):
    """The whole model, from input tensors to the codes of each row; a family adds `encode`.

    A variational dropout is not part of these models, whatever the config says.
    """

    def __init__(self, pipeline: PipelineConfig, codebook: type[Codebook], width: int) -> None:
        """Take the kind of the codebooks, and the width of the vectors that they quantise."""
        super().__init__(pipeline)
        config = pipeline.model
        assert isinstance(config, SidConfig)
        self._input = config.input
        self._quantizer = ResidualQuantizer(
            config.quantizer, [codebook(rows, width) for rows in config.quantizer.codebooks]
        )

    def compute(self, embedded: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self._quantizer(self._vectors(embedded))

    def settle_ties(
        self,
        inputs: Mapping[str, Tensor],
        expected: Mapping[str, Tensor],
        actual: Mapping[str, Tensor],
        error: float,
    ) -> dict[str, Tensor]:
        vectors_BD = self._vectors(self.lookup(inputs))
        theirs, ours = (
            {name: value.to(vectors_BD.device) for name, value in outputs.items()}
            for outputs in (actual, expected)
        )
        settled = settle_ties(self._quantizer, vectors_BD, ours, theirs, error)
        return {name: value.cpu() for name, value in settled.items()}

    @abstractmethod
    def encode(self, group_BD: Tensor) -> Tensor:
        """Return the vectors to quantise, from those of the group: (B, D)."""

    def _vectors(self, embedded: Mapping[str, Tensor]) -> Tensor:
        return self.encode(self.embedding_group.encode(embedded)[self._input])
