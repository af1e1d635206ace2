"""Ranking models as no fixture has them: everything the config can say that the recorded ones do not."""

from dataclasses import replace

from exporter.config.blocks.mlp import MlpConfig
from exporter.config.blocks.tasks import Loss, TaskConfig
from exporter.config.families.multi_task.dlrm_hstu import DlrmHstuConfig
from exporter.config.hstu.encoder import (
    ContentEncoderConfig,
    ContentEncoderKind,
    ContextualizedMlpConfig,
    ContextualPreprocessorConfig,
    PositionalEncoderConfig,
    PostprocessorConfig,
    PostprocessorKind,
)
from exporter.config.schema import GroupKind, PipelineConfig
from tests.exporter.models.recorded import pipeline_of

_PARAMETERIZED = ContextualizedMlpConfig(hidden_dim=8, parameterized=True)


def interleaved() -> PipelineConfig:
    """Actions between events, MLPs made of the context, newest first, histories cut, semi-local attention."""
    pipeline, model, preprocessor = _recorded()
    preprocessor = replace(
        preprocessor,
        content_encoder=ContentEncoderConfig(kind=ContentEncoderKind.PAD),
        content_mlp=_PARAMETERIZED,
        action_mlp=_PARAMETERIZED,
        interleaved=True,
    )
    hstu = replace(
        model.transducers[0],
        stu=replace(model.transducers[0].stu, sla_k1=4, sla_k2=3),
        preprocessor=preprocessor,
        postprocessor=PostprocessorConfig(kind=PostprocessorKind.L2NORM),
        attn_truncation_split_layer=1,
        attn_truncation_tail_len=5,
    )
    groups = tuple(
        replace(group, kind=GroupKind.SEQUENCE)
        if group.name == "contextual"
        else replace(group, features=(*group.features, "cand_seq__query_time"))
        if group.name == "candidate"
        else group
        for group in pipeline.groups
    )
    model = replace(model, transducers=(hstu,), timestamps_ascending=False, concat_contextual=True)
    return replace(pipeline, model=model, groups=groups)


def without_actions() -> PipelineConfig:
    """Perceptrons for contents, a window of attention, plain positions, and other tasks."""
    pipeline, model, preprocessor = _recorded()
    contents = ContentEncoderConfig(
        kind=ContentEncoderKind.MLP,
        uih_mlp=MlpConfig(hidden_units=(12, 20), use_ln=True),
        target_mlp=MlpConfig(hidden_units=(20,), use_bn=True),
    )
    hstu = replace(
        model.transducers[0],
        stu=replace(model.transducers[0].stu, use_group_norm=False, max_attn_len=4, contextual_seq_len=0),
        positional_encoder=PositionalEncoderConfig(num_position_buckets=16),
        preprocessor=replace(preprocessor, content_encoder=contents, action_encoder=None, action_mlp=None),
        postprocessor=PostprocessorConfig(kind=PostprocessorKind.LAYERNORM),
    )
    tasks = (
        TaskConfig(name="grade", num_class=3, losses=(Loss.SOFTMAX_CROSS_ENTROPY,)),
        TaskConfig(name="click", num_class=1, losses=(Loss.BINARY_FOCAL, Loss.L2)),
    )
    return replace(pipeline, model=replace(model, transducers=(hstu,), tower_mlp=None, tasks=tasks))


def _recorded() -> tuple[PipelineConfig, DlrmHstuConfig, ContextualPreprocessorConfig]:
    pipeline = pipeline_of("dlrm_hstu")
    assert isinstance(pipeline.model, DlrmHstuConfig)
    preprocessor = pipeline.model.transducers[0].preprocessor
    assert isinstance(preprocessor, ContextualPreprocessorConfig)
    return pipeline, pipeline.model, preprocessor
