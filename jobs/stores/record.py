"""Read and write a job's record as text, so that programs of different versions share one store.

A record is written in the oldest layout that can hold it, so that programs from before an upgrade can go on
with every job that uses nothing new. A record that a newer program wrote is left to programs of its version.
Version 3 holds the digest of the config, whose text lies under a key of its own; older ones hold the text.
The model's family lies beside the record, in a field that programs which do not know it leave alone.
"""

import json
from collections.abc import Set
from functools import cache

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from exporter.spec import ExportOptions
from jobs.errors import RecordTooNew, RecordUnreadable
from jobs.ids import JobId
from jobs.model import Job, TowerProgress
from jobs.spec import JobSpec, describe_config

VERSION = 3  # newest layout that this program can read
_NAMED = 100  # characters of a record that an error shows
_WITH_TEXT = 2  # newest layout whose spec holds the text of the config

_Fields = dict[str, JsonValue]
_FIELDS = TypeAdapter(_Fields)
_TOWERS = TypeAdapter(list[_Fields])


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Fields that programs of version 1 accept. Never change them: such programs are in use.
_JOB_V1 = _names(
    "version revision id config_uri owner running_limit retry_of content_key state towers attempt "
    "setbacks lease cancel_requested failure manifest_uri created_at updated_at started_at "
    "finished_at priority model labels callback_url"
)
_TOWER_V1 = _names(
    "name state stage stage_started_at fraction detail stage_seconds package_uri package_size digest "
    "verification failure"
)
_SPEC_V1 = _names(
    "config_uri config checkpoint_uri item_input_uri sample_input_uri output_uri towers mode device "
    "id_weights ranks max_batch_size"
)


_DIGEST = frozenset(JobSpec.model_fields) - frozenset(ExportOptions.model_fields)


def write_record(job: Job) -> str:
    """Return the record, without spec and family, in the oldest layout that can hold the job as stored."""
    fields = _dump_fields(job, _JOB_V1, exclude={"spec", "towers", "family"})
    towers = [_dump_tower(tower) for tower in job.towers]
    newer = [fields.keys() - _JOB_V1, _list_fields(job.spec, _SPEC_V1) - _SPEC_V1 - _DIGEST]
    newer += [tower.keys() - _TOWER_V1 for tower in towers]
    version = job.version if job.version > _WITH_TEXT else _WITH_TEXT if any(newer) else 1
    return json.dumps({**fields, "towers": towers, "version": version})


def write_spec(spec: JobSpec) -> str:
    """Return the spec as version 3 has it, without fields that have their defaults."""
    return json.dumps(_dump_fields(spec, frozenset()))


def read_record(job_id: JobId, record: str, spec: str) -> Job:
    """Return the job that is stored under this id; the text of its config is not kept.

    Raises:
        RecordTooNew: a newer program wrote the record.
        RecordUnreadable: the record is damaged.
    """
    try:
        job = _read_record(job_id, record, spec)
    except (ValueError, TypeError) as error:
        raise RecordUnreadable(job_id) from error
    if job.id != job_id:
        raise RecordUnreadable(job_id, f"names another job, {job.id[:_NAMED]}")
    return job


def has_config_text(job: Job) -> bool:
    """True if the stored spec of the job holds the text of its config, as before version 3."""
    return job.version <= _WITH_TEXT


def read_config(spec: str) -> str | None:
    """Return the text of the config in a spec of version 1 or 2; None if it holds none."""
    config = _FIELDS.validate_json(spec).get("config")
    return config if isinstance(config, str) else None


def _read_record(job_id: JobId, record: str, spec: str) -> Job:
    fields = _FIELDS.validate_json(record)
    if '"cold":' in record:  # programs differ in writing a blank after the colon
        record = _drop_retired_fields(fields)
    version = fields.get("version", 1)
    if not isinstance(version, int):
        raise TypeError("the version is no number")
    if version > VERSION:
        raise RecordTooNew(job_id, str(version)[:_NAMED])
    try:
        spec = _describe_inline_config(spec) if version <= _WITH_TEXT else spec
        job = Job.model_validate_json(f'{record[:-1]},"spec":{spec}}}')
    except ValidationError as error:
        unknown = [each for each in error.errors() if each["type"] == "extra_forbidden"]
        if not unknown:
            raise
        raise RecordTooNew(job_id, f"it has {unknown[0]['loc'][-1]}"[:_NAMED]) from error
    return job.model_copy(update={"version": max(version, _WITH_TEXT)})


def _describe_inline_config(spec: str) -> str:
    """Return a spec of version 1 or 2 with the digest of its config in place of the text."""
    fields = _FIELDS.validate_json(spec)
    config = str(fields.pop("config", None) or "")
    fields.pop("config_uri", None)
    return json.dumps({**fields, **describe_config(config)})


def _drop_retired_fields(fields: _Fields) -> str:
    """Return the record without `cold`, a retired field of towers that `code` has replaced."""
    towers = _TOWERS.validate_python(fields.get("towers", []))
    kept = [{name: value for name, value in tower.items() if name != "cold"} for tower in towers]
    return json.dumps({**fields, "towers": kept})


def _dump_tower(tower: TowerProgress) -> _Fields:
    """Return a tower's fields; a time is a number of seconds, as in version 1."""
    began = tower.stage_started_at
    return {**_dump_fields(tower, _TOWER_V1), "stage_started_at": began.timestamp() if began else None}


def _dump_fields(value: BaseModel, known: Set[str], exclude: Set[str] = frozenset()) -> _Fields:
    """Return the fields of `value` without newer ones that have their defaults."""
    return value.model_dump(mode="json", include=_list_fields(value, known) - exclude)


def _list_fields(value: BaseModel, known: Set[str]) -> set[str]:
    """Return the names of the fields of `value` without newer ones that have their defaults."""
    defaults = _defaults_of(type(value))
    return {name for name, default in defaults.items() if name in known or getattr(value, name) != default}


@cache
def _defaults_of(model: type[BaseModel]) -> dict[str, object]:
    fields = model.model_fields
    return {name: field.get_default(call_default_factory=True) for name, field in fields.items()}
