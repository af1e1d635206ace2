"""The invariants that must hold after every fault."""

import hashlib
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from exporter.manifest import MANIFEST_NAME, Manifest
from jobs.ids import JobId
from jobs.model import Job, JobState
from tests.faults.observer import steps_back
from tests.faults.s3 import requests_in
from tests.faults.stack import BUCKET, FaultStack

_PUBLISHED = {JobState.SUCCEEDED, JobState.PARTIALLY_SUCCEEDED}
TOLD_S = 30.0
_GONE_S = 15.0


def broken(stack: FaultStack, job_id: JobId, *, clock_set: bool = False) -> list[str]:
    """Return descriptions of the invariants that do not hold for a job that has ended."""
    return [
        *_one_end(stack, job_id),
        *_artifact(stack, stack.store.get(job_id)),
        *_written_once(stack, job_id),
        *_written_by_holders(stack, job_id, clock_set=clock_set),
        *_told(stack, job_id),
        *_nothing_left(stack),
    ]


def _one_end(stack: FaultStack, job_id: JobId) -> Iterator[str]:
    job, shown = stack.store.get(job_id), stack.client.get(job_id)
    if not job.state.is_final or shown.state is not job.state:
        yield f"the API says {shown.state}, the record {job.state}"
    yield from steps_back(stack.observer.seen[job_id])


def _artifact(stack: FaultStack, job: Job) -> Iterator[str]:
    """A manifest lies exactly where the job published, and everything it names is there and complete."""
    keys = set(_keys(stack, job))
    manifests = {key for key in keys if key.endswith(MANIFEST_NAME)}
    if job.state not in _PUBLISHED and keys:
        yield f"a {job.state} job left {sorted(keys)}"
    if job.state in _PUBLISHED and len(manifests) != 1:
        yield f"a {job.state} job has {len(manifests)} manifests"
    for key in manifests:
        root = key.removesuffix(MANIFEST_NAME)
        manifest = Manifest.model_validate_json(_read(stack, key))
        named = {root + ref.path: ref for tower in manifest.towers for ref in tower.all_files}
        if odd := keys ^ {*named, key}:
            yield f"the manifest and the store disagree on {sorted(odd)}"
        for name in named.keys() & keys:
            if hashlib.sha256(_read(stack, name)).hexdigest() != named[name].sha256:
                yield f"{name} is not what the manifest says"


def _written_once(stack: FaultStack, job_id: JobId) -> Iterator[str]:
    """No key of the artifact was overwritten while it existed, and its manifest was written once."""
    standing: Counter[str] = Counter()
    for request in requests_in(stack.s3_folder):
        if job_id not in request.path or not 200 <= request.status < 300:
            continue
        if request.method == "DELETE" and not request.query:
            standing[request.path] = 0
            if request.path.endswith(MANIFEST_NAME):
                yield f"{request.path} was deleted"
        elif request.stores:
            standing[request.path] += 1
            if standing[request.path] > 1:
                yield f"{request.path} was written while it stood"


def _written_by_holders(stack: FaultStack, job_id: JobId, *, clock_set: bool) -> Iterator[str]:
    """Every object that remains was written by an attempt that held the job when the store accepted it."""
    for request in requests_in(stack.s3_folder):
        if job_id not in request.path or not request.stores or request.held is None:
            continue
        if not request.held:
            yield f"{request.path} was written by attempt {request.attempt}, which had lost the job"
        elif request.remaining_s < 0 and not clock_set:
            yield f"{request.path} was written {-request.remaining_s:.1f} s after the lease had ended"


def _told(stack: FaultStack, job_id: JobId) -> Iterator[str]:
    deadline = time.monotonic() + TOLD_S
    while not stack.receiver.ends_told(job_id):
        if time.monotonic() > deadline:
            yield f"nobody was told of the end within {TOLD_S:g} s"
            return
        time.sleep(0.05)
    if len(ends := stack.receiver.ends_told(job_id)) > 1:
        yield f"its end was told under {len(ends)} ids"


def _nothing_left(stack: FaultStack) -> Iterator[str]:
    """No process, temporary folder or upload remains, once everything that is ending has ended."""
    deadline = time.monotonic() + _GONE_S
    while left := [*_processes(stack), *_folders(stack)]:
        if time.monotonic() > deadline:
            yield f"left behind: {', '.join(left)}"
            break
        time.sleep(0.1)
    for upload in stack.s3().list_multipart_uploads(Bucket=BUCKET).get("Uploads", ()):
        yield f"an upload of {upload['Key']} is unfinished"


def _processes(stack: FaultStack) -> Iterator[str]:
    """Yield processes whose command names a workspace: ranks, their guards and what they started."""
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        command = " ".join(process.info["cmdline"] or ())
        if f"{stack.work_dir}/" in command and process.info["status"] != psutil.STATUS_ZOMBIE:
            yield f"process {process.info['pid']}: {command[:120]}"


def _folders(stack: FaultStack) -> Iterator[str]:
    workers = [path for path in stack.work_dir.iterdir() if path.is_dir()]
    yield from (str(each) for worker in workers for each in worker.iterdir())
    yield from (str(path) for path in (stack.folder / "tmp").iterdir() if path.name.startswith("slipway"))


def _keys(stack: FaultStack, job: Job) -> list[str]:
    prefix = f"{_prefix(job)}{job.id}/"
    found = stack.s3().list_objects_v2(Bucket=BUCKET, Prefix=prefix)
    return [entry["Key"] for entry in found.get("Contents", ())]


def _prefix(job: Job) -> str:
    return urlsplit(job.spec.output_uri).path.strip("/") + "/"


def _read(stack: FaultStack, key: str) -> bytes:
    return stack.s3().get_object(Bucket=BUCKET, Key=key)["Body"].read()


def workspaces(stack: FaultStack) -> list[Path]:
    """Return the workspaces of the running attempts."""
    return [path for path in stack.work_dir.glob("*/*") if path.is_dir()]
