"""Write blocks of fg.json as RTP's feature generator reads them, for models whose groups have RTP's names."""

from exporter.config.features.feature_messages import RTP_JOINT, FeatureSource
from exporter.config.features.fg_entries import FgBlock
from exporter.config.schema import FeatureKind, TableConfig

_KINDS = (
    FeatureKind.ID,
    FeatureKind.RAW,
    FeatureKind.COMBO,
    FeatureKind.MATCH,
    FeatureKind.LOOKUP,
    FeatureKind.OVERLAP,
)
_VOCABULARIES = ("vocab_list", "vocab_dict", "vocab_file")


def check_rtp(source: FeatureSource) -> None:
    """Refuse a feature that RTP's feature generator cannot compute, in a model whose groups have its names.

    Raises:
        UnsupportedConfig: RTP has no such kind of feature, or knows no vocabulary.
    """
    if source.joint != RTP_JOINT:
        return
    why = "groups join names by one underscore, as for RTP, whose feature generator"
    if source.kind not in _KINDS:
        source.refuse(f"{why} has no such feature", hint=f"it has {', '.join(_KINDS)}")
    known = source.message.DESCRIPTOR.fields_by_name
    for name in _VOCABULARIES:
        if name in known and getattr(source.message, name):
            source.refuse(f"{why} has no {name}", hint="set num_buckets, hash_bucket_size or boundaries")


def as_rtp(block: FgBlock, table: TableConfig | None) -> FgBlock:
    """Return a feature's block with RTP's names, its table, and how RTP makes its keys."""
    entries: FgBlock = {"gen_val_type": "idle"}
    if table is not None:
        entries = {"gen_val_type": "lookup", "shared_name": table.name, "embedding_dimension": table.dim}
    rewritten: FgBlock = {
        {"value_dim": "value_dimension"}.get(name, name): value for name, value in block.items()
    }
    boundaries = rewritten.get("boundaries")
    if isinstance(boundaries, list):
        entries |= {"gen_key_type": "boundary", "boundaries": ",".join(map(str, boundaries))}
    elif "hash_bucket_size" in rewritten:
        entries |= {"gen_key_type": "hash"}
    elif "num_buckets" in rewritten:  # RTP calls the modulus so, too
        entries |= {"gen_key_type": "mod", "hash_bucket_size": rewritten.pop("num_buckets")}
    else:
        entries |= {"gen_key_type": "idle"}
    return rewritten | entries
