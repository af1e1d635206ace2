"""Measure the service: accepted jobs per second, polls and pages among many jobs, time to the first stage.

The benchmark runs the real API and a redis-server over loopback. Polls go in turn to services that hold
different numbers of jobs, with and without an entity tag. So do pages of the list. Redis says how much memory
the jobs take. Accepted jobs are compared with bare requests, and their processor time is measured. With
a worker, it times from the POST until the job's record names a stage, and compares that with importing torch
in a new process.
"""

import functools
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from matplotlib.figure import Figure
from pydantic import BaseModel

from benchmarks.harness.command import Run, build_parser, run_benchmark
from benchmarks.harness.plots import Titles, draw_bars
from benchmarks.harness.report import Report, Table
from benchmarks.harness.statistics import Spread, percentile, ratios
from benchmarks.measure.api_process import Api, running_api
from benchmarks.measure.http_load import HttpConnection, per_second
from benchmarks.measure.models import demo_model
from benchmarks.measure.process_memory import processor_seconds
from exporter.spec import ExportSpec
from launcher.up import running_stack
from slipway.client import Client
from slipway.rest.json_values import to_text

_STORED, _FEW_STORED = (1, 1_000, 100_000, 1_000_000), (1, 100, 1_000)
_CLIENTS = (1, 4)
_POLLS, _PAGES, _REQUESTS = 500, 200, 1000  # number of each kind in a round
_PAGE = 5  # jobs; the fewest of which there are pages in every state
_LEAST = 100 * _PAGE  # jobs that a service has to hold for full pages: a hundredth of them is queued
_LOOK_S = 0.02
_STAGE_S = 120.0


class Polls(BaseModel):
    """Status polls of one service, by round, in milliseconds; ratios are to the service with fewest jobs."""

    stored: int
    answered: str  # "200", or "304" if the entity tag was sent
    p50: Spread
    p99: Spread
    p50_ratio: Spread
    p99_ratio: Spread


class Pages(BaseModel):
    """Pages of GET /exports, by round, in milliseconds; ratios are to the service with fewest jobs."""

    stored: int
    kind: str
    p50: Spread
    ratio: Spread


class Memory(BaseModel):
    """Memory of the stored jobs in Redis, with the indexes they are in and without logs."""

    stored: int
    bytes_each: float


class Accepted(BaseModel):
    """Jobs accepted and bare requests per second, by round, and milliseconds of processor time for a job."""

    clients: int
    jobs: Spread
    bare: Spread
    ratio: Spread  # accepted jobs to bare requests
    api: Spread
    redis: Spread
    sender: Spread  # of the benchmark, which sends the requests


class FirstStage(BaseModel):
    """Seconds from the POST, by round."""

    running: Spread  # until a worker had the job
    stage: Spread  # until a tower was in a stage
    importing: Spread  # importing torch in a new Python process
    ratio: Spread  # `stage` to `importing`


class ServiceFigures(BaseModel):
    """Figures of polls, accepted jobs and the first stage."""

    polls: tuple[Polls, ...]
    pages: tuple[Pages, ...]
    memory: tuple[Memory, ...]
    accepted: tuple[Accepted, ...]
    first_stage: FirstStage


def main() -> int:
    parser = build_parser("service", __doc__)
    parser.add_argument(
        "--most",
        type=int,
        default=max(_STORED),
        metavar="N",
        help="leave out services with more than N jobs; default: %(default)s",
    )
    given = parser.parse_args()
    return run_benchmark("service", given, functools.partial(measure, most=given.most))


def measure(run: Run, most: int) -> Report:
    """Measure polls, then accepted jobs on the service with the fewest jobs, then a complete stack."""
    spec = demo_model(run.folder).spec(run.folder, seed=1)
    inline = spec.model_copy(update={"config": demo_model(run.folder).config, "config_uri": None})
    with ExitStack() as running:
        apis = []
        for stored in (each for each in (_FEW_STORED if run.quick else _STORED) if each <= most):
            folder = run.folder / f"api-{stored}"
            folder.mkdir()
            apis.append(running.enter_context(running_api(folder, inline, stored=stored)))
            run.say(f"{stored} jobs stored")
        polls, pages = _poll(run, apis), _list_pages(run, apis)
        memory = tuple(
            Memory(stored=api.stored, bytes_each=api.redis_bytes / api.stored)
            for api in apis
            if api.stored >= _LEAST
        )
        accepted = tuple(_accept_jobs(run, apis[0], inline, clients) for clients in _CLIENTS)
    result = ServiceFigures(
        polls=polls,
        pages=pages,
        memory=memory,
        accepted=accepted,
        first_stage=_first_stage(run, spec),
    )
    return Report(figures=result, tables=tables(result), draw=functools.partial(draw, result))


def _poll(run: Run, apis: Sequence[Api]) -> tuple[Polls, ...]:
    """Poll each service in turn, once for a full answer and once with the entity tag."""
    kinds = [(api, expect) for api in apis for expect in (200, 304)]
    p50: dict[tuple[int, int], list[float]] = {(api.stored, expect): [] for api, expect in kinds}
    p99: dict[tuple[int, int], list[float]] = {key: [] for key in p50}
    for number in range(run.rounds):
        times: dict[tuple[int, int], list[float]] = {key: [] for key in p50}
        with ExitStack() as connected:
            callers = [connected.enter_context(HttpConnection(api.port)) for api in apis]
            for poll in range(20 if run.quick else _POLLS):
                for place in range(len(apis)):
                    turn = (place + poll) % len(apis)  # so that no service always follows the same other
                    api, caller = apis[turn], callers[turn]
                    path = f"/exports/{api.some[poll % len(api.some)]}"
                    full, tag = caller.get(path, {}, expect=200)
                    short, _ = caller.get(path, {"If-None-Match": tag}, expect=304)
                    times[api.stored, 200].append(full)
                    times[api.stored, 304].append(short)
        for key, measured in times.items():
            p50[key].append(percentile(measured, 0.5))
            p99[key].append(percentile(measured, 0.99))
        run.say(f"polls, round {number + 1}")
    emptiest = apis[0].stored
    return tuple(
        Polls(
            stored=stored,
            answered=str(expect),
            p50=Spread.of(p50[stored, expect]),
            p99=Spread.of(p99[stored, expect]),
            p50_ratio=ratios(p50[stored, expect], p50[emptiest, 200]),
            p99_ratio=ratios(p99[stored, expect], p99[emptiest, 200]),
        )
        for stored, expect in p50
    )


def _list_pages(run: Run, apis: Sequence[Api]) -> tuple[Pages, ...]:
    """Ask each service in turn for its newest jobs, for the queued ones, and for those behind an old one."""
    full = [api for api in apis if api.stored >= _LEAST]
    kinds: dict[str, Callable[[Api], str]] = {
        "newest": lambda api: "",
        "queued": lambda api: "&state=queued",
        "from the middle": lambda api: f"&cursor={sorted(api.some)[len(api.some) // 2]}",
    }
    p50: dict[tuple[int, str], list[float]] = {(api.stored, kind): [] for kind in kinds for api in full}
    for number in range(run.rounds):
        times: dict[tuple[int, str], list[float]] = {key: [] for key in p50}
        with ExitStack() as connected:
            callers = [connected.enter_context(HttpConnection(api.port)) for api in full]
            for page in range(5 if run.quick else _PAGES):
                for place in range(len(full)):
                    api, caller = full[turn := (place + page) % len(full)], callers[turn]
                    for kind, chosen in kinds.items():
                        asked = f"/exports?limit={_PAGE}{chosen(api)}"
                        times[api.stored, kind].append(caller.get(asked, {}, expect=200)[0])
        for key, measured in times.items():
            p50[key].append(percentile(measured, 0.5))
        run.say(f"pages, round {number + 1}")
    return tuple(
        Pages(stored=stored, kind=kind, p50=Spread.of(each), ratio=ratios(each, p50[full[0].stored, kind]))
        for (stored, kind), each in p50.items()
    )


def _accept_jobs(run: Run, api: Api, spec: ExportSpec, clients: int) -> Accepted:
    """Post jobs and send bare requests in turn."""
    body = spec.model_dump_json(exclude_unset=True, exclude_none=True).encode()
    requests = 20 if run.quick else _REQUESTS
    jobs, bare = [], []
    worked: tuple[list[float], ...] = [], [], []
    for _ in range(run.rounds):
        bare.append(per_second(api.port, "/healthz", None, clients=clients, requests=requests, expect=200))
        before = _processor_times(api)
        jobs.append(per_second(api.port, "/exports", body, clients=clients, requests=requests, expect=202))
        for each, seconds, begun in zip(worked, _processor_times(api), before, strict=True):
            each.append((seconds - begun) / requests * 1e3)
    run.say(f"{clients} clients: {Spread.of(jobs).text()} jobs a second")
    in_api, in_redis, in_sender = map(Spread.of, worked)
    return Accepted(
        clients=clients,
        jobs=Spread.of(jobs),
        bare=Spread.of(bare),
        ratio=ratios(jobs, bare),
        api=in_api,
        redis=in_redis,
        sender=in_sender,
    )


def _processor_times(api: Api) -> tuple[float, float, float]:
    """Return the processor seconds that the API, its Redis, and this process have taken."""
    return processor_seconds(api.process), processor_seconds(api.redis_process), time.process_time()


def _first_stage(run: Run, spec: ExportSpec) -> FirstStage:
    running, stage, importing = [], [], []
    environment = {"SLIPWAY_CODE_CACHE": "off", "TORCHINDUCTOR_CACHE_DIR": str(run.folder / "compiler")}
    with running_stack(run.folder / "stack", environment=environment) as stack:
        client = Client(stack.url)
        for number in range(2 if run.quick else run.rounds):
            begun = time.monotonic()
            subprocess.run([sys.executable, "-c", "import torch"], check=True)
            importing.append(time.monotonic() - begun)
            to_running, to_stage = _one_job(client, spec)
            running.append(to_running)
            stage.append(to_stage)
            run.say(f"first stage, round {number + 1}: {to_stage:.1f} s")
    return FirstStage(
        running=Spread.of(running),
        stage=Spread.of(stage),
        importing=Spread.of(importing),
        ratio=ratios(stage, importing),
    )


def _one_job(client: Client, spec: ExportSpec) -> tuple[float, float]:
    """Return seconds until the job ran and until a tower was in a stage; then cancel the job."""
    begun = time.monotonic()
    job = client.submit(spec)
    running = None
    while time.monotonic() - begun < _STAGE_S:
        job = client.get_if_changed(job)
        if running is None and job.attempt:
            running = time.monotonic() - begun
        if running is not None and any(tower.stage for tower in job.towers):
            stage = time.monotonic() - begun
            client.cancel(job.id)
            while not client.get(job.id).state.is_final:
                time.sleep(_LOOK_S)
            return running, stage
        if job.state.is_final:
            break
        time.sleep(_LOOK_S)
    raise SystemExit(f"the job came to no stage: {to_text(job)[:2000]}")


def tables(result: ServiceFigures) -> tuple[Table, ...]:
    """Return a table for each question."""
    polls = Table(
        title="A status poll, in milliseconds; ratios to the full answer with the fewest jobs stored",
        columns=("jobs stored", "answer", "p50", "p99", "p50 ratio", "p99 ratio"),
        rows=tuple(
            (f"{e.stored:,}", e.answered, *(s.text() for s in (e.p50, e.p99, e.p50_ratio, e.p99_ratio)))
            for e in result.polls
        ),
    )
    pages = Table(
        title=f"A page of {_PAGE} jobs, in milliseconds; ratios to the same page with the fewest jobs stored",
        columns=("jobs stored", "page", "p50", "ratio"),
        rows=tuple((f"{e.stored:,}", e.kind, e.p50.text(), e.ratio.text()) for e in result.pages),
    )
    memory = Table(
        title="Memory in Redis of jobs that have ended, without logs",
        columns=("jobs stored", "bytes a job", "gigabytes for a million"),
        rows=tuple(
            (f"{e.stored:,}", f"{e.bytes_each:,.0f}", f"{e.bytes_each / 1e3:.2f}") for e in result.memory
        ),
    )
    accepted = Table(
        title="Requests per second, and milliseconds of processor time that an accepted job takes",
        columns=("clients", "jobs accepted", "bare requests", "ratio", "API", "Redis", "benchmark"),
        rows=tuple(
            (str(e.clients), *(s.text() for s in (e.jobs, e.bare, e.ratio, e.api, e.redis, e.sender)))
            for e in result.accepted
        ),
    )
    first = result.first_stage
    spreads = (first.running, first.stage, first.importing, first.ratio)
    stage = Table(
        title="Seconds from the POST; the ratio is of the second to the third",
        columns=("until a worker had it", "until a tower was in a stage", "importing torch, alone", "ratio"),
        rows=(tuple(each.text() for each in spreads),),
    )
    return (polls, pages, memory, accepted, stage)


def draw(result: ServiceFigures, figure: Figure) -> None:
    """Plot the polls on the left and the rates on the right."""
    left, right = figure.subplots(1, 2)
    full, short = (
        [each for each in result.polls if each.answered == answered] for answered in ("200", "304")
    )
    series = {"200, p50": [e.p50 for e in full], "200, p99": [e.p99 for e in full]}
    series |= {"304, p50": [e.p50 for e in short], "304, p99": [e.p99 for e in short]}
    groups = [f"{each.stored:,}" for each in full]
    draw_bars(left, groups, series, Titles(title="A status poll", x="jobs stored", y="milliseconds"))
    rates = {
        "jobs accepted": [e.jobs for e in result.accepted],
        "bare requests": [e.bare for e in result.accepted],
    }
    clients = [f"{e.clients} clients" for e in result.accepted]
    draw_bars(right, clients, rates, Titles(title="Requests per second", y="per second"))


if __name__ == "__main__":
    sys.exit(main())
