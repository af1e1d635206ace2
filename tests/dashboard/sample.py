"""Sample jobs for the dashboard: waiting, running and in all final states, with a manifest on disk."""

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

from exporter.dtypes import Precision, TableDtype
from exporter.errors import CheckpointMismatch
from exporter.manifest import (
    CaseKind,
    CaseReport,
    FileRef,
    Fp32Report,
    IndexEntry,
    Latency,
    Metric,
    OutputDifference,
    RowError,
    TableEntry,
    TowerEntry,
    VectorsEntry,
    VerificationReport,
)
from exporter.options.index_spec import IvfFlatIndex
from exporter.outcome import Failure
from exporter.spec import TowerName
from exporter.stages import Stage
from jobs.ids import new_job_id
from jobs.model import Job, JobState, Lease, TowerProgress, TowerState, VerificationSummary
from jobs.spec import JobSpec
from tests.jobs.factories import make_entry, make_manifest, make_spec
from tests.service.requests import CONFIG

CONFIG_TEXT = CONFIG.read_text()
START_UP = timedelta(seconds=3.2)  # of an attempt, before its first stage

NASTY = '<script>alert("x")</script>'

SECONDS = {
    Stage.CONFIG: 0.002,
    Stage.CHECKPOINT: 0.81,
    Stage.ROWS: 0.19,
    Stage.TRACE: 5.464,
    Stage.COMPILE: 48.864,
    Stage.VERIFY: 8.798,
    Stage.PUBLISH: 1.2,
}


def job(
    state: JobState,
    *towers: TowerProgress,
    checkpoint: str = "hstu_match/model.ckpt-1100",
    minutes: float = 5,
) -> Job:
    """A job made some minutes ago."""
    made = datetime.now(UTC) - timedelta(minutes=minutes)
    spec = make_spec(
        checkpoint_uri=f"s3://models/{checkpoint}",
        output_uri="s3://models/export",
        item_input_uri="s3://models/items.parquet",
        sample_input_uri="s3://models/rows.parquet",
        config=CONFIG_TEXT,
    )
    begun = state is not JobState.QUEUED
    started = made + timedelta(seconds=4)
    waiting = (TowerProgress(name=TowerName.USER), TowerProgress(name=TowerName.ITEM))
    return Job(
        id=new_job_id(),
        spec=JobSpec.of(spec),
        config_uri="s3://models/hstu_match/pipeline.config",
        state=state,
        towers=tuple(begun_at(started + START_UP, tower) for tower in towers or waiting),
        attempt=int(begun),
        lease=Lease(worker="gpu-3-4711", until=made) if state is JobState.RUNNING else None,
        created_at=made,
        updated_at=made,
        started_at=started if begun else None,
        finished_at=made + timedelta(seconds=75) if state.is_final else None,
    )


def begun_at(moment: datetime, tower: TowerProgress) -> TowerProgress:
    """The tower with the time at which its last stage began, if its stages began at that moment."""
    if tower.stage is None or tower.stage_started_at is not None:
        return tower
    before = sum(seconds for stage, seconds in tower.stage_seconds.items() if stage is not tower.stage)
    return tower.model_copy(update={"stage_started_at": moment + timedelta(seconds=before)})


def done(name: TowerName, *, slower: float = 1.0) -> TowerProgress:
    return TowerProgress(
        name=name,
        state=TowerState.SUCCEEDED,
        stage=Stage.PUBLISH,
        stage_seconds={stage: seconds * slower for stage, seconds in SECONDS.items()},
        package_uri=f"s3://models/export/{name}/aoti/aoti_model.pt2",
        package_size=2_789_835,
        code="cold",
        code_note="no code of an equal graph is cached",
        digest="db913646820993fcb9fb2e31401530b3edd58e62ce22955aba9b2cda162fcd0f",
        verification=VerificationSummary(cases=18, passed=18, largest_difference=8.9e-8, tolerance=1e-5),
    )


def at_work(name: TowerName, stage: Stage, fraction: float | None, detail: str) -> TowerProgress:
    before = {
        each: seconds
        for each, seconds in SECONDS.items()
        if list(Stage).index(each) < list(Stage).index(stage)
    }
    started = datetime.now(UTC) - timedelta(seconds=12)
    return TowerProgress(
        name=name,
        state=TowerState.RUNNING,
        stage=stage,
        stage_started_at=started,
        fraction=fraction,
        detail=detail,
        stage_seconds=before,
    )


def broken(
    name: TowerName,
    message: str = "the item tower's embedding has 8 rows and the config says 9",
    code: str = "dims_conflict",
) -> TowerProgress:
    failure = Failure(
        code=code,
        message=message,
        hint="write the features click_50_seq__video_id and uih_seq__video_id in one sequence_feature",
        where="pipeline.config:41",
        bundle_url="/exports/x/bundle?tower=model",
        report="Constraints violated (seq_click_50_seq)!\n  L['uih'].size()[0] = 37\n  in hstu.py:212",
    )
    seconds = {stage: SECONDS[stage] for stage in (Stage.CONFIG, Stage.CHECKPOINT, Stage.ROWS)}
    return TowerProgress(
        name=name,
        state=TowerState.FAILED,
        stage=Stage.TRACE,
        fraction=0.4,
        stage_seconds=seconds,
        failure=failure,
    )


def partial(minutes: float = 50, code: str = "dims_conflict") -> Job:
    towers = (done(TowerName.USER), broken(TowerName.ITEM, code=code))
    return job(JobState.PARTIALLY_SUCCEEDED, *towers, checkpoint="dssm_v2/model.ckpt-98000", minutes=minutes)


MISMATCH = CheckpointMismatch(
    missing=["item.dense.0.weight", "item.dense.0.bias"],
    unexpected=["tower.old.bias"],
    mismatched=["user.mlp.0.weight: checkpoint (float32 [64, 32]), model (float32 [64, 48])"],
)


def mismatched() -> Job:
    """A job whose only tower does not fit its checkpoint."""
    reached = {"stage": Stage.CHECKPOINT, "stage_seconds": {Stage.CONFIG: SECONDS[Stage.CONFIG]}}
    tower = broken(TowerName.MODEL).model_copy(update={"failure": Failure.of(MISMATCH), **reached})
    made = job(JobState.FAILED, tower, checkpoint="dlrm_hstu/model.ckpt-78", minutes=95)
    return made.model_copy(update={"failure": tower.failure})


def failed(message: str, minutes: float = 90) -> Job:
    tower = broken(TowerName.MODEL, message)
    made = job(JobState.FAILED, tower, checkpoint="dlrm_hstu/model.ckpt-77", minutes=minutes)
    return made.model_copy(update={"failure": tower.failure, "setbacks": 1, "attempt": 2})


def published(folder: Path) -> Job:
    """A job that has succeeded, whose manifest lies in `folder`."""
    made = job(JobState.SUCCEEDED, done(TowerName.USER), done(TowerName.ITEM, slower=0.6), minutes=20)
    towers = (entry(TowerName.USER, 1.0), entry(TowerName.ITEM, 0.01))
    manifest = make_manifest(made.id, *towers)
    artifact = folder / made.id
    artifact.mkdir(parents=True)
    (artifact / "manifest.json").write_text(manifest.model_dump_json())
    spec = made.spec.model_copy(update={"output_uri": str(folder)})
    return made.model_copy(update={"spec": spec, "manifest_uri": str(artifact / "manifest.json")})


def entry(name: TowerName, scale: float) -> TowerEntry:
    batches = (1, 2, 3, 7, 32, 512)
    agreeing = tuple(
        CaseReport(
            name=f"batch_{batch}",
            kind=CaseKind.AGREES,
            sizes={"batch": batch},
            passed=True,
            largest_difference=3e-8 * math.sqrt(batch) if name is TowerName.USER else 0.0,
            scale=0.34,
            output=f"{name}_tower_emb",
        )
        for batch in batches
    )
    refusal = CaseReport(
        name="one_row_short:user_id.lengths",
        kind=CaseKind.REFUSES,
        sizes={},
        passed=True,
        detail="expected size 4==5",
    )
    sizes = batches if name is TowerName.USER else (32,)
    latency = tuple(
        Latency(batch=batch, eager_ms=scale * (4 + batch * 0.8), compiled_ms=scale * (0.9 + batch * 0.5))
        for batch in sizes
    )
    report = VerificationReport(
        tolerance=1e-5, largest_difference=6.8e-7, cases=(*agreeing, refusal), latency=latency
    )
    vectors = item_vectors() if name is TowerName.ITEM else None
    low = {"embeddings": (quantised_table(),), "precision": Precision.BF16} if name is TowerName.ITEM else {}
    if low:
        worst = OutputDifference(output="item_tower_emb", largest=0.0527, scale=0.65, case="batch_512")
        report = report.model_copy(update={"fp32": Fp32Report(tolerance=0.54, outputs=(worst,))})
    beside = ("pipeline.config", "fg.json", "model_acc.json", "samples.safetensors")
    files = tuple(FileRef(path=f"{name}/{each}", size=20_000, sha256="cd" * 32) for each in beside)
    return make_entry(name).model_copy(update={"verified": report, "vectors": vectors, "files": files, **low})


def quantised_table() -> TableEntry:
    """The items' table, in int4."""
    return TableEntry(
        name="video_id_emb",
        path="embedding_group.seq_emb_impls.__BASE__.ec_dict.64.embeddings.video_id_emb",
        rows=10_000_000,
        width=64,
        dtype=TableDtype.INT4,
        fp32_bytes=2_560_000_000,
        bytes=360_000_000,
        error=RowError(max_absolute=0.22, mean_absolute=0.11, max_relative=0.066, mean_relative=0.053),
    )


def item_vectors() -> VectorsEntry:
    """The vectors of ten million items, with an index."""
    index = IndexEntry(
        file=FileRef(path="item/index/items.faiss", size=1_360_000_000, sha256="e" * 64),
        parameters=IvfFlatIndex(nlist=12_649),
        metric=Metric.COSINE,
        labels="item_ids",
        trained_rows=809_536,
        recall_at_10=0.9581,
        queries=512,
        seconds=312.4,
        peak_memory_bytes=2_500_000_000,
    )
    return VectorsEntry(
        files=(FileRef(path="item/vectors/part-00000.parquet", size=1_310_000_000, sha256="f" * 64),),
        rows=10_000_000,
        id_column="video_id",
        id_type="int64",
        vector_column="vector",
        width=32,
        dtype="float32",
        output="item_tower_emb",
        checked_rows=1024,
        tolerance=1e-5,
        largest_difference=6e-8,
        scale=0.63,
        index=index,
        seconds=18.4,
        rows_per_second=542_261.0,
        peak_memory_bytes=1_200_000_000,
    )
