"""Write the texts beside a package, in the tower's view: pipeline.config, fg.json and model_acc.json."""

import json
from collections.abc import Iterator, Mapping, Set
from types import MappingProxyType

from pydantic import JsonValue

from exporter.config.features.data_groups import effective_fg_mode
from exporter.config.features.feature_files import rename_files
from exporter.config.features.feature_messages import (
    RTP_JOINT,
    FeatureSource,
    feature_sources,
    name_joint,
)
from exporter.config.features.fg_json import fg_json, fg_sequence
from exporter.config.features.fg_rtp import as_rtp
from exporter.config.features.tables import lookups
from exporter.config.message import read_message, write_message
from exporter.config.pb.feature_pb2 import FeatureConfig, SeqFeatureConfig, SequenceFeature
from exporter.config.pb.model_pb2 import FeatureGroupConfig
from exporter.config.pb.pipeline_pb2 import EasyRecConfig
from exporter.config.schema import Feature, FeatureGroup, PipelineConfig, TowerConfig
from exporter.dtypes import TableDtype
from exporter.options.layout import Layout
from exporter.options.tables import Tables
from exporter.spec import Mode, TowerName

NO_COPIES: Mapping[str, str] = MappingProxyType({})


def render_pipeline_config(tower: TowerConfig, copies: Mapping[str, str] = NO_COPIES) -> str:
    """Return the model's pipeline config with the tower's own features and feature groups in it.

    `copies` are the names of copies of files that features name, by the path in the config.
    """
    return write_message(_view_message(tower, copies))


def tower_sources(tower: TowerConfig, copies: Mapping[str, str] = NO_COPIES) -> Iterator[FeatureSource]:
    """Yield the tower's features as its own pipeline config writes them."""
    return feature_sources(_view_message(tower, copies))


def render_fg_json(tower: TowerConfig, copies: Mapping[str, str] = NO_COPIES) -> str:
    """Return fg.json, by which TorchEasyRec's feature generator turns raw values into the tower's inputs.

    A model whose groups have the names of RTP's feature generator gets what that one reads.
    """
    tables = {feature.name: feature.table for feature in tower.pipeline.features}
    for_rtp = name_joint(read_message(tower.pipeline.text, "config")) == RTP_JOINT
    blocks: list[JsonValue] = []
    members: dict[str, list[JsonValue]] = {}
    for source in tower_sources(tower, copies):
        own = fg_json(source)
        if for_rtp:
            own = [as_rtp(block, tables.get(source.name)) for block in own]
        if source.parent is None:
            blocks.extend(own)
            continue
        sequence = source.parent.sequence_name
        if sequence not in members:
            members[sequence] = []
            block = fg_sequence(source, members[sequence])
            blocks.append(block | {"sequence_table": "item"} if for_rtp else block)
        members[sequence].extend(own)
    return json.dumps({"features": blocks}, indent=4)


def render_model_acc(
    tower: TowerConfig, *, mode: Mode, layout: Layout, tables: Tables, max_batch_size: int
) -> str:
    """Return model_acc.json, the settings of TorchEasyRec's servers for the package; numbers are strings.

    It names the way in which TorchEasyRec's loader loads the packages (ENABLE_AOT), unless that cannot.
    """
    settings = {"SPARSE_INT64": "1", **_quantised(tower, tables)}
    if layout is not Layout.TRITON and mode is Mode.UNIFIED:
        settings["ENABLE_AOT"] = "2"
    elif layout is Layout.TORCHEASYREC:
        settings["ENABLE_AOT"] = "1"
    settings["MAX_EXPORT_BATCH_SIZE"] = str(max_batch_size)
    candidates = tower.pipeline.model.candidate_group
    if candidates is not None:
        settings["cand_seq_pk"] = _candidate_sequence(tower.pipeline, candidates)
    return json.dumps(settings, indent=4)


def _quantised(tower: TowerConfig, tables: Tables) -> dict[str, str]:
    """Return the dtypes of pooled tables (QUANT_EMB) and of others (QUANT_EC_EMB), where one word says them.

    Tables as trained are "0"; of several dtypes nothing is said.
    """
    features = {feature.name: feature for feature in tower.pipeline.features}
    dtypes: dict[str, set[str]] = {"QUANT_EMB": set(), "QUANT_EC_EMB": set()}
    for lookup in lookups(tower.pipeline.embedded_groups, features):
        trained = lookup.table.dtype
        dtype = tables.dtype_of(lookup.table.name, trained)
        is_kept = dtype in (trained, TableDtype.FP32)
        dtypes["QUANT_EMB" if lookup.pooling else "QUANT_EC_EMB"].add("0" if is_kept else dtype.upper())
    said = {name: next(iter(each), "0") for name, each in dtypes.items() if len(each) < 2}
    return {name: word for name, word in said.items() if word != "0" or name == "QUANT_EMB"}


def _candidate_sequence(pipeline: PipelineConfig, group: str) -> str:
    """Return the name of the sequence by whose lengths a server counts a row's candidates."""
    sequence = pipeline.feature(pipeline.group(group).features[0]).sequence
    assert sequence is not None
    return sequence.name


def _view_message(tower: TowerConfig, copies: Mapping[str, str]) -> EasyRecConfig:
    message = read_message(tower.pipeline.text, "config")
    features = _feature_configs(message, tower)
    del message.feature_configs[:]
    message.feature_configs.extend(features)
    groups = [_group_config(message, group) for group in tower.pipeline.groups]
    del message.model_config.feature_groups[:]
    message.model_config.feature_groups.extend(groups)
    message.data_config.fg_mode = effective_fg_mode(message.data_config)
    for source in feature_sources(message) if copies else ():
        rename_files(source.message, copies)
    return message


def _group_config(message: EasyRecConfig, group: FeatureGroup) -> FeatureGroupConfig:
    """Return the group's message with the names that its features have in the tower's view."""
    entry = FeatureGroupConfig()
    entry.CopyFrom(next(g for g in message.model_config.feature_groups if g.group_name == group.name))
    entry.feature_names[:] = group.features
    return entry


def _feature_configs(message: EasyRecConfig, tower: TowerConfig) -> list[FeatureConfig]:
    """Return one entry per feature or sequence of the tower, and those that they are made of.

    As TorchEasyRec's exporter writes them: those of a whole model in the config's order, else in the groups'.
    """
    sources = {source.name: source for source in feature_sources(message)}
    features = {feature.view_of or feature.name: feature for feature in tower.pipeline.features}
    names = [*_intermediates(features.keys(), sources), *features]
    if tower.name is TowerName.MODEL:
        names = [name for name in sources if name in names]
    entries: dict[str, FeatureConfig] = {}
    for name in names:
        feature = features.get(name)
        if feature is not None and feature.view_of is not None:
            entries[feature.name] = _scalar(feature, sources[name])
        else:
            _add(entries, sources[name])
    return list(entries.values())


def _intermediates(own: Set[str], sources: Mapping[str, FeatureSource]) -> list[str]:
    """Return other features, in config order, that feature generation computes first: `feature:<name>`."""
    wanted, waiting = set(own), list(own)
    while waiting:
        found = [name for name in sources[waiting.pop()].generated_inputs if name in sources]
        waiting += [name for name in found if name not in wanted]
        wanted.update(found)
    return [name for name in sources if name in wanted - own]


def _add(entries: dict[str, FeatureConfig], source: FeatureSource) -> None:
    """Add a feature as the config has it: an entry of its own, or a member of its sequence's entry."""
    if source.parent is None:
        _fill(entries.setdefault(source.name, FeatureConfig()), source)
        return
    key = f"{source.parent.sequence_name}__"  # not the name of a feature
    block = entries.setdefault(key, _empty_sequence(source.parent))
    _fill(block.sequence_feature.features.add(), source)


def _scalar(feature: Feature, source: FeatureSource) -> FeatureConfig:
    """Return the entry of a scalar view, which writes out its sequence's defaults and its table's name."""
    entry = FeatureConfig()
    _fill(entry, source)
    message = getattr(entry, source.field)
    settable = message.DESCRIPTOR.fields_by_name
    if "default_value" in settable:
        message.default_value = feature.default_value
    if "value_dim" in settable:
        message.value_dim = feature.value_dim
    if feature.table is not None:
        message.embedding_name = feature.table.name
    return entry


def _fill(entry: FeatureConfig | SeqFeatureConfig, source: FeatureSource) -> None:
    getattr(entry, source.field).CopyFrom(source.message)


def _empty_sequence(parent: SequenceFeature) -> FeatureConfig:
    return FeatureConfig(
        sequence_feature=SequenceFeature(
            sequence_name=parent.sequence_name,
            sequence_length=parent.sequence_length,
            sequence_delim=parent.sequence_delim,
            sequence_pk=parent.sequence_pk or f"user:{parent.sequence_name}",
        )
    )
