"""ultra_hstu: dlrm_hstu with several transducers, each over a history of its own."""

from dataclasses import dataclass

from exporter.config.families.family_spec import FamilySpec
from exporter.config.families.multi_task.dlrm_hstu import (
    DlrmHstuConfig,
    check_dlrm_hstu,
    read_transducers,
)
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.refusals import raise_invalid

WHERE = "model_config.ultra_hstu"


@dataclass(frozen=True, kw_only=True)
class UltraHstuConfig(DlrmHstuConfig):
    """ultra_hstu: the vectors of several transducers, one after another, are a candidate's."""

    family: str = "ultra_hstu"


def read_ultra_hstu(message: ModelConfig) -> UltraHstuConfig:
    """Read the ultra_hstu model of a whole `model_config`.

    Raises:
        UnsupportedConfig: a preprocessor, a loss or a dropout that the family does not have.
        InvalidPipelineConfig: no transducer, several that are not named apart, or contradicting fields.
    """
    model = message.ultra_hstu
    names = [hstu.name for hstu in model.hstu]
    if not names:
        raise_invalid(WHERE, "it has no hstu", hint="add the transducers it was trained with")
    if len(names) > 1 and (not all(names) or len(set(names)) < len(names)):
        raise_invalid(
            WHERE,
            f"its transducers are named {', '.join(name or 'nothing' for name in names)}",
            hint="give each hstu a name of its own: its groups are <name>, <name>_action, and so on",
        )
    places = {f"{WHERE}.hstu[{number}]": hstu for number, hstu in enumerate(model.hstu)}
    return read_transducers(UltraHstuConfig, message, model, places, WHERE)


FAMILY = FamilySpec(message="ultra_hstu", kind="multi_task", read=read_ultra_hstu, check=check_dlrm_hstu)
