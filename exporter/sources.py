"""Where an export's inputs come from: config text, checkpoint, rows; fetched once per attempt."""

import fcntl
import hashlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Literal

from exporter.checkpoint.read import Checkpoint, fetch_checkpoint, open_checkpoint
from exporter.data.batch import Rows, read_rows
from exporter.errors import InvalidPipelineConfig
from exporter.manifest import SourceRef
from exporter.planning import PlannedTower
from exporter.spec import ExportSpec, TowerName
from exporter.storage.store import read_uri

_MAX_CONFIG_BYTES = 4_000_000


def read_config(spec: ExportSpec) -> str:
    """The pipeline config's text, given inline or by URI."""
    if spec.config is not None:
        return spec.config
    assert spec.config_uri is not None
    try:
        return read_uri(spec.config_uri, limit=_MAX_CONFIG_BYTES).decode()
    except UnicodeDecodeError as error:
        raise InvalidPipelineConfig(
            f"not text: {error}", hint="give a pipeline.config in protobuf text format", where=spec.config_uri
        ) from error


def config_source(spec: ExportSpec, text: str) -> SourceRef:
    return SourceRef(
        role="config", uri=spec.config_uri or "inline", sha256=hashlib.sha256(text.encode()).hexdigest()
    )


def resolve_input_path(path: str, spec: ExportSpec) -> str:
    """`train_input_path` as a URI: a relative one is relative to the folder the config came from."""
    if "://" in path or PurePosixPath(path).is_absolute() or spec.config_uri is None:
        return path
    return spec.config_uri.rpartition("/")[0] + "/" + path if "/" in spec.config_uri else path


def open_rows(planned: PlannedTower, spec: ExportSpec) -> tuple[Rows, SourceRef]:
    """Real rows for a tower: only the item tower reads `item_input_uri`."""
    role: Literal["item_input", "sample_input"]
    if planned.config.name is TowerName.ITEM:
        role, uri = "item_input", spec.item_input_uri
    else:
        role = "sample_input"
        uri = spec.sample_input_uri or resolve_input_path(planned.config.pipeline.train_input_path, spec)
    assert uri is not None  # plan_export refuses a spec without it
    rows = read_rows(uri, planned.config.pipeline.features)
    return rows, SourceRef(role=role, uri=rows.uri, sha256=rows.sha256)


def fetch_checkpoint_once(spec: ExportSpec, workspace: Path) -> tuple[Checkpoint, SourceRef]:
    """The attempt's checkpoint, opened; whichever rank comes first fetches it for all."""
    folder = workspace / "checkpoint"
    folder.mkdir(exist_ok=True)

    def fetch() -> SourceRef:
        path = fetch_checkpoint(spec.checkpoint_uri, folder / "files")
        (folder / "path").write_text(str(path))
        return SourceRef(role="checkpoint", uri=spec.checkpoint_uri, sha256=open_checkpoint(path).digest())

    source = _once(folder / "source.json", fetch)
    return open_checkpoint(Path((folder / "path").read_text())), source


def _once(result: Path, produce: Callable[[], SourceRef]) -> SourceRef:
    """Run `produce` in one rank only; the others wait and read what it wrote."""
    with result.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            result.write_text(produce().model_dump_json())
    return SourceRef.model_validate_json(result.read_text())
