"""`slipway submit`, `watch` and `list` against a real socket."""

import io
import json
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from exporter.errors import InvalidPipelineConfig, InvalidSpec, SourceNotFound
from exporter.outcome import ExportOutcome
from exporter.spec import TowerName
from exporter.stages import Stage
from jobs.lease.leases import claim
from jobs.model import Job, JobState
from jobs.progress import fold_events
from jobs.stores.memory_store import MemoryJobStore
from service.client.local_job import answer_of
from service.client.tables import table_of
from service.client.watch import PlainLines, live_table
from service.commands.client_options import INTERRUPTED
from service.schemas import JobView
from slipway.client import Client, RequestRefused
from slipway.client import JobView as Answer
from tests.jobs.factories import CONFIG_TEXT, MINUTE, make_event, make_failure, make_job, make_outcome
from tests.service.conftest import Slipway
from tests.service.requests import CHECKPOINT, CONFIG, ITEMS, ROWS

SUBMIT = ("submit", "--config", str(CONFIG), "--checkpoint", CHECKPOINT, "--output", "out")


def run_in_background(store: MemoryJobStore, job: Job, outcome: ExportOutcome) -> None:
    """Act as the worker: report a stage after a moment, and the outcome after another."""

    def work() -> None:
        holding = claim(store, job.id, worker="w", length=MINUTE)
        assert holding is not None
        holding.renew([make_event()])
        time.sleep(0.7)
        holding.finish(outcome)

    threading.Thread(target=work, daemon=True).start()


def test_submit_prints_the_job(
    slipway: Slipway,
    store: MemoryJobStore,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(CONFIG.parent)
    relative = ("--checkpoint", "model.ckpt-11")
    assert slipway(*SUBMIT, *ITEMS, *ROWS, *relative, "--tower", "item", "--ranks", "2") == 0
    (job,) = store.page(limit=2).jobs
    assert capsys.readouterr().out.split() == [job.id]
    assert job.spec.checkpoint_uri == CHECKPOINT
    assert (store.config_of(job), job.spec.towers, job.spec.ranks) == (
        CONFIG.read_text(),
        (TowerName.ITEM,),
        2,
    )


def test_options_override_the_spec_file(slipway: Slipway, store: MemoryJobStore, tmp_path: Path) -> None:
    spec = {"config_uri": "/nowhere", "checkpoint_uri": "/c", "output_uri": "/o", "item_input_uri": "/i"}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    assert slipway(*SUBMIT[:3], "--spec", str(tmp_path / "spec.json"), "--sample-input", "s3://b/s") == 0
    (job,) = store.page(limit=2).jobs
    assert (job.spec.output_uri, job.spec.sample_input_uri) == ("/o", "s3://b/s")


def test_item_vectors_are_asked_for_by_options(slipway: Slipway, store: MemoryJobStore) -> None:
    options = ("--materialise-items", "--item-id-column", "asin", "--item-index", "hnsw")
    assert slipway(*SUBMIT, *ITEMS, *ROWS, *options) == 0
    (job,) = store.page(limit=2).jobs
    assert (job.spec.materialise_items, job.spec.item_id_column) == (True, "asin")
    index = job.spec.item_index
    assert index is not None and index.kind == "hnsw" and index == type(index)()  # else as by default


def test_kernels_are_asked_for_by_an_option(slipway: Slipway, store: MemoryJobStore) -> None:
    assert slipway(*SUBMIT, *ITEMS, *ROWS, "--target", "sm_90", "--kernel", "triton") == 0
    (job,) = store.page(limit=2).jobs
    assert (job.spec.kernel, JobView.of(job).spec.kernel) == ("triton", "triton")
    with pytest.raises(InvalidSpec, match="`kernel: triton` is for CUDA"):
        slipway(*SUBMIT, *ITEMS, *ROWS, "--kernel", "triton")


def test_a_layout_and_samples_are_asked_for_by_options(slipway: Slipway, store: MemoryJobStore) -> None:
    options = ("--layout", "triton", "--triton-prefix", "feed", "--sample-rows", "0")
    assert slipway(*SUBMIT, *ITEMS, *ROWS, *options) == 0
    (job,) = store.page(limit=2).jobs
    for spec in (job.spec, JobView.of(job).spec):
        assert (spec.layout, spec.triton_prefix, spec.sample_rows) == ("triton", "feed", 0)


def test_tables_in_shards_are_asked_for_by_an_option(slipway: Slipway, store: MemoryJobStore) -> None:
    assert slipway(*SUBMIT, *ITEMS, *ROWS, "--mode", "two_stage", "--tables", "sharded", "--ranks", "3") == 0
    (job,) = store.page(limit=2).jobs
    assert (job.spec.tables.sharded, job.ranks) == (True, 3)
    with pytest.raises(InvalidSpec, match="`tables: sharded` needs `mode: two_stage`"):
        slipway(*SUBMIT, *ITEMS, *ROWS, "--tables", "sharded")


@pytest.mark.parametrize("option", ["--config", "--checkpoint", "--output", "--item-input"])
def test_a_place_that_is_empty_is_not_the_folder_one_is_in(
    slipway: Slipway, store: MemoryJobStore, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    with pytest.raises(SystemExit):
        slipway(*SUBMIT, *ITEMS, *ROWS, option, "")
    assert f"argument {option}: it is empty" in capsys.readouterr().err
    assert store.page(limit=1).jobs == ()


@pytest.mark.parametrize("command", ["watch", "logs", "cancel", "retry"])
def test_no_job_is_not_all_jobs(slipway: Slipway, capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit):
        slipway(command, "")
    assert "argument JOB: it is empty" in capsys.readouterr().err


def test_a_table_without_a_name_is_not_all_tables(
    slipway: Slipway, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        slipway(*SUBMIT, *ITEMS, *ROWS, "--table-dtype", "=int8")
    assert "'=int8' names no table" in capsys.readouterr().err


def test_an_index_of_an_unknown_kind_is_refused(slipway: Slipway, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        slipway(*SUBMIT, *ITEMS, *ROWS, "--materialise-items", "--item-index", "tree")
    assert "'tree' is none of flat, ivf_flat, ivf_pq, hnsw" in capsys.readouterr().err


def test_a_missing_option_is_named(slipway: Slipway) -> None:
    with pytest.raises(InvalidSpec, match="missing: --checkpoint$"):
        slipway("submit", "--config", str(CONFIG), "--output", "out")


def test_a_file_that_is_not_there_is_said(slipway: Slipway) -> None:
    with pytest.raises(SourceNotFound, match=r"no\.config"):
        slipway("submit", "--config", "no.config", "--checkpoint", "c", "--output", "out")
    with pytest.raises(InvalidSpec, match=r"no\.json cannot be read") as refused:
        slipway(*SUBMIT, "--spec", "no.json")
    assert "--spec" in refused.value.hint


def test_a_config_that_is_no_text_is_said(slipway: Slipway, tmp_path: Path) -> None:
    (tmp_path / "pipeline.config").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidPipelineConfig, match=r"pipeline\.config is not text"):
        slipway("submit", "--config", str(tmp_path / "pipeline.config"), *SUBMIT[3:])


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_spec_file_that_is_no_json_object_is_named(
    slipway: Slipway, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "spec.json").write_bytes(content)
    with pytest.raises(InvalidSpec, match=r"spec\.json is no JSON object"):
        slipway(*SUBMIT, "--spec", str(tmp_path / "spec.json"))


def test_a_spec_file_may_leave_out_what_options_give(
    slipway: Slipway, store: MemoryJobStore, tmp_path: Path
) -> None:
    (tmp_path / "spec.json").write_text('{"max_batch_size": 4}')
    assert slipway(*SUBMIT, *ITEMS, *ROWS, "--spec", str(tmp_path / "spec.json")) == 0
    assert store.page(limit=1).jobs[0].spec.max_batch_size == 4


def test_each_of_several_inputs_is_made_absolute(
    slipway: Slipway, store: MemoryJobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(CONFIG.parent)
    assert slipway(*SUBMIT, *ITEMS, "--sample-input", "a*, s3://b/c") == 0
    assert store.page(limit=1).jobs[0].spec.sample_input_uri == f"{CONFIG.parent / 'a*'},s3://b/c"


def test_an_id_of_any_letters_reaches_the_service(slipway: Slipway) -> None:
    with pytest.raises(RequestRefused) as refused:
        slipway("watch", "é?")
    assert refused.value.code == "job_not_found"


def test_a_refusal_carries_the_services_code(slipway: Slipway) -> None:
    with pytest.raises(RequestRefused) as refused:
        slipway("watch", "nonsense")
    assert (refused.value.code, refused.value.retryable) == ("job_not_found", False)


FAILED = {TowerName.ITEM: make_failure()}
ALL_FAILED = dict.fromkeys((TowerName.USER, TowerName.ITEM), make_failure())


@pytest.mark.parametrize(
    ("outcome", "code"),
    [(make_outcome(), 0), (make_outcome(failed=FAILED), 3), (make_outcome(failed=ALL_FAILED), 1)],
)
def test_watch_exits_with_what_became_of_the_job(
    slipway: Slipway, store: MemoryJobStore, outcome: ExportOutcome, code: int
) -> None:
    job = make_job()
    store.add(job, CONFIG_TEXT)
    run_in_background(store, job, outcome)
    assert slipway("watch", job.id) == code


def test_watch_prints_a_line_per_change_and_the_packages(
    slipway: Slipway, store: MemoryJobStore, capsys: pytest.CaptureFixture[str]
) -> None:
    job = make_job()
    store.add(job, CONFIG_TEXT)
    run_in_background(store, job, make_outcome(failed=FAILED))
    slipway("watch", job.id)
    told = capsys.readouterr()
    assert "user  trace (4/7)" in told.out and "user  /out/user  sha256:abab" in told.out
    assert "item: [trace_failed] a size was specialised (report it)" in told.err


def test_watch_gives_machines_a_line_of_json_per_change(
    slipway: Slipway, store: MemoryJobStore, capsys: pytest.CaptureFixture[str]
) -> None:
    job = make_job()
    store.add(job, CONFIG_TEXT)
    run_in_background(store, job, make_outcome())
    slipway("watch", job.id, "--json")
    lines = [JobView.model_validate_json(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[-1].state is JobState.SUCCEEDED
    assert len({line.revision for line in lines}) == len(lines)


def test_an_interrupt_stops_watching_not_the_job(
    slipway: Slipway,
    store: MemoryJobStore,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    job = make_job()
    store.add(job, CONFIG_TEXT)
    monkeypatch.setattr("service.client.watch.time.sleep", interrupt)
    assert slipway("watch", job.id) == INTERRUPTED
    assert f"job {job.id} goes on" in capsys.readouterr().err
    assert store.get(job.id).state is JobState.QUEUED


def test_list_shows_pages(
    slipway: Slipway, store: MemoryJobStore, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    for _ in range(2):
        store.add(make_job(), CONFIG_TEXT)
    assert slipway("list", "--limit", "1") == 0
    newest = Client(url).page(limit=1)
    assert newest.jobs[0].id in (told := capsys.readouterr().out)
    assert f"--cursor {newest.next_cursor}" in told


def test_list_cuts_nothing_short(
    slipway: Slipway, store: MemoryJobStore, capsys: pytest.CaptureFixture[str]
) -> None:
    job = make_job()
    checkpoint = f"s3://models/{'deep/' * 40}[1]"
    store.add(
        job.model_copy(update={"spec": job.spec.model_copy(update={"checkpoint_uri": checkpoint})}),
        CONFIG_TEXT,
    )
    assert slipway("list") == 0
    [row] = [line for line in capsys.readouterr().out.splitlines() if job.id in line]
    assert checkpoint in row


def test_a_narrow_terminal_folds_all_but_the_id() -> None:
    table = table_of("job", "output", whole="job")
    table.add_row(make_job().id, output := "s3://models/" + "deep/" * 20)
    console = Console(file=io.StringIO(), width=60, record=True)
    console.print(table)
    rows = [line.strip("│").split("│") for line in console.export_text().splitlines() if "│" in line]
    assert len(rows) > 1 and len(rows[0][0].strip()) == 26
    assert "".join(cells[1].strip() for cells in rows) == output


def running_view() -> Answer:
    events = [make_event(), make_event(kind="progress", fraction=0.5, detail="guards")]
    return answer_of(fold_events(make_job(JobState.RUNNING, attempt=2), events))


def test_a_terminal_shows_a_line_per_tower() -> None:
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(live_table(running_view()))
    job, user, item = console.export_text().splitlines()
    assert "running" in job and "attempt 2" in job
    assert all(part in user for part in ("user", f"{Stage.TRACE} (4/7)", "██████████░", "guards"))
    assert "item" in item and "waiting" in item


def test_plain_lines_say_nothing_twice() -> None:
    stream = io.StringIO()
    lines = PlainLines(stream)
    lines.show(running_view())
    lines.show(running_view())
    assert len(stream.getvalue().splitlines()) == 2
