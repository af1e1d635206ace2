"""rocket_launching (Zhou et al. 2018, arXiv:1708.04106): a light net, served without its booster."""

from dataclasses import dataclass

from exporter.config.blocks.first_group import FirstGroupConfig, check_input, read_first_group
from exporter.config.blocks.mlp import MlpConfig, read_mlp, read_optional_mlp
from exporter.config.blocks.tasks import Loss, TaskConfig, read_task
from exporter.config.families.family_spec import FamilySpec
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.refusals import raise_invalid

WHERE = "model_config.rocket_launching"


@dataclass(frozen=True, kw_only=True)
class RocketLaunchingConfig(FirstGroupConfig):
    """rocket_launching: layers that both nets share, the light net, and the booster."""

    share_mlp: MlpConfig | None
    light_mlp: MlpConfig
    booster_mlp: MlpConfig
    task: TaskConfig  # named after the light net, as its outputs are
    family: str = "rocket_launching"


def read_rocket_launching(message: ModelConfig) -> RocketLaunchingConfig:
    """Read the rocket_launching model of a whole `model_config`.

    Raises:
        UnsupportedConfig: a loss that ranking models do not have, or an unknown activation.
        InvalidPipelineConfig: a loss without logits, or fields that contradict each other.
    """
    model = message.rocket_launching
    task = read_task(message.losses, message.num_class, "model_config", name="light")
    if set(task.losses) == {Loss.L2}:
        raise_invalid(
            "model_config.losses",
            "l2_loss alone gives no logits, which the light net learns from the booster",
            hint="use the loss it was trained with",
        )
    return RocketLaunchingConfig(
        input=read_first_group(message, WHERE),
        share_mlp=read_optional_mlp(
            model.share_mlp, f"{WHERE}.share_mlp", is_set=model.HasField("share_mlp")
        ),
        light_mlp=read_mlp(model.light_mlp, f"{WHERE}.light_mlp"),
        booster_mlp=read_mlp(model.booster_mlp, f"{WHERE}.booster_mlp"),
        task=task,
    )


FAMILY = FamilySpec(message="rocket_launching", kind="rank", read=read_rocket_launching, check=check_input)
