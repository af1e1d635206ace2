"""A job's record as text: its layouts, and how programs of different versions share one store.

A record is written in the oldest layout that can say what it holds, so that programs from before an upgrade
go on with everything that asks for nothing new. One that a newer program wrote is left alone: that program,
or another of its version, will see to it.
"""

import json
from collections.abc import Set

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from exporter.spec import ExportSpec
from jobs.errors import RecordTooNew
from jobs.model import Job, TowerProgress

VERSION = 2  # what this program can read

_Fields = dict[str, JsonValue]
_FIELDS = TypeAdapter(_Fields)
_TOWERS = TypeAdapter(list[_Fields])


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What programs that know only version 1 admit. Never to be changed: they are out there.
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


def write_record(job: Job) -> str:
    """The record without the spec, in the oldest layout that can hold the job."""
    fields = _dump_fields(job, _JOB_V1, exclude={"spec", "towers"})
    towers = [_dump_tower(tower) for tower in job.towers]
    newer = [fields.keys() - _JOB_V1, _dump_fields(job.spec, _SPEC_V1).keys() - _SPEC_V1]
    newer += [tower.keys() - _TOWER_V1 for tower in towers]
    return json.dumps({**fields, "towers": towers, "version": VERSION if any(newer) else 1})


def write_spec(spec: ExportSpec) -> str:
    """The spec, without what a program of version 1 would not know and need not."""
    return json.dumps(_dump_fields(spec, _SPEC_V1))


def read_record(record: str, spec: str) -> Job:
    """The job.

    Raises:
        RecordTooNew: a newer program wrote it.
    """
    fields = _FIELDS.validate_json(record)
    if '"cold":' in record:  # with or without a blank behind it, by the program that wrote it
        record = _drop_retired_fields(fields)
    version = fields.get("version", 1)
    if not isinstance(version, int) or version > VERSION:
        raise RecordTooNew(str(fields.get("id")), version)
    try:
        job = Job.model_validate_json(f'{record[:-1]},"spec":{spec}}}')
    except ValidationError as error:
        unknown = [each for each in error.errors() if each["type"] == "extra_forbidden"]
        if not unknown:
            raise
        raise RecordTooNew(str(fields.get("id")), f"it has {unknown[0]['loc'][-1]}") from error
    return job.model_copy(update={"version": VERSION})


def _drop_retired_fields(fields: _Fields) -> str:
    """The record without what a tower had once and has no more: `cold`, which `code` says as well."""
    towers = _TOWERS.validate_python(fields.get("towers", []))
    kept = [{name: value for name, value in tower.items() if name != "cold"} for tower in towers]
    return json.dumps({**fields, "towers": kept})


def _dump_tower(tower: TowerProgress) -> _Fields:
    """A tower's fields; a time is the number of seconds that it was in version 1."""
    began = tower.stage_started_at
    return {**_dump_fields(tower, _TOWER_V1), "stage_started_at": began.timestamp() if began else None}


def _dump_fields(value: BaseModel, known: Set[str], exclude: Set[str] = frozenset()) -> _Fields:
    """The value's fields, without newer ones that say nothing."""
    fields = type(value).model_fields
    silent = {
        name
        for name in fields.keys() - known
        if getattr(value, name) == fields[name].get_default(call_default_factory=True)
    }
    return value.model_dump(mode="json", exclude={*exclude, *silent})
