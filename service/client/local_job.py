"""A job of this machine as a service would answer it, so that it is shown like any other."""

import json

from jobs.model import Job
from service import schemas
from slipway.rest.answers import JobView
from slipway.rest.json_values import read


def answer_of(job: Job) -> JobView:
    """Return the job's view as a client has it."""
    return read(JobView, json.loads(schemas.JobView.of(job).model_dump_json()))
