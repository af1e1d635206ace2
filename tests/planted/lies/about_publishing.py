"""Lies about the steps behind the compiler: manifest, files beside the packages, uploads, item vectors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from exporter.artifact.read import file_ref
from exporter.items.index import build_index
from exporter.items.vector_files import VectorsWriter, read_groups
from exporter.manifest import Manifest, TensorEntry, TowerEntry
from exporter.pipeline import export, manifest_entry, publish
from exporter.pipeline.samples import SampleKeeper, WrittenSamples
from exporter.samples.entry import SamplesEntry
from exporter.storage.local import LocalStore
from tests.planted.lies.lie import Lie, Plant

_VECTORS = {
    "towers": ["item"],
    "materialise_items": True,
    "item_id_column": "user",
    "item_index": {"kind": "flat"},
}


def _change_result(place: object, name: str, change: Callable[..., Any]) -> Plant:
    """Plant a change of what a function returns: `change` takes its result, and then its arguments."""

    @contextmanager
    def plant() -> Iterator[None]:
        honest = getattr(place, name)

        def lie(*given: Any, **named: Any) -> Any:
            return change(honest(*given, **named), *given)

        with mock.patch.object(place, name, lie):
            yield

    return plant


def _in_entry(**changes: Callable[[TowerEntry], object]) -> Plant:
    """Plant changes of fields of a tower's entry."""

    def change(entry: TowerEntry, *given: object) -> TowerEntry:
        return entry.model_copy(update={name: made(entry) for name, made in changes.items()})

    return _change_result(export, "make_tower_entry", change)


def _change_answer(written: WrittenSamples | None, *given: object) -> WrittenSamples:
    """Change an answer in the file, with the file's digest in the entry."""
    assert written is not None
    tensors = load_file(written.file)
    key = min(name for name in tensors if name.startswith("outputs/"))
    tensors[key] = tensors[key] + 1
    save_file(tensors, written.file)
    ref = file_ref(written.entry.file.path, written.file)
    return replace(written, entry=written.entry.model_copy(update={"file": ref}))


def _allow_more(entry: TowerEntry) -> SamplesEntry:
    assert entry.samples is not None
    more = ({name: 2 * each for name, each in case.allowed.items()} for case in entry.samples.cases)
    cases = [
        case.model_copy(update={"allowed": allowed})
        for case, allowed in zip(entry.samples.cases, more, strict=True)
    ]
    return entry.samples.model_copy(update={"cases": tuple(cases)})


def _swap_names(tensors: Sequence[TensorEntry]) -> tuple[TensorEntry, ...]:
    first, second, *others = tensors
    return (
        first.model_copy(update={"name": second.name}),
        second.model_copy(update={"name": first.name}),
        *others,
    )


def _change_first_package(manifest: Manifest, *given: object) -> Manifest:
    entry, *others = manifest.towers
    package = entry.package.model_copy(update={"size": entry.package.size + 1})
    return manifest.model_copy(update={"towers": (entry.model_copy(update={"package": package}), *others)})


def _change_last_file(files: Mapping[str, Path], *given: object) -> Mapping[str, Path]:
    last = list(files.values())[-1]
    last.write_bytes(last.read_bytes() + b" ")
    return files


def _damage(change: Callable[[bytes], bytes], suffix: str) -> Plant:
    """Plant a store that keeps other bytes of a file than it was sent."""

    def patched() -> Any:
        honest = LocalStore.put

        def put(store: LocalStore, source: Path, key: str, *given: Any, **named: Any) -> None:
            honest(store, source, key, *given, **named)
            if key.endswith(suffix):
                stored = Path(store.uri_of(key).removeprefix("file://"))
                stored.chmod(0o600)
                stored.write_bytes(change(stored.read_bytes()))

        return mock.patch.object(LocalStore, "put", put)

    return patched


def _flip_middle(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def _write_items(change: Callable[[pa.Array, NDArray[np.float32]], tuple[pa.Array, Any]]) -> Plant:
    """Plant a writer of items that writes other ids or vectors than it is given."""

    def patched() -> Any:
        honest = VectorsWriter.write

        def write(writer: VectorsWriter, ids: pa.Array, vectors: NDArray[np.float32]) -> None:
            honest(writer, *change(ids, vectors))

        return mock.patch.object(VectorsWriter, "write", write)

    return patched


def _flip_bit(ids: pa.Array, vectors: NDArray[np.float32]) -> tuple[pa.Array, Any]:
    bits = vectors.copy().view(np.uint32)
    bits[17, 3] ^= 1
    return ids, bits.view(np.float32)


def _stale_index() -> Any:
    """Plant an index over vectors of another export, which lie in other files."""

    def build(request: Any, progress: Any) -> Any:
        [group] = read_groups(request.parts)
        folder = request.output.parent / "earlier"
        folder.mkdir()
        with VectorsWriter(folder, "user", group.ids.type, width=request.width) as writer:
            writer.write(group.ids, group.vectors[::-1])
        return build_index(request.model_copy(update={"parts": tuple(writer.parts)}), progress)

    return mock.patch("exporter.items.materialise.build_index", build)


def _scorer(name: str, does: str, plant: Plant, code: str, *says: str) -> Lie:
    return Lie(name=name, does=does, plant=plant, code=code, says=says, family="ScorerFamily", reuses=True)


def _item(name: str, does: str, plant: Plant, code: str, *says: str) -> Lie:
    return Lie(
        name=name,
        does=does,
        plant=plant,
        code=code,
        says=says,
        family="ItemFamily",
        spec=_VECTORS,
        reuses=True,
    )


LIES = (
    _scorer(
        "manifest_input_order",
        "the manifest gives two inputs of one shape in the other order",
        _change_result(manifest_entry, "tensor_entries", lambda entries, plan: _swap_names(entries)),
        "manifest_wrong",
        "inputs",
        "price, age",
    ),
    _scorer(
        "manifest_dtype",
        "the manifest gives another dtype of an input",
        _in_entry(
            inputs=lambda entry: (
                entry.inputs[0].model_copy(update={"dtype": "float64"}),
                *entry.inputs[1:],
            )
        ),
        "manifest_wrong",
        "inputs",
        "float64",
    ),
    _scorer(
        "manifest_dim",
        "the manifest promises twice the rows that the package takes",
        _in_entry(
            dims=lambda entry: tuple(
                dim.model_copy(update={"high": (dim.high or 0) * 2}) for dim in entry.dims
            )
        ),
        "manifest_wrong",
        "dims",
        "batch is 1 to 1024",
    ),
    _scorer(
        "manifest_outputs",
        "the manifest gives another name of an output",
        _in_entry(outputs=lambda entry: (entry.outputs[0].model_copy(update={"name": "value"}),)),
        "manifest_wrong",
        "outputs",
    ),
    _scorer(
        "manifest_demands",
        "the manifest leaves out what the package demands of its inputs, or invents it",
        _in_entry(demands=lambda entry: (*entry.demands, "price is positive")),
        "manifest_wrong",
        "demands",
    ),
    _scorer(
        "manifest_digest",
        "the manifest gives the digest of another package",
        _in_entry(package=lambda entry: entry.package.model_copy(update={"sha256": "0" * 64})),
        "manifest_wrong",
        "model/aoti/aoti_model.pt2",
        "000000000000",
    ),
    _scorer(
        "manifest_size",
        "the manifest of all towers gives another size of a package than its entry",
        _change_result(publish, "make_manifest", _change_first_package),
        "manifest_wrong",
        "model tower",
    ),
    _scorer(
        "other_tower",
        "the tower is published under the name of another one",
        _in_entry(name=lambda entry: "item"),
        "manifest_wrong",
        "name: item, and the tower is model",
    ),
    _scorer(
        "config_beside",
        "another config is written beside the package than was rendered",
        _change_result(export, "write_tower_files", _change_last_file),
        "manifest_wrong",
        "pipeline.config",
        "rendered",
    ),
    _scorer(
        "sample_answer",
        "the file of sample requests holds another answer than eager's",
        _change_result(SampleKeeper, "write", _change_answer),
        "manifest_wrong",
        "samples: outputs/batch_1/",
        "is not what the gate has compared",
    ),
    _scorer(
        "sample_allowed",
        "the manifest lets a server's answers differ by more than the gate did",
        _in_entry(samples=_allow_more),
        "manifest_wrong",
        "samples: the cases are not those that the gate has passed",
    ),
    _scorer(
        "store_flips",
        "the store keeps another bit of a package",
        _damage(_flip_middle, ".pt2"),
        "storage_error",
        "aoti_model.pt2",
        "not stored as it was sent",
    ),
    _scorer(
        "store_cuts",
        "the store keeps all but the last byte of a config",
        _damage(lambda data: data[:-1], "pipeline.config"),
        "storage_error",
        "pipeline.config",
        "not stored as it was sent",
    ),
    _item(
        "vector_bit",
        "one bit of one item's vector is written wrongly",
        _write_items(_flip_bit),
        "verification_failed",
        "row 17, item 17",
    ),
    _item(
        "ids_shifted",
        "ids are written one row further than their vectors",
        _write_items(
            lambda ids, vectors: (
                pa.concat_arrays([ids.slice(len(ids) - 1), ids.slice(0, len(ids) - 1)]),
                vectors,
            )
        ),
        "verification_failed",
        "row 0 was written as item 47, and is 0",
    ),
    _item(
        "vectors_reversed",
        "vectors are written in another order than their ids",
        _write_items(lambda ids, vectors: (ids, vectors[::-1].copy())),
        "verification_failed",
        "row 0, item 0",
    ),
    _item(
        "stale_index",
        "the index is built over the vectors of an earlier export",
        _stale_index,
        "index_failed",
        "other files of vectors",
    ),
)
