"""An export's spec as command-line options."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import JsonValue, TypeAdapter, ValidationError

from exporter.dtypes import Kernel, Precision, TableDtype
from exporter.errors import InvalidSpec
from exporter.frozen import in_words
from exporter.index_spec import INDEX_KINDS
from exporter.spec import Device, ExportSpec, IdWeights, Mode, TableLayout, TowerName
from exporter.towers.plan import PlanRequest, read_config

Spec = TypeVar("Spec", bound=ExportSpec)

_OBJECT = TypeAdapter(dict[str, JsonValue])


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add those that say which model, with which weights and rows."""
    add_plan_options(parser)
    parser.add_argument("--checkpoint", metavar="URI", dest="checkpoint_uri", type=_uri)
    parser.add_argument("--item-input", metavar="URI", dest="item_input_uri", type=_uris)
    parser.add_argument("--sample-input", metavar="URI", dest="sample_input_uri", type=_uris)
    parser.add_argument(
        "--id-weights",
        dest="id_weights",
        choices=[each.value for each in IdWeights],
        help="apply the weights of ids, as training did (default), or ignore them, as TorchEasyRec does",
    )
    parser.add_argument(
        "--precision",
        choices=[each.value for each in Precision],
        help="what towers are computed in; default: the config's export_config.mixed_precision, else fp32",
    )
    parser.add_argument(
        "--tf32", action="store_true", default=None, help="let products on CUDA round to TF32"
    )
    parser.add_argument(
        "--kernel",
        choices=[each.value for each in Kernel],
        help="what computes HSTU layers on CUDA; default: the config's model_config.kernel, else pytorch",
    )
    parser.add_argument("--device", choices=[device.value for device in Device])


def add_spec_options(parser: argparse.ArgumentParser) -> None:
    """Add all the options that `spec_of` reads."""
    add_model_options(parser)
    parser.add_argument("--output", metavar="URI", dest="output_uri", type=_uri)
    parser.add_argument(
        "--target",
        action="append",
        metavar="NAME",
        help="what to compile for: cpu, avx2, avx512, cuda, sm_90, ...; may be repeated for a package each",
    )
    parser.add_argument("--ranks", type=int, metavar="N")
    parser.add_argument("--nodes", type=int, metavar="N", help="hosts that share the ranks; default: one")
    parser.add_argument(
        "--materialise-items",
        action="store_true",
        default=None,
        help="publish the vectors of all items of --item-input as parquet",
    )
    parser.add_argument(
        "--item-id-column", metavar="NAME", dest="item_id_column", help="what names an item in --item-input"
    )
    parser.add_argument(
        "--item-index",
        metavar="KIND",
        type=_index,
        help=f"and a FAISS index over them: {', '.join(INDEX_KINDS)}; its parameters go into --spec",
    )


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Add those that decide what the inputs of a package are."""
    parser.add_argument(
        "--spec", type=Path, metavar="FILE", help="the request, or a part, as JSON; options override it"
    )
    parser.add_argument(
        "--config", metavar="URI", type=named, help="pipeline config; a local file's text is sent along"
    )
    parser.add_argument("--family", metavar="NAME", help="a model family of one's own: docs/families.md")
    towers = [name.value for name in TowerName]
    parser.add_argument("--tower", action="append", dest="towers", choices=towers, help="may be repeated")
    parser.add_argument("--mode", choices=[mode.value for mode in Mode])
    parser.add_argument(
        "--tables",
        dest="table_layout",
        choices=[layout.value for layout in TableLayout],
        help="sharded, with --mode two_stage: each rank writes its rows of the tables beside a dense package",
    )
    parser.add_argument("--max-batch-size", type=int, metavar="N", dest="max_batch_size")
    parser.add_argument(
        "--table-dtype",
        action="append",
        metavar="[TABLE=]DTYPE",
        dest="table_dtypes",
        type=_table_dtype,
        help=f"keep the rows of all tables, or of one, in {', '.join(TableDtype)}; may be repeated",
    )


def spec_of(arguments: argparse.Namespace) -> ExportSpec:
    """The request: --spec's, with the options laid over it."""
    return request_of(arguments, ExportSpec)


def request_of(
    arguments: argparse.Namespace, kind: type[Spec], *, base: Mapping[str, JsonValue] | None = None
) -> Spec:
    """The same for a kind of request that asks for less; over `base`, if there is one."""
    given: dict[str, object] = {**(base or {})}
    if arguments.spec is not None:
        given |= _spec_file(arguments.spec)
    if arguments.config is not None:
        given |= {"config": None, "config_uri": None, **_config(arguments.config)}
    named = {name: getattr(arguments, name) for name in kind.model_fields if hasattr(arguments, name)}
    named.pop("config", None)
    named["tables"] = _tables(arguments, given.get("tables"))
    given |= {name: value for name, value in named.items() if value is not None}
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"])
        raise InvalidSpec(
            f"{where}: {in_words(first['msg'])}" if where else in_words(first["msg"]),
            hint="see --help",
            where=where,
        ) from error


def _spec_file(path: Path) -> dict[str, JsonValue]:
    """What --spec gives, which may be a part of a request."""
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
            hint="write the request's fields as one JSON object",
            where=str(path),
        ) from error


def _config(uri: str) -> dict[str, object]:
    """A local file is read here: the service may run elsewhere."""
    if "://" in uri:
        return {"config_uri": uri}
    return {"config": read_config(PlanRequest(config_uri=_uri(uri)))}


def _uri(given: str) -> str:
    """A plain path is made absolute, because the service has another working directory."""
    return given if "://" in named(given) else str(Path(given).absolute())


def named(given: str) -> str:
    """What is given, if it is anything: an empty URI would be the folder that one happens to be in."""
    if not given.strip():
        raise argparse.ArgumentTypeError("it is empty, as an unset variable is")
    return given


def _uris(given: str) -> str:
    """The same for each of several, which commas separate."""
    return ",".join(_uri(part.strip()) for part in named(given).split(",") if part.strip())


def _table_dtype(given: str) -> tuple[str | None, str]:
    """A table's name, or None for all, and a dtype."""
    name, equals, dtype = given.rpartition("=")
    if equals and not name:
        raise argparse.ArgumentTypeError(f"{given!r} names no table; for all tables give {dtype!r}")
    if dtype not in set(TableDtype):
        raise argparse.ArgumentTypeError(f"{dtype!r} is none of {', '.join(TableDtype)}")
    return name or None, dtype


def _tables(arguments: argparse.Namespace, given: object) -> dict[str, object] | None:
    """The `tables` of a request: what --spec gives, with the options laid over it; None without options."""
    named: Sequence[tuple[str | None, str]] = arguments.table_dtypes or ()
    if not named and arguments.table_layout is None:
        return None
    tables: dict[str, object] = {**given} if isinstance(given, Mapping) else {"layout": given or "packaged"}
    if arguments.table_layout is not None:
        tables["layout"] = arguments.table_layout
    before = tables.get("dtypes")
    one_by_one = {name: dtype for name, dtype in named if name is not None}
    if one_by_one:
        tables["dtypes"] = {**(before if isinstance(before, Mapping) else {}), **one_by_one}
    for name, dtype in named:
        if name is None:
            tables["dtype"] = dtype
    return tables


def _index(kind: str) -> dict[str, str]:
    """An index of a kind, its parameters left to their defaults."""
    if kind not in INDEX_KINDS:
        raise argparse.ArgumentTypeError(f"{kind!r} is none of {', '.join(INDEX_KINDS)}")
    return {"kind": kind}
