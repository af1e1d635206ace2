"""Messages that something else than Slipway has put into the worker's queue in Redis."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path

from exporter.errors import InvalidSpec
from jobs.celery_messages import JOIN_EXPORT, RUN_EXPORT, read_message_text
from jobs.celery_queue import QUEUE
from tests.hostile.kinds import hostile

MESSAGE = "message in Redis"
JOB = "0" * 26
_EMBED = dict.fromkeys(("callbacks", "errbacks", "chain", "chord"))
_CALL = {"job_id": JOB, "attempt": 1, "hosts": 2, "address": "h", "port": 9, "time_limit_s": 60.0}
_CONTENT = [[JOB], {}, _EMBED]
_NO_CHANGES: Mapping[str, object] = {}


def message(
    content: object = _CONTENT,
    *,
    headers: Mapping[str, object] = _NO_CHANGES,
    properties: Mapping[str, object] = _NO_CHANGES,
    whole: Mapping[str, object] = _NO_CHANGES,
) -> str:
    """A message about a job as Slipway's API puts it into the queue, with changes; None leaves a part out."""
    sound = {
        "body": base64.b64encode(json.dumps(content).encode()).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": _changed({"task": RUN_EXPORT, "id": JOB, "timelimit": [None, None]}, headers),
        "properties": _changed(
            {
                "delivery_tag": "tag",
                "delivery_info": {"exchange": "", "routing_key": QUEUE},
                "body_encoding": "base64",
                "priority": 3,
            },
            properties,
        ),
    }
    return json.dumps(_changed(sound, whole))


def _changed(sound: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in {**sound, **changes}.items() if value is not None}


def _call(**changes: object) -> str:
    return message([[{**_CALL, **changes}], {}, _EMBED], headers={"task": JOIN_EXPORT})


MALFORMED: Mapping[str, str | bytes] = {
    "no JSON": "not json",
    "no text": b"\xff\xfe\x00",
    "JSON nested 100,000 deep": "[" * 100_000,
    "a number": "42",
    "a list": "[1, 2, 3]",
    "an empty object": "{}",
    "a type of kombu's that cannot be made": '{"__type__": "uuid", "__value__": "x"}',
    "no headers": message(whole={"headers": None}),
    "headers that are a list": message(whole={"headers": [1]}),
    "no properties": message(whole={"properties": None}),
    "no delivery tag": message(properties={"delivery_tag": None}),
    "a delivery tag that is a list": message(properties={"delivery_tag": [1]}),
    "no delivery info": message(properties={"delivery_info": None}),
    "delivery info without a queue": message(properties={"delivery_info": {}}),
    "an unknown encoding": message(properties={"body_encoding": "base65"}),
    "a body that is no base64": message(whole={"body": "%%%"}),
    "a body that is a number": message(whole={"body": 5}),
    "a pickle": message(
        whole={"content-type": "application/x-python-serialize", "content-encoding": "binary"}
    ),
    "a compressed body": message(headers={"compression": "application/x-gzip"}, whole={"body": "eJw="}),
    "no task": message(headers={"task": None}),
    "a task that is a list": message(headers={"task": [RUN_EXPORT]}),
    "an unknown task": message(headers={"task": "os.system"}),
    "no id": message(headers={"id": None}),
    "an id that is a list": message(headers={"id": [1]}),
    "an expiry that is no date": message(headers={"expires": "soon"}),
    "a start that is no date": message(headers={"eta": "soon"}),
    "a start in a thousand years": message(headers={"eta": "3026-01-01T00:00:00+00:00"}),
    "limits of time that are text": message(headers={"timelimit": "long"}),
    "retries that are text": message(headers={"retries": "many"}),
    "no arguments": message([[], {}, _EMBED]),
    "too many arguments": message([[JOB, JOB], {}, _EMBED]),
    "an argument of another type": message([[{"job": 1}], {}, _EMBED]),
    "arguments that are a number": message([5, {}, _EMBED]),
    "an id with a line break": message([["a\nb"], {}, _EMBED]),
    "unknown keyword arguments": message([[JOB], {"x": 1}, _EMBED]),
    "a task to call afterwards": message([[JOB], {}, {**_EMBED, "chain": [{"task": "x"}]}]),
    "a body of two parts": message([[JOB], {}]),
    "a body that is an object": message({"args": [JOB]}),
    "a host call without a job": _call(job_id=None),
    "a host call to a port above 65535": _call(port=10**9),
    "a host call with endless patience": _call(time_limit_s=1e300),
    "a host call with another field": _call(command="sh"),
}


for name, text in MALFORMED.items():

    @hostile(f"{name}, in the queue", reader=MESSAGE)
    def _(folder: Path, text: str | bytes = text) -> object:
        """InvalidSpec stands for a message that is dropped."""
        try:
            return read_message_text(text.decode(errors="replace") if isinstance(text, bytes) else text)
        except ValueError as error:
            raise InvalidSpec(str(error)[:1000]) from error
