"""Put jobs that have ended into Redis: `python -m benchmarks.measure.store_jobs URL FIRST LAST < job.json`.

The jobs are like the queued one that is read, with the numbers from FIRST to LAST. The job store itself adds
and ends them; its scripts are sent to Redis many at a time. The ids of those that have ended are printed.
"""

import sys

from exporter.stages import Stage
from jobs.ids import JobId, new_job_id
from jobs.model import Job, JobState, TowerProgress, TowerState, VerificationSummary
from jobs.stores.redis_keys import OUTBOX_KEY
from jobs.stores.redis_store import RedisJobStore, connect

_QUEUED_EACH = 100  # one of this many stored jobs is still queued
_TOGETHER = 500  # jobs that are sent to Redis at once
_MODELS = 10_000


def main() -> int:
    url, first, last = sys.argv[1:]
    job = Job.model_validate_json(sys.stdin.read())
    sys.stdout.write("\n".join(store_jobs(url, job, int(first), int(last))))
    return 0


def store_jobs(url: str, like: Job, first: int, last: int) -> list[JobId]:
    """Store jobs whose config is in Redis already; return those that have ended."""
    client, ended = connect(url), []
    with client.pipeline(transaction=False) as pipe:
        together = RedisJobStore(pipe)
        for number in range(first, last + 1):
            job = like.model_copy(update={"id": new_job_id(), **_choices_of(number)})
            together.add(job, None)
            if number % _QUEUED_EACH:
                together.replace(job, end_job(job))
                ended.append(job.id)
            if number % _TOGETHER == 0 or number == last:
                pipe.delete(OUTBOX_KEY)  # their callbacks count as delivered
                pipe.execute()
    client.close()
    return ended


def _choices_of(number: int) -> dict[str, str]:
    """Return what distinguishes a job from others: its model, and the digest of its inputs."""
    return {"model": f"model-{number % _MODELS}", "content_key": f"{number:064x}"}


def end_job(job: Job) -> Job:
    """Return the job as it is after it has succeeded."""
    where = f"{job.spec.output_uri}/{job.id}"
    towers = tuple(
        TowerProgress(
            name=tower.name,
            state=TowerState.SUCCEEDED,
            stage=Stage.PUBLISH,
            stage_seconds=dict.fromkeys(
                (each for each in Stage if each not in (Stage.TABLES, Stage.ITEMS)), 1.234
            ),
            package_uri=f"{where}/{tower.name}/aoti/aoti_model.pt2",
            package_size=3_000_000,
            digest="0" * 64,
            code="warm",
            reused="request",
            verification=VerificationSummary(cases=30, passed=30, largest_difference=1e-6, tolerance=1e-4),
        )
        for tower in job.towers
    )
    ended = {"state": JobState.SUCCEEDED, "towers": towers, "revision": 20, "attempt": 1}
    times = {"started_at": job.created_at, "finished_at": job.created_at}
    return job.model_copy(update={**ended, **times, "manifest_uri": f"{where}/manifest.json"})


if __name__ == "__main__":
    sys.exit(main())
