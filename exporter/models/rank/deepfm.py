"""deepfm (Guo et al. 2017, arXiv:1703.04247): wide_and_deep with a factorization machine beside the two.

B rows, N features, D width of each.
"""

from collections.abc import Mapping

from torch import Tensor

from exporter.config.families.rank.deepfm import DeepFmConfig
from exporter.config.features.widths import feature_widths
from exporter.config.schema import PipelineConfig
from exporter.models.blocks.interactions.fm import FactorizationMachine
from exporter.models.rank.wide_and_deep import WideAndDeep
from exporter.models.ranking import make_builders


class DeepFm(WideAndDeep):
    """Sum of the three parts, as in the paper's equation 1, or an MLP over all of them.

    Unlike the paper's, TorchEasyRec's factorization machine may read other features than the deep MLP; its
    first-order weights are the wide part.
    """

    def __init__(self, pipeline: PipelineConfig) -> None:
        config = pipeline.model
        assert isinstance(config, DeepFmConfig)
        features = {feature.name: feature for feature in pipeline.features}
        self._width = feature_widths(pipeline.group(config.fm), features)[0]
        super().__init__(pipeline, wide_width=1 + self._width)
        self._group = config.fm
        self.fm = FactorizationMachine()

    def wide_parts(self, groups: Mapping[str, Tensor]) -> list[Tensor]:
        features_BND = groups[self._group].unflatten(1, (-1, self._width))
        return [*super().wide_parts(groups), self.fm(features_BND)]


build_served, build_trained = make_builders(DeepFm)
