"""Command-line options for the spec of an export."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import JsonValue, TypeAdapter, ValidationError

from exporter.dtypes import Kernel, Precision, TableDtype
from exporter.errors import InvalidSpec
from exporter.frozen import in_words
from exporter.options.index_spec import INDEX_KINDS
from exporter.options.layout import Layout
from exporter.options.tables import TableLayout
from exporter.spec import Device, ExportSpec, IdWeights, Mode, TowerName
from exporter.towers.plan import PlanRequest, read_config

Spec = TypeVar("Spec", bound=ExportSpec)

# The options of fields whose option has another name than the field.
_OPTIONS = {
    "config_uri": "--config",
    "checkpoint_uri": "--checkpoint",
    "item_input_uri": "--item-input",
    "sample_input_uri": "--sample-input",
    "output_uri": "--output",
    "assets_uri": "--assets",
    "towers": "--tower",
}

_OBJECT = TypeAdapter(dict[str, JsonValue])


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the model, its weights and its rows."""
    add_plan_options(parser)
    parser.add_argument(
        "--checkpoint", metavar="URI", dest="checkpoint_uri", type=_uri, help="the trained weights"
    )
    parser.add_argument(
        "--item-input",
        metavar="URI",
        dest="item_input_uri",
        type=_uris,
        help="parquet with items, for item towers; several are separated by commas",
    )
    parser.add_argument(
        "--sample-input",
        metavar="URI",
        dest="sample_input_uri",
        type=_uris,
        help="parquet with rows as in training, to trace and verify with; several are separated by commas",
    )
    parser.add_argument(
        "--assets",
        metavar="URI",
        dest="assets_uri",
        type=_uri,
        help="folder of the files that features name, if their paths do not begin in the config's folder",
    )
    parser.add_argument(
        "--id-weights",
        dest="id_weights",
        choices=[each.value for each in IdWeights],
        help="apply the weights of ids, as training did (default), or ignore them, as TorchEasyRec does",
    )
    parser.add_argument(
        "--precision",
        choices=[each.value for each in Precision],
        help="precision of the towers; default: the config's export_config.mixed_precision, else fp32",
    )
    parser.add_argument(
        "--tf32", action="store_true", default=None, help="let matrix products on CUDA round to TF32"
    )
    parser.add_argument(
        "--kernel",
        choices=[each.value for each in Kernel],
        help="implementation of HSTU layers on CUDA; default: the config's model_config.kernel, else pytorch",
    )
    parser.add_argument(
        "--device", choices=[device.value for device in Device], help="kind of device that packages run on"
    )


def add_spec_options(parser: argparse.ArgumentParser) -> None:
    """Add all options that `spec_of` reads."""
    add_model_options(parser)
    parser.add_argument(
        "--output",
        metavar="URI",
        dest="output_uri",
        type=_uri,
        help="folder or object-store prefix to publish to",
    )
    parser.add_argument(
        "--target",
        action="append",
        metavar="NAME",
        help="what to compile for: cpu, avx2, avx512, cuda, sm_90, ...; may be repeated, for a package each",
    )
    parser.add_argument(
        "--torch", metavar="RELEASE", help="release of torch to compile with, as 2.13: that of your servers"
    )
    _add_layout_options(parser)
    parser.add_argument("--ranks", type=int, metavar="N", help="number of processes that export together")
    parser.add_argument(
        "--nodes", type=int, metavar="N", help="number of hosts that share the ranks; default: 1"
    )
    parser.add_argument(
        "--materialise-items",
        action="store_true",
        default=None,
        help="publish the vectors of all items of --item-input as parquet",
    )
    parser.add_argument(
        "--item-id-column", metavar="NAME", dest="item_id_column", help="column of item ids in --item-input"
    )
    parser.add_argument(
        "--release-gate",
        metavar="JSON",
        nargs="?",
        const={},
        type=_gate,
        help="score held-out rows with the published packages, and bless the release only if it is not worse "
        "than the promoted one; bounds and columns as a JSON object, see docs/release-gate.md",
    )
    parser.add_argument(
        "--item-index",
        metavar="KIND",
        type=_index,
        help=f"publish a FAISS index over the item vectors: {', '.join(INDEX_KINDS)}; its parameters go "
        "into --spec",
    )


def _add_layout_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that decide on the files of a layout, and on sample requests."""
    parser.add_argument(
        "--triton-prefix",
        metavar="NAME",
        dest="triton_prefix",
        help="beginning of the names of the repository's models, which else are the towers'",
    )
    parser.add_argument(
        "--sample-rows",
        type=int,
        metavar="N",
        dest="sample_rows",
        help="most rows of a sample request, which is published with its answer; 0: none is; default: 7",
    )


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that decide on the inputs of a package."""
    parser.add_argument(
        "--spec",
        type=Path,
        metavar="FILE",
        help="JSON file with the request or a part of it; options override its fields",
    )
    parser.add_argument(
        "--config",
        metavar="URI",
        type=non_empty,
        help="URI of the pipeline config; if it is a local file, its text is sent to the service",
    )
    parser.add_argument(
        "--family",
        metavar="NAME",
        help="model family of your own, by its name; `export`, `plan` and `check` take FILE.py:CLASS as well",
    )
    towers = [name.value for name in TowerName]
    parser.add_argument(
        "--tower",
        action="append",
        dest="towers",
        choices=towers,
        help="a tower to export; may be repeated; default: all towers of the model",
    )
    _add_package_options(parser)
    parser.add_argument(
        "--max-batch-size",
        type=int,
        metavar="N",
        dest="max_batch_size",
        help="largest number of rows in one call of a package",
    )
    parser.add_argument(
        "--strict-bounds",
        action="store_true",
        default=None,
        help="let packages refuse more than the export tries: larger sizes, and longer rows",
    )
    parser.add_argument(
        "--table-dtype",
        action="append",
        metavar="[TABLE=]DTYPE",
        dest="table_dtypes",
        type=_table_dtype,
        help=f"dtype of the rows of all tables, or of one: {', '.join(TableDtype)}; may be repeated",
    )


def _add_package_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that decide on a tower's packages."""
    parser.add_argument(
        "--mode",
        choices=[mode.value for mode in Mode],
        help="unified (default): tables and dense part in one package; two_stage: one package for each",
    )
    parser.add_argument(
        "--layout",
        choices=[layout.value for layout in Layout],
        help="triton: each tower's folder holds a model repository for Triton Inference Server; "
        "torcheasyrec, with --mode two_stage: the two files that TorchEasyRec's own loader reads",
    )
    parser.add_argument(
        "--tables",
        dest="table_layout",
        choices=[layout.value for layout in TableLayout],
        help="sharded, with --mode two_stage: each rank writes its rows of the tables beside a dense package",
    )


def spec_of(arguments: argparse.Namespace) -> ExportSpec:
    """Return the spec of an export: the one in --spec, whose fields the options override."""
    return request_of(arguments, ExportSpec)


def request_of(
    arguments: argparse.Namespace, kind: type[Spec], *, base: Mapping[str, JsonValue] | None = None
) -> Spec:
    """Return a request of this kind: fields of --spec override those of `base`, and options override both."""
    fields: dict[str, object] = {**(base or {})}
    if arguments.spec is not None:
        fields |= _read_spec_file(arguments.spec)
    if arguments.config is not None:
        fields |= {"config": None, "config_uri": None, **_config(arguments.config)}
    options = {name: getattr(arguments, name) for name in kind.model_fields if hasattr(arguments, name)}
    options.pop("config", None)
    options["tables"] = _tables(arguments, fields.get("tables"))
    if not getattr(arguments, "needs_config", True) and not {"config", "config_uri"} & fields.keys():
        fields["config"] = ""
    fields |= {name: value for name, value in options.items() if value is not None}
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise _refusal(error, fields) from error


def _refusal(error: ValidationError, given: Mapping[str, object]) -> InvalidSpec:
    """Return the error that names the options to give: all that are missing, else the first mistake."""
    missing = [str(each["loc"][0]) for each in error.errors() if each["type"] == "missing"]
    if missing and not given.get("config") and not given.get("config_uri") and not given.get("family"):
        missing.insert(0, "config_uri")  # the rule of either a config or its URI runs after those for fields
    if missing:
        options = ", ".join(_OPTIONS.get(field, field) for field in missing)
        return InvalidSpec(f"missing: {options}", hint="see --help", where=missing[0])
    first = error.errors()[0]
    where = ".".join(str(step) for step in first["loc"])
    what = _OPTIONS.get(where, where)
    text = in_words(first["msg"])
    if where == "family":
        hint = "a service takes the name of a listed family; a file is for `slipway export` on this machine"
        return InvalidSpec(f"--family: {text}", hint=hint, where=where)
    return InvalidSpec(f"{what}: {text}" if what else text, hint="see --help", where=where)


def _read_spec_file(path: Path) -> dict[str, JsonValue]:
    """Read the file of --spec, which may hold only a part of a request."""
    try:
        return _OBJECT.validate_json(path.read_bytes())
    except OSError as error:
        raise InvalidSpec(
            f"{path} cannot be read: {error.strerror}",
            hint="give --spec the path of a JSON file",
            where=str(path),
        ) from error
    except ValidationError as error:
        raise InvalidSpec(
            f"{path} is no JSON object: {error.errors()[0]['msg']}",
            hint="write the fields of the request as one JSON object",
            where=str(path),
        ) from error


def _config(uri: str) -> dict[str, object]:
    """Read a local config here, because the service may run on another machine."""
    if "://" in uri:
        return {"config_uri": uri}
    return {"config": read_config(PlanRequest(config_uri=_uri(uri)))}


def _uri(text: str) -> str:
    """Make a plain path absolute, because the service has another working directory."""
    return text if "://" in non_empty(text) else str(Path(text).absolute())


def non_empty(text: str) -> str:
    """Return the text, or refuse an empty one, which as a URI would mean the current folder."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty, as an unset variable is")
    return text


def labels_of(given: Sequence[str] | None) -> dict[str, str]:
    """Return labels that are given as NAME=VALUE.

    Raises:
        InvalidSpec: one has no name, or no "=".
    """
    labels = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise InvalidSpec(f"--label {text!r} is not NAME=VALUE", hint="--label date=2026-01-31")
        labels[name] = value
    return labels


def _uris(text: str) -> str:
    """Make each plain path absolute in a list that is separated by commas."""
    return ",".join(_uri(part.strip()) for part in non_empty(text).split(",") if part.strip())


def _table_dtype(text: str) -> tuple[str | None, str]:
    """Split into a table's name, or None for all tables, and a dtype."""
    name, equals, dtype = text.rpartition("=")
    if equals and not name:
        raise argparse.ArgumentTypeError(f"{text!r} names no table; for all tables give {dtype!r}")
    if dtype not in set(TableDtype):
        raise argparse.ArgumentTypeError(f"{dtype!r} is none of {', '.join(TableDtype)}")
    return name or None, dtype


def _tables(arguments: argparse.Namespace, given: object) -> dict[str, object] | None:
    """Return the `tables` of --spec with the fields that options override; None without such options."""
    dtypes: Sequence[tuple[str | None, str]] = arguments.table_dtypes or ()
    if not dtypes and arguments.table_layout is None:
        return None
    tables: dict[str, object] = {**given} if isinstance(given, Mapping) else {"layout": given or "packaged"}
    if arguments.table_layout is not None:
        tables["layout"] = arguments.table_layout
    before = tables.get("dtypes")
    by_table = {name: dtype for name, dtype in dtypes if name is not None}
    if by_table:
        tables["dtypes"] = {**(before if isinstance(before, Mapping) else {}), **by_table}
    for name, dtype in dtypes:
        if name is None:
            tables["dtype"] = dtype
    return tables


def _gate(text: str) -> dict[str, JsonValue]:
    """Return the settings of a release gate; their names and values are checked with the request."""
    try:
        return _OBJECT.validate_json(text)
    except ValidationError:
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON object") from None


def _index(kind: str) -> dict[str, str]:
    """Return an index of a kind, with its default parameters."""
    if kind not in INDEX_KINDS:
        raise argparse.ArgumentTypeError(f"{kind!r} is none of {', '.join(INDEX_KINDS)}")
    return {"kind": kind}
