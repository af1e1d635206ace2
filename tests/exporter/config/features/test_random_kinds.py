"""Features of random kinds, forms and sizes have the tensors of TorchEasyRec's table of kinds."""

from dataclasses import dataclass

from exporter.config.features.feature_messages import feature_sources
from exporter.config.features.fg_json import fg_json
from exporter.config.features.read_features import read_features
from exporter.config.message import read_message
from exporter.dims.plan import plan_dims
from tests.exporter.models.random_configs import Draw, over_random_configs

SIZES = {
    "num_buckets": "num_buckets: 9",
    "hash_bucket_size": "hash_bucket_size: 9",
    "vocab_list": 'vocab_list: ["a", "b"]',
    "vocab_dict": 'vocab_dict { key: "a" value: 8 }',
    "vocab_file": 'vocab_file: "words" default_bucketize_value: 0',
    "zch": "zch { zch_size: 9 lru {} }",
    "boundaries": "boundaries: [0.5, 1.5]",
}
WORDS = ("hash_bucket_size", "vocab_list", "vocab_dict", "vocab_file", "zch")


@dataclass(frozen=True)
class _Kind:
    """A row of the table: the sizes that make the kind sparse, and its width where it is dense."""

    sizes: tuple[str, ...]
    always_sparse: bool = False
    has_value_dim: bool = True
    of_vectors: bool = True  # value_dim is the width where it is dense; otherwise that is 1


KINDS = {
    "id_feature": _Kind(("num_buckets", *WORDS), always_sparse=True),
    "combo_feature": _Kind(WORDS, always_sparse=True),
    "bool_mask_feature": _Kind(("num_buckets", *WORDS), always_sparse=True),
    "tokenize_feature": _Kind((), always_sparse=True, has_value_dim=False),
    "raw_feature": _Kind(("boundaries",)),
    "expr_feature": _Kind(("boundaries",)),
    "lookup_feature": _Kind(("num_buckets", *WORDS, "boundaries")),
    "custom_feature": _Kind(("num_buckets", *WORDS, "boundaries")),
    "match_feature": _Kind(("num_buckets", *WORDS, "boundaries"), of_vectors=False),
    "overlap_feature": _Kind(("boundaries",), has_value_dim=False),
    "kv_dot_product": _Kind(("boundaries",), has_value_dim=False),
    "combine_feature": _Kind(("num_buckets", "boundaries"), has_value_dim=False),
}


@over_random_configs
def test_a_feature_has_the_tensors_of_its_kind_and_form(draw: Draw) -> None:
    name = draw.choice(list(KINDS))
    kind, form = KINDS[name], draw.choice(["", "sequence_", "grouped", "tokens"])
    if form == "tokens" and name != "tokenize_feature":
        form = ""
    size = draw.choice(kind.sizes) if kind.sizes and (kind.always_sparse or draw.flag()) else ""
    value_dim = draw.choice([None, 0, 1, 3]) if kind.has_value_dim else None
    is_sparse = kind.always_sparse or bool(size)
    if name in ("raw_feature", "expr_feature") and not is_sparse and value_dim == 0:
        value_dim = None  # numbers have a width
    fields = ['feature_name: "f" embedding_dim: 4', SIZES.get(size, "")]
    fields += ['vocab_file: "tokenizer.json"'] if name == "tokenize_feature" else []
    fields += [f"value_dim: {value_dim}"] if value_dim is not None else []
    fields += ["tokens_as_sequence: true"] if form == "tokens" else []
    config = read_message(_entry(name, form, " ".join(fields)), "config")
    [feature] = read_features(config)
    plan = plan_dims([feature], max_batch_size=8)
    found = {
        tensor.name.rpartition(".")[2]: (tensor.dtype, *(axis for axis in tensor.shape[1:]))
        for tensor in plan.inputs
    }
    assert found == _expected(name, kind, form, is_sparse=is_sparse, value_dim=value_dim)
    [source] = feature_sources(config)
    assert source.message.feature_name in {block["feature_name"] for block in fg_json(source)}


def _entry(name: str, form: str, fields: str) -> str:
    if form == "grouped":
        inner = f"features {{ {name} {{ {fields} }} }}"
        sequence = f'sequence_feature {{ sequence_name: "s" sequence_length: 5 {inner} }}'
        return f"feature_configs {{ {sequence} }}"
    prefix = form if form == "sequence_" else ""
    return f"feature_configs {{ {prefix}{name} {{ {fields} }} }}"


def _expected(
    name: str, kind: _Kind, form: str, *, is_sparse: bool, value_dim: int | None
) -> dict[str, tuple[str | int, ...]]:
    """Dtype and inner axes of each tensor, by the table."""
    if form == "tokens":
        return {"values": ("int64",), "lengths": ("int64",)}
    in_sequence = bool(form)
    if value_dim is None:
        several = kind.always_sparse and (not in_sequence or name == "tokenize_feature")
        value_dim = 0 if several else 1
    if is_sparse:
        tensors: dict[str, tuple[str | int, ...]] = {"values": ("int64",), "lengths": ("int64",)}
        return tensors | ({"key_lengths": ("int64",)} if in_sequence and value_dim != 1 else {})
    width = max(value_dim, 1) if kind.has_value_dim and kind.of_vectors else 1
    return {"values": ("float32", width), **({"lengths": ("int32",)} if in_sequence else {})}
