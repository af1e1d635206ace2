"""Pipeline configs that are deep, huge or deceiving."""

import re
from pathlib import Path

from exporter.spec import ExportSpec
from exporter.towers.pinning import pin_spec
from exporter.towers.plan import plan_export, read_config
from tests.hostile.kinds import hostile
from tests.service.requests import FIXTURES

CONFIG = "pipeline config"


def planned(text: str | bytes, folder: Path) -> object:
    """Plan a config as the API does at submit, without torch, and pin the request."""
    path = folder / "pipeline.config"
    path.write_bytes(text if isinstance(text, bytes) else text.encode(errors="surrogatepass"))
    rows = str(FIXTURES / "data" / "items.parquet")
    spec = ExportSpec(
        config_uri=str(path), checkpoint_uri="/k", item_input_uri=rows, sample_input_uri=rows, output_uri="/o"
    )
    read = read_config(spec)
    towers = plan_export(spec, read)
    return pin_spec(spec, read, towers)


def config_of(model: str) -> str:
    return (FIXTURES / model / "pipeline.config").read_text()


def changed(model: str, pattern: str, instead: str) -> str:
    text, count = re.subn(pattern, instead, config_of(model), count=1)
    assert count == 1, pattern
    return text


@hostile("messages nested 10,000 deep", reader=CONFIG)
def _(folder: Path) -> object:
    deep = 'fields { key: "a" value { struct_value { ' * 10_000
    return planned("feature_configs { custom_feature { operator_params { " + deep, folder)


@hostile("lists nested 10,000 deep in a custom feature", reader=CONFIG)
def _(folder: Path) -> object:
    deep = 'fields { key: "a" value { list_value { ' + "values { list_value { " * 10_000
    return planned("feature_configs { custom_feature { operator_params { " + deep, folder)


@hostile("bytes that are no text", reader=CONFIG)
def _(folder: Path) -> object:
    return planned(b"\xff\xfe\x00" * 100, folder)


@hostile("a file larger than a config may be", reader=CONFIG)
def _(folder: Path) -> object:
    return planned(b"#" * 4_000_001, folder)


@hostile("an endless device in its place", reader=CONFIG)
def _(folder: Path) -> object:
    spec = ExportSpec(config_uri="/dev/zero", checkpoint_uri="/k", output_uri="/o")
    return read_config(spec)


@hostile("a password in one of its URIs", reader=CONFIG)
def _(folder: Path) -> object:
    return planned('train_input_path: "odps://id:secret@project/t"\n' + config_of("mind"), folder)


@hostile("a table of 2^64 - 1 rows", reader=CONFIG)
def _(folder: Path) -> object:
    return planned(changed("mind", r"num_buckets: \d+", "num_buckets: 18446744073709551615"), folder)


@hostile("rows of 2^32 - 1 numbers", reader=CONFIG)
def _(folder: Path) -> object:
    return planned(changed("mind", r"embedding_dim: \d+", "embedding_dim: 4294967295"), folder)


@hostile("2^32 - 1 interests (max_k)", reader=CONFIG)
def _(folder: Path) -> object:
    return planned(changed("mind", r"max_k: \d+", "max_k: 4294967295"), folder)


@hostile("windows of 2^32 - 1 elements (windows_len)", reader=CONFIG)
def _(folder: Path) -> object:
    encoder = 'multi_window_din_encoder { input: "g" attn_mlp { hidden_units: 4 } windows_len: 4294967295 }'
    return planned(
        changed("mind", r"feature_groups {", f"feature_groups {{ sequence_encoders {{ {encoder} }}"), folder
    )


@hostile("boundaries that are not numbers (nan)", reader=CONFIG)
def _(folder: Path) -> object:
    raw = (
        'feature_configs { raw_feature { feature_name: "x" boundaries: [nan, 1.0, inf] embedding_dim: 4 } }\n'
    )
    return planned(raw + config_of("multi_tower_din"), folder)


@hostile("a feature's name with ../", reader=CONFIG)
def _(folder: Path) -> object:
    return planned(_renamed("../../etc/x"), folder)


@hostile("a feature's name with NUL", reader=CONFIG)
def _(folder: Path) -> object:
    return planned(_renamed("a\\000b"), folder)


@hostile("a feature's name that turns the direction of text", reader=CONFIG)
def _(folder: Path) -> object:
    return planned(_renamed("a\u202eb"), folder)


@hostile("a feature's name that clears a terminal", reader=CONFIG)
def _(folder: Path) -> object:
    return planned(_renamed("a\\033[2Jb"), folder)


def _renamed(name: str) -> str:
    text = config_of("mind")
    old = re.search(r'feature_name: "(\w+)"', text)
    assert old is not None
    return text.replace(f'"{old[1]}"', f'"{name}"')
