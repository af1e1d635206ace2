"""Planning at submit: read the pipeline config, and find what is wrong with it before anything runs."""

from exporter.errors import InvalidPipelineConfig
from exporter.planning import plan_export
from exporter.spec import ExportSpec
from exporter.storage.store import open_store, split_uri
from jobs.control import Plan

_MAX_CONFIG_BYTES = 4_000_000


def plan(spec: ExportSpec) -> Plan:
    """The config's text and the towers it comes to; raises what makes the spec impossible."""
    text = _config_text(spec)
    towers = plan_export(spec, text)
    return Plan(config_text=text, towers=tuple(tower.config.name for tower in towers))


def _config_text(spec: ExportSpec) -> str:
    if spec.config is not None:
        return spec.config
    if spec.config_uri is None:
        raise AssertionError("ExportSpec admits no spec without a config")
    folder, name = split_uri(spec.config_uri)
    data = open_store(folder).read(name, limit=_MAX_CONFIG_BYTES)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidPipelineConfig(
            f"{spec.config_uri} is not text: {error}",
            hint="give the URI of a pipeline.config in protobuf text format",
            where="config_uri",
        ) from error
