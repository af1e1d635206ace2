"""Multi-gate mixture of experts (Ma et al., KDD 2018): its settings, and the reader of its fields."""

from dataclasses import dataclass

from exporter.config.blocks.mlp import MlpConfig, read_mlp, read_optional_mlp
from exporter.config.pb.multi_task_models_pb2 import DBMTL, DC2VR, MMoE
from exporter.config.refusals import raise_invalid


@dataclass(frozen=True, kw_only=True)
class MmoeConfig:
    """Experts over one input; every task mixes their outputs by a gate of its own."""

    expert_mlp: MlpConfig
    num_expert: int
    gate_mlp: MlpConfig | None = None


def read_mmoe(model: MMoE | DBMTL | DC2VR, where: str) -> MmoeConfig:
    """Read the experts of a model; `where` is the model's place in the config, for errors.

    Raises:
        InvalidPipelineConfig: there are no experts, or an MLP without layers.
        UnsupportedConfig: an unknown activation.
    """
    if model.num_expert == 0:
        raise_invalid(where, "expert_mlp is set and num_expert is 0", hint="set num_expert above 0")
    return MmoeConfig(
        expert_mlp=read_mlp(model.expert_mlp, f"{where}.expert_mlp"),
        num_expert=model.num_expert,
        gate_mlp=read_optional_mlp(model.gate_mlp, f"{where}.gate_mlp", is_set=model.HasField("gate_mlp")),
    )
