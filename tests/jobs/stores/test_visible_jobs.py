"""The jobs that a caller sees, by the places that they name."""

import random
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

import pytest

from exporter.spec import ExportSpec
from exporter.storage.uris import NO_RULES, UriRules
from jobs.control.control import JobControl, Plan
from jobs.errors import JobNotFound, RecordTooNew, RecordUnreadable
from jobs.ids import JobId, new_job_id
from jobs.lease.leases import update_job
from jobs.model import Job, JobState
from jobs.queue import MemoryQueue
from jobs.spec import JobSpec
from jobs.stores.job_store import JobStore
from jobs.stores.memory_store import MemoryJobStore
from jobs.stores.visible_jobs import MOST_READ, HiddenJobs, VisibleJobs, find_visible
from tests.jobs.factories import CONFIG_TEXT, make_job, make_spec

ADS = UriRules(inputs=("s3://training/ads",), outputs=("s3://models/ads",))


def job_of(team: str, job_id: str = "", **changes: object) -> Job:
    spec = make_spec(
        checkpoint_uri=f"s3://training/{team}/ckpt",
        item_input_uri=f"s3://training/{team}/items/*.parquet",
        sample_input_uri=f"s3://training/{team}/a.parquet, s3://training/{team}/b.parquet",
        output_uri=f"s3://models/{team}/v1",
    )
    config_uri = changes.pop("config_uri", f"s3://training/{team}/pipeline.config")
    spec = spec.model_copy(update=changes)
    job = make_job(job_id=JobId(job_id) if job_id else new_job_id())
    return job.model_copy(update={"spec": JobSpec.of(spec), "config_uri": config_uri})


def is_visible(job: Job, rules: UriRules) -> bool:
    return VisibleJobs(MemoryJobStore(), rules).shows(job)


@pytest.mark.parametrize(
    ("changes", "seen"),
    [
        ({}, True),
        ({"config_uri": None}, True),  # given inline
        ({"item_input_uri": None, "sample_input_uri": None}, True),
        ({"output_uri": "s3://models/ads"}, True),
        ({"config_uri": "s3://training/feed/pipeline.config"}, False),
        ({"checkpoint_uri": "s3://training/feed/ckpt"}, False),
        ({"item_input_uri": "s3://training/*/items.parquet"}, False),
        ({"sample_input_uri": "s3://training/ads/a.parquet,s3://training/feed/b.parquet"}, False),
        ({"output_uri": "s3://models/ads-2/v1"}, False),
        ({"output_uri": "s3://models"}, False),
        ({"output_uri": "s3://models/ads/../feed"}, False),
        ({"output_uri": "s3://models/ads/%2e%2e/feed"}, False),
        ({"output_uri": "/models/ads/v1"}, False),
        ({"output_uri": "gone://models/ads"}, False),
    ],
)
def test_every_place_that_a_job_names_counts(changes: dict[str, object], seen: bool) -> None:
    assert is_visible(job_of("ads", "", **changes), ADS) is seen


@pytest.mark.parametrize(
    ("rules", "seen"),
    [
        (NO_RULES, True),
        (UriRules(inputs=("s3://training/ads",)), True),
        (UriRules(outputs=("s3://models/ads",)), True),
        (UriRules(outputs=("s3://",)), True),
        (UriRules(inputs=("s3://training/feed",)), False),
        (UriRules(outputs=("s3://models/feed",)), False),
        (UriRules(inputs=()), False),
        (UriRules(inputs=("s3://training/feed", "s3://training/ads"), outputs=("s3://models",)), True),
    ],
)
def test_what_rules_do_not_mention_is_free(rules: UriRules, seen: bool) -> None:
    assert is_visible(job_of("ads"), rules) is seen


def test_paths_are_followed_to_where_they_lead(tmp_path: Path) -> None:
    (tmp_path / "ads").mkdir()
    (tmp_path / "feed").mkdir()
    (tmp_path / "ads" / "link").symlink_to(tmp_path / "feed")
    (tmp_path / "alias").symlink_to(tmp_path / "ads")
    rules = UriRules(outputs=(str(tmp_path / "ads"),))
    inside = [tmp_path / "ads" / "v1", tmp_path / "alias" / "v1", tmp_path / "feed" / ".." / "ads"]
    outside = [tmp_path / "ads" / "link" / "v1", tmp_path / "ads" / ".." / "feed", tmp_path / "ads-2"]
    assert [is_visible(job_of("ads", output_uri=str(path)), rules) for path in inside] == [True] * 3
    assert [is_visible(job_of("ads", output_uri=str(path)), rules) for path in outside] == [False] * 3
    assert is_visible(job_of("ads", output_uri=f"file://{tmp_path}/ads/v1"), rules)


def test_a_hidden_job_is_as_one_that_does_not_exist(store: JobStore) -> None:
    seen, hidden = job_of("ads"), job_of("feed")
    store.add(seen, CONFIG_TEXT)
    store.add(hidden, CONFIG_TEXT)
    visible = VisibleJobs(store, ADS)
    assert visible.get(seen.id) == store.get(seen.id)
    assert visible.revision(seen.id) == 1
    for call in (visible.get, visible.revision):
        with pytest.raises(JobNotFound) as missing:
            call(hidden.id)
        assert missing.value.message == JobNotFound(hidden.id).message
    with pytest.raises(JobNotFound):
        update_job(visible, hidden.id, lambda job, now: job.request_cancel(now))
    assert store.get(hidden.id).state is JobState.QUEUED
    store.remove(store.get(seen.id))
    with pytest.raises(JobNotFound):
        visible.revision(seen.id)


@pytest.mark.parametrize(
    ("damage", "error"), [(RecordUnreadable("x"), JobNotFound), (RecordTooNew("x", 9), RecordTooNew)]
)
def test_a_damaged_record_is_nobody_s_and_a_newer_one_is_waited_for(
    damage: RecordUnreadable, error: type[Exception]
) -> None:
    class Damaged(MemoryJobStore):
        def get(self, job_id: JobId) -> Job:
            raise damage

    with pytest.raises(error):
        VisibleJobs(Damaged(), ADS).get(new_job_id())


def test_a_page_is_filled_with_visible_jobs(store: JobStore) -> None:
    teams = ["ads", "feed", "feed", "ads", "ads", "feed"]
    jobs = [job_of(team, job_id=f"{number:010d}{'0' * 16}") for number, team in enumerate(teams)]
    for job in jobs:
        store.add(job, CONFIG_TEXT)
    visible = VisibleJobs(store, ADS)
    first = visible.page(limit=2)
    assert [job.id for job in first.jobs] == [jobs[4].id, jobs[3].id]
    last = visible.page(limit=2, before=first.next)
    assert ([job.id for job in last.jobs], last.next) == ([jobs[0].id], None)
    assert visible.page(limit=10, state=JobState.FAILED).jobs == ()


def test_a_list_reads_what_is_hidden_once(store: JobStore) -> None:
    """Each caller of the same rules goes on from what was found; other rules are judged by themselves."""
    control = JobControl(store, MemoryQueue(), _no_plan)
    jobs = [job_of("ads" if number % 3 else "feed", f"{number:010d}{'0' * 16}") for number in range(9)]
    for job in jobs:
        store.add(job, CONFIG_TEXT)
    ads = [job.id for job in reversed(jobs) if "/ads/" in job.spec.output_uri]
    feed = UriRules(inputs=("s3://training/feed",), outputs=("s3://models/feed",))
    for _ in range(2):
        page = control.seen_within(ADS).page(limit=10, state=None, before=None)
        assert ([job.id for job in page.jobs], page.next) == (ads, None)
        others = control.seen_within(feed).page(limit=10, state=None, before=None)
        assert {job.id for job in others.jobs} == {job.id for job in jobs} - set(ads)
    assert control.hidden.within(ADS) == {job.id for job in jobs} - set(ads)
    newer = job_of("ads", f"{9:010d}{'0' * 16}")
    store.add(newer, CONFIG_TEXT)
    page = control.seen_within(ADS).page(limit=2, state=None, before=None)
    assert [job.id for job in page.jobs] == [newer.id, ads[0]]


def _no_plan(spec: ExportSpec) -> Plan:
    raise AssertionError("these tests submit nothing, so nothing is planned")


def test_what_is_remembered_of_hidden_jobs_is_bounded() -> None:
    hidden = HiddenJobs()
    rules = [UriRules(outputs=(f"s3://models/{number}",)) for number in range(40)]
    for each in rules:
        hidden.within(each).add(new_job_id())
    assert [len(hidden.within(each)) for each in (rules[0], rules[-1])] == [0, 1]
    known = {JobId(f"{number:026d}") for number in range(10_000)}
    store = MemoryJobStore()
    store.add(job_of("feed"), CONFIG_TEXT)
    assert VisibleJobs(store, ADS, known).page(limit=5).jobs == ()
    assert len(known) == 1


@dataclass(frozen=True)
class Record:
    """A record with an id."""

    id: str


def found_in(records: list[Record], shown: Set[str], *, limit: int) -> tuple[list[str], list[str | None]]:
    """The ids on all pages of the records that are shown, and the places where each page went on."""
    newest_first = sorted((each.id for each in records), reverse=True)

    def read(count: int, before: str | None) -> tuple[list[Record], str | None]:
        older = [each for each in newest_first if before is None or each < before]
        return [Record(each) for each in older[:count]], older[count - 1] if len(older) > count else None

    found: list[str] = []
    went_on: list[str | None] = []
    before = None
    for _ in range(len(records)):
        page, before = find_visible(read, lambda record: record.id in shown, limit=limit, before=before)
        found += [each.id for each in page]
        went_on.append(before)
        if before is None:
            return found, went_on
    raise AssertionError("the pages do not end")


@pytest.mark.parametrize("together", [1, 7, 3 * MOST_READ])
def test_pages_show_each_visible_record_once(together: int) -> None:
    """Of records that were made one by one, several in a millisecond, and all in one."""
    records = [Record(f"{number // together:010d}{number:016d}") for number in range(3 * MOST_READ)]
    shown = {each.id for each in random.Random(7).sample(records, 40)}
    found, went_on = found_in(records, shown, limit=25)
    assert found == sorted(shown, reverse=True)
    if together < MOST_READ:
        hidden = {each.id for each in records} - shown
        assert hidden.isdisjoint(went_on)
    assert len(went_on) <= 6


def test_a_page_reads_a_bounded_number_of_records() -> None:
    records = [Record(f"{number:026d}") for number in range(3 * MOST_READ)]
    found, went_on = found_in(records, {records[0].id}, limit=25)
    assert (found, len(went_on)) == ([records[0].id], 4)
