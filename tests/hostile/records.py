"""Records of jobs in Redis that something else than Slipway has damaged."""

from pathlib import Path

from exporter.spec import TowerName
from jobs.control.control import JobControl, Plan
from jobs.queue import MemoryQueue
from jobs.stores.memory_store import MemoryJobStore
from jobs.stores.record import read_record, write_record, write_spec
from tests.hostile.kinds import hostile
from tests.jobs.factories import make_job, make_spec

RECORD = "job record in Redis"

# The parts of a record that are replaced, by the name of the damage.
RECORDS: dict[str, dict[str | bytes, str | bytes]] = {
    "empty texts": {"record": "", "spec": ""},
    "no JSON": {"record": "{"},
    "no text": {"record": b"\xff\xfe"},
    "a list": {"record": "[]"},
    "nested 100,000 deep": {"record": "[" * 100_000},
    "an unknown state": {"record": '{"state": "asleep"}'},
    "a version that is text": {"record": '{"version": "three"}'},
    "half a record": {"record": '{"version": 3, "id": "x", "towers": []}'},
    "towers that are a number": {"record": '{"version": 1, "towers": 5, "cold": 1}'},
    "a spec that is no JSON": {"spec": "{"},
    "a spec that is a list": {"spec": "[]"},
    "no spec": {"spec": "{}"},
    "a digest of another type": {"spec": '{"config_sha256": 5}'},
}


def read_damaged(damage: dict[str | bytes, str | bytes]) -> object:
    """Read a record with this damage as a store does, whose client replaces bytes that are no text."""
    job = make_job()
    parts = {
        str(name): text.decode(errors="replace") if isinstance(text, bytes) else text
        for name, text in damage.items()
    }
    stored = {"record": write_record(job), "spec": write_spec(job.spec), **parts}
    return read_record(job.id, stored["record"], stored["spec"])


for name, damage in RECORDS.items():

    @hostile(f"{name}, in a job record", reader=RECORD)
    def _(folder: Path, damage: dict[str | bytes, str | bytes] = damage) -> object:
        return read_damaged(damage)


@hostile("many configs of 4 MB with one key", reader="POST /exports")
def _(folder: Path) -> object:
    control = JobControl(
        MemoryJobStore(), MemoryQueue(), lambda spec: Plan(spec, (TowerName.USER,)), max_config_bytes=64 << 20
    )
    for number in range(30):
        control.submit(make_spec(config=f"{number:02}" * 2_000_000))
    return control
