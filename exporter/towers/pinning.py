"""The request for an export with everything in it that the export depends on, its config's text among it."""

from collections.abc import Sequence

from exporter.config.evaluation import read_evaluation
from exporter.errors import InvalidSpec
from exporter.spec import ExportSpec
from exporter.storage.uris import GATE_ROWS, require_sound_uris
from exporter.towers.plan import PlannedTower, TowerToExport


def pin_spec(spec: ExportSpec, config_text: str, planned: Sequence[TowerToExport]) -> ExportSpec:
    """Return the request with the config's text in place of its URI.

    A later change of the file then does not reach the export. The rows that the config names, whose path may
    be relative to the config, become `sample_input_uri`, and those that a release gate scores its `rows_uri`.

    Raises:
        InvalidSpec: a URI in the config is not sound, or there are no rows for the release gate.
    """
    rows = spec.sample_input_uri
    for tower in planned:
        if rows is None and isinstance(tower, PlannedTower) and not tower.name.reads_items:
            rows = _beside(tower.config.pipeline.train_input_path, spec.config_uri)
    gate = spec.release_gate
    if gate is not None and gate.rows_uri is None:
        gate = gate.model_copy(update={"rows_uri": _held_out_rows(spec, config_text)})
    pinned = spec.model_copy(
        update={
            "config": config_text,
            "config_uri": None,
            "sample_input_uri": rows,
            "release_gate": gate,
        }
    )
    require_sound_uris(pinned)  # the config has named rows
    return pinned


def _held_out_rows(spec: ExportSpec, config_text: str) -> str:
    """Return the rows that the config is evaluated on; that of a custom family says nothing known here."""
    named = "" if spec.family else read_evaluation(config_text).eval_input_path
    if not named.strip():
        raise InvalidSpec(
            "the release gate has no rows: neither its rows_uri nor the config's eval_input_path is set",
            hint="name a parquet file of held-out rows with their labels in release_gate.rows_uri",
            where=GATE_ROWS,
        )
    return _beside(named, spec.config_uri)


def _beside(paths: str, config_uri: str | None) -> str:
    """Resolve comma-separated paths of the config; relative ones start at the config's folder, if known."""
    if config_uri is None or "/" not in config_uri:
        return paths
    folder = config_uri.rpartition("/")[0]
    return ",".join(
        path if "://" in path or path.startswith("/") else f"{folder}/{path}"
        for path in (part.strip() for part in paths.split(","))
    )
