"""Settings of two sides, as mappings from place to text, and what differs between them."""

import difflib
from collections.abc import Mapping

from exporter.config.settings_by_path import settings_by_path
from exporter.errors import InvalidPipelineConfig
from exporter.manifest import Manifest, TensorEntry, TowerEntry
from exporter.redaction import shorten
from exporter.reports.comparison import LONGEST_TEXT, MOST_CHANGES, Change, Changes


def compare_settings(old: Mapping[str, str], new: Mapping[str, str]) -> Changes:
    """Return what was removed, added or changed, in the order of the old side and then of the new one."""
    places = [place for place in dict.fromkeys((*old, *new)) if old.get(place) != new.get(place)]
    return _changes([(place, old.get(place), new.get(place)) for place in places])


def compare_configs(old: str, new: str) -> Changes:
    """Return the settings that differ between two configs; lines where one is no pipeline config."""
    if old == new:
        return Changes()
    try:
        return compare_settings(settings_by_path(old), settings_by_path(new))
    except InvalidPipelineConfig:  # of a custom family, whose config may be anything
        return _compare_lines(old.splitlines(), new.splitlines())


def _compare_lines(old: list[str], new: list[str]) -> Changes:
    found: list[tuple[str, str | None, str | None]] = []
    matcher = difflib.SequenceMatcher(a=old, b=new, autojunk=len(old) + len(new) > 2000)
    for kind, first, end, new_first, new_end in matcher.get_opcodes():
        if kind == "equal":
            continue
        for at in range(max(end - first, new_end - new_first)):
            removed = old[first + at] if first + at < end else None
            added = new[new_first + at] if new_first + at < new_end else None
            place = f"line {first + at + 1}" if removed is not None else f"new line {new_first + at + 1}"
            found.append((place, removed, added))
    return _changes(found)


def _changes(found: list[tuple[str, str | None, str | None]]) -> Changes:
    listed = tuple(
        Change(place=shorten(place, LONGEST_TEXT), old=_fit(old), new=_fit(new))
        for place, old, new in found[:MOST_CHANGES]
    )
    return Changes(listed=listed, total=len(found))


def _fit(value: str | None) -> str | None:
    return None if value is None else shorten(value, LONGEST_TEXT)


def describe_artifact(manifest: Manifest) -> dict[str, str]:
    """Return where and from what an artifact was made, for a comparison with another one."""
    package = manifest.family_package
    described = {
        "family": manifest.family,
        "mode": manifest.mode,
        "device": manifest.device,
        "architecture": manifest.architecture,
        "max_batch_size": str(manifest.max_batch_size),
        "op_libraries": ", ".join(manifest.op_libraries),
    }
    if package is not None:
        described["family_package"] = f"{package.distribution} {package.version}"
    for name, version in manifest.versions.model_dump().items():
        described[f"versions.{name}"] = str(version)
    for source in manifest.sources:
        described[f"sources.{source.role}"] = source.uri
        described[f"sources.{source.role}.sha256"] = source.sha256
    return described


def describe_interface(entry: TowerEntry) -> dict[str, str]:
    """Return a tower's dims, inputs, outputs and precision, for a comparison with another one."""
    described = {
        "view": entry.view,
        "precision": entry.precision,
        "tf32": str(entry.tf32),
        "kernel": entry.kernel,
        "id_weights": entry.id_weights or "",
        "passes": ", ".join(applied.asked.model_dump_json() for applied in entry.passes),
        "inferred_ops": ", ".join(op.name for op in entry.inferred_ops),
        "packages": f"sparse ({entry.sparse.kind}), dense"
        if entry.sparse
        else "dense, sharded tables"
        if entry.tables
        else "one",
    }
    for dim in entry.dims:
        high = "any" if dim.high is None else str(dim.high)
        described[f"dims.{dim.name}"] = f"{dim.low} to {high}"
    for kind, tensors in (("inputs", entry.inputs), ("outputs", entry.outputs)):
        for number, tensor in enumerate(tensors):
            described[f"{kind}.{tensor.name}"] = f"{_shape(tensor)}, place {number}"
    return described


def _shape(tensor: TensorEntry) -> str:
    return " × ".join((tensor.dtype, *map(str, tensor.shape)))
