"""Random small two-tower configs, and rows and weights to go with them, all from one seed."""

import random

import pyarrow as pa
import torch

from exporter.config.parse import parse_pipeline_config
from exporter.data.encode import read_features
from exporter.data.rows import Rows
from exporter.dims.plan import plan_dims
from exporter.models.registry import build_tower
from exporter.spec import TowerName
from exporter.towers.tower import Tower
from exporter.towers.view import tower_configs

MAX_BATCH_SIZE = 40
LENGTH = 12
ITEMS = 50


def config_text(seed: int) -> str:
    """An hstu_match config; everything the planner or the split could stumble over is drawn."""
    draw = random.Random(seed)
    contexts = [f"context_{number}" for number in range(draw.randint(0, 3))]
    history = ["item_id", "timestamp"]
    with_actions, with_watch_times = draw.random() < 0.7, draw.random() < 0.5
    history += ["action"] if with_actions or with_watch_times else []
    history += ["watch_time"] if with_watch_times else []
    draw.shuffle(history)
    query_time = draw.random() < 0.5
    width = draw.choice([8, 16])
    multi_valued = draw.random() < 0.5
    context_kind = draw.choice(["DEEP", "SEQUENCE"])
    features = [
        f'feature_configs {{ id_feature {{ feature_name: "{name}" embedding_dim: {width} num_buckets: 9 '
        f"{'' if multi_valued else 'value_dim: 1'} }} }}"
        for name in contexts
    ]
    features += ['feature_configs { raw_feature { feature_name: "now" } }'] if query_time else []
    standalone = draw.random() < 0.3
    features += _standalone(history, width) if standalone else [_sequence("clicks", history, width)]
    features += [_sequence("cand", ["item_id"], width)]
    draw.shuffle(features)
    return "\n".join(
        [
            "data_config { fg_mode: FG_NONE force_base_data_group: true }",
            *features,
            "model_config {",
            *_groups(
                contexts,
                {name: f"clicks_{name}" if standalone else f"clicks__{name}" for name in history},
                query_time=query_time,
                context_kind=context_kind,
            ),
            _model(draw, width, with_actions=with_actions, with_watch_times=with_watch_times),
            "}",
        ]
    )


def _sequence(name: str, features: list[str], width: int) -> str:
    kinds = {"item_id": f'id_feature {{ feature_name: "item_id" embedding_name: "item" '
                        f"embedding_dim: {width} num_buckets: {ITEMS} }}"}  # fmt: skip
    inner = " ".join(
        f"features {{ {kinds.get(feature, f'raw_feature {{ feature_name: {chr(34)}{feature}{chr(34)} }}')} }}"
        for feature in features
    )
    return (
        f'feature_configs {{ sequence_feature {{ sequence_name: "{name}" sequence_length: {LENGTH} '
        f'sequence_delim: "|" {inner} }} }}'
    )


def _standalone(features: list[str], width: int) -> list[str]:
    """The history as features of no parent, each with a length of its own as far as the config says."""
    kinds = {
        "item_id": f'sequence_id_feature {{ feature_name: "clicks_item_id" embedding_name: "item" '
        f"embedding_dim: {width} num_buckets: {ITEMS} sequence_length: {LENGTH} }}"
    }
    return [
        "feature_configs { "
        + kinds.get(
            name,
            f'sequence_raw_feature {{ feature_name: "clicks_{name}" sequence_length: {LENGTH} }}',
        )
        + " }"
        for name in features
    ]


def _groups(
    contexts: list[str], history: dict[str, str], *, query_time: bool, context_kind: str
) -> list[str]:
    names = {
        "item_id": "uih",
        "timestamp": "uih_timestamp",
        "action": "uih_action",
        "watch_time": "uih_watchtime",
    }
    groups = [("candidate", ["cand__item_id"], "JAGGED_SEQUENCE")]
    groups += [(names[part], [feature], "JAGGED_SEQUENCE") for part, feature in history.items()]
    groups += [("contextual", contexts, context_kind)] if contexts else []
    groups += [("query_time", ["now"], "DEEP")] if query_time else []
    return [
        f'feature_groups {{ group_name: "{name}" group_type: {kind} '
        + " ".join(f'feature_names: "{feature}"' for feature in features)
        + " }"
        for name, features, kind in groups
    ]


def _model(draw: random.Random, width: int, *, with_actions: bool, with_watch_times: bool) -> str:
    encoder = ""
    if with_actions or with_watch_times:
        thresholds = (
            "watchtime_to_action_thresholds: 3 watchtime_to_action_weights: 4" if with_watch_times else ""
        )
        encoder = (
            "action_encoder { simple_action_encoder { action_embedding_dim: 4 action_weights: 1 "
            f"action_weights: 2 {thresholds} }} }} action_mlp {{ simple_mlp {{ hidden_dim: 8 }} }}"
        )
    truncated = "attn_truncation_split_layer: 1 attn_truncation_tail_len: 4" if draw.random() < 0.3 else ""
    similarity = draw.choice(["COSINE", "INNER_PRODUCT"])
    return f"""
      hstu_match {{
        user_tower {{
          input: "uih" max_seq_len: {LENGTH}
          hstu {{
            stu {{ embedding_dim: 16 num_heads: {draw.choice([1, 2])} hidden_dim: 8 attention_dim: 8
                   use_group_norm: {draw.choice(["true", "false"])} }}
            attn_num_layers: 2 {truncated}
            positional_encoder {{ num_position_buckets: 32 num_time_buckets: 16
              use_time_encoding: {draw.choice(["true", "false"])} }}
            input_preprocessor {{ uih_preprocessor {{ {encoder} }} }}
            output_postprocessor {{ {draw.choice(["l2norm", "layernorm"])}_postprocessor {{ }} }}
          }}
        }}
        item_tower {{ input: "candidate" {draw.choice(["", "mlp { hidden_units: 12 }"])} }}
        similarity: {similarity} output_dim: {draw.choice([8, 24])}
        sequence_timestamp_is_ascending: {draw.choice(["true", "false"])}
      }}"""


def random_tower(seed: int, name: TowerName) -> Tower:
    """One tower of the seed's config, with random weights."""
    [config] = tower_configs(parse_pipeline_config(config_text(seed)), (name,))
    torch.manual_seed(seed)
    plan = plan_dims(config.pipeline.features, max_batch_size=MAX_BATCH_SIZE)
    return build_tower(config, plan)


def random_rows(seed: int, tower: Tower, *, rows: int = 24) -> Rows:
    """Rows of the tower's features: histories of all lengths, none among them."""
    draw = random.Random(seed)
    sequences = {f.sequence.name: f.sequence for f in tower.config.pipeline.features if f.sequence}
    lengths = {
        name: [0, 1, LENGTH, *(draw.randint(0, LENGTH) for _ in range(rows - 3))] for name in sequences
    }
    columns: dict[str, list[object]] = {}
    for feature in tower.config.pipeline.features:
        high = ITEMS if feature.bare_name.endswith("item_id") else 9
        if feature.sequence is None:
            columns[feature.name] = [draw.randrange(high) for _ in range(rows)]
        else:
            columns[feature.name] = [
                [draw.randrange(high) for _ in range(length)] for length in lengths[feature.sequence.name]
            ]
    features = tower.config.pipeline.features
    return Rows(
        uri="random",
        sha256="",
        features=features,
        columns=read_features(pa.table(columns), features, where="random rows"),
    )
