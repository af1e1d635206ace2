"""dssm, dat and mind: their messages to their dataclasses, refusing what contradicts itself."""

from collections.abc import Iterable

from exporter.config.blocks.mlp import MlpConfig
from exporter.config.blocks.mlp_messages import read_mlp
from exporter.config.families.hstu import Similarity
from exporter.config.families.match import (
    CapsuleConfig,
    DeepTowerConfig,
    DssmConfig,
    MindConfig,
    MindUserConfig,
    RoutingStart,
)
from exporter.config.pb.match_models_pb2 import DAT, DSSM, MIND
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.pb.module_pb2 import MLP, B2ICapsule
from exporter.config.pb.tower_pb2 import DATTower, MINDUserTower, Tower
from exporter.config.pb.tower_pb2 import Similarity as SimilarityMessage
from exporter.config.refusals import invalid


def read_dssm(config: ModelConfig) -> DssmConfig:
    message = config.dssm
    where = "model_config.dssm"
    return DssmConfig(
        family="dssm",
        user=_read_tower(message.user_tower, f"{where}.user_tower"),
        item=_read_tower(message.item_tower, f"{where}.item_tower"),
        output_dim=_projected(message),
        similarity=_similarity(message),
    )


def read_dat(config: ModelConfig) -> DssmConfig:
    message = config.dat
    where = "model_config.dat"
    return DssmConfig(
        family="dat",
        user=_read_augmented(message.user_tower, f"{where}.user_tower"),
        item=_read_augmented(message.item_tower, f"{where}.item_tower"),
        output_dim=_projected(message),
        similarity=_similarity(message),
    )


def read_mind(config: ModelConfig) -> MindConfig:
    message = config.mind
    where = "model_config.mind"
    return MindConfig(
        user=_read_mind_user(message.user_tower, f"{where}.user_tower"),
        item=_read_tower(message.item_tower, f"{where}.item_tower"),
        output_dim=_projected(message),
        similarity=_similarity(message),
    )


def _projected(message: DSSM | DAT | MIND) -> int:
    """The width of the projection; TorchEasyRec takes every number that is not above 0 for none."""
    return max(message.output_dim, 0)


def _similarity(message: DSSM | DAT | MIND) -> Similarity:
    return Similarity(SimilarityMessage.Name(message.similarity))


def _read_tower(message: Tower, where: str) -> DeepTowerConfig:
    return DeepTowerConfig(inputs=(message.input,), mlp=_read_mlp(message.mlp, f"{where}.mlp"))


def _read_augmented(message: DATTower, where: str) -> DeepTowerConfig:
    inputs = (message.input, message.augment_input)
    if len(set(inputs)) == 1:
        invalid(where, f"input and augment_input are both {message.input}", hint="name two groups")
    return DeepTowerConfig(inputs=inputs, mlp=_read_mlp(message.mlp, f"{where}.mlp"))


def _read_mlp(message: MLP, where: str) -> MlpConfig | None:
    """None where no layer is listed: what goes in comes out."""
    return read_mlp(message, where) if message.hidden_units else None


def _read_mind_user(message: MINDUserTower, where: str) -> MindUserConfig:
    """user_seq_combine is accepted, as in TorchEasyRec, where no code reads it."""
    if not message.user_mlp.hidden_units:
        invalid(f"{where}.user_mlp", "hidden_units are empty", hint="list the width of every layer")
    return MindUserConfig(
        input=message.input,
        history_input=message.history_input,
        user_mlp=_read_projecting_mlp(message.user_mlp, f"{where}.user_mlp", bias=True),
        history_mlp=_read_projecting_mlp(message.hist_seq_mlp, f"{where}.hist_seq_mlp", bias=False)
        if message.hist_seq_mlp.hidden_units
        else None,
        capsules=_read_capsules(message.capsule_config, f"{where}.capsule_config"),
        concat_mlp=_read_mlp(message.concat_mlp, f"{where}.concat_mlp"),
    )


def _read_projecting_mlp(message: MLP, where: str, *, bias: bool) -> MlpConfig:
    """Of an mlp whose last layer projects, TorchEasyRec reads neither `bias` nor `use_ln`."""
    read = MLP()
    read.CopyFrom(message)
    read.bias, read.use_ln = bias, False
    return read_mlp(read, where)


def _read_capsules(message: B2ICapsule, where: str) -> CapsuleConfig:
    for name in ("max_k", "max_seq_len", "high_dim", "num_iters"):
        if getattr(message, name) == 0:
            invalid(where, f"{name} is 0", hint="set it above 0")
    if message.routing_init_method not in set(RoutingStart):
        invalid(
            where,
            f"routing_init_method is {message.routing_init_method!r}",
            hint=f"write {_quoted(RoutingStart)}",
        )
    if message.routing_logits_scale <= 0 and not message.const_caps_num:
        invalid(
            where,
            f"routing_logits_scale is {message.routing_logits_scale:g}, which gives the events to interests "
            "that a short history has not",
            hint="set it above 0, or const_caps_num: true",
        )
    return CapsuleConfig(
        max_k=message.max_k,
        max_seq_len=message.max_seq_len,
        high_dim=message.high_dim,
        num_iters=message.num_iters,
        routing_logits_scale=message.routing_logits_scale,
        routing_logits_stddev=message.routing_logits_stddev,
        squash_pow=message.squash_pow,
        const_caps_num=message.const_caps_num,
        routing_start=RoutingStart(message.routing_init_method),
    )


def _quoted(words: Iterable[str]) -> str:
    return " or ".join(f'"{word}"' for word in words)
