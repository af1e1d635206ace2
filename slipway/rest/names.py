"""Names that requests and answers use, and that the programs share: states, towers, stages, modes."""

from enum import StrEnum


class JobState(StrEnum):
    """The states of a job."""

    QUEUED = "queued"  # accepted; no worker holds it
    RUNNING = "running"  # one worker holds the lease
    SUCCEEDED = "succeeded"  # every tower is published
    PARTIALLY_SUCCEEDED = "partially_succeeded"  # some towers are published, others failed
    FAILED = "failed"  # nothing is published; see Job.failure
    CANCELLED = "cancelled"  # stopped at the caller's request

    @property
    def is_final(self) -> bool:
        """Return whether the job has ended."""
        return self not in (JobState.QUEUED, JobState.RUNNING)


class TowerState(StrEnum):
    """The states of one tower in an attempt."""

    WAITING = "waiting"  # no stage has started
    RUNNING = "running"
    SUCCEEDED = "succeeded"  # published
    FAILED = "failed"  # see TowerProgress.failure
    CANCELLED = "cancelled"  # its job was cancelled, in any stage


class TowerName(StrEnum):
    """A servable slice of a model."""

    USER = "user"
    ITEM = "item"
    MODEL = "model"
    EMBEDDING = "embedding"  # of a tree model: the vectors of items, by which the tree is built

    @property
    def reads_items(self) -> bool:
        """Return whether its rows are items, one per row, so that it can give the vectors of all of them."""
        return self in (TowerName.ITEM, TowerName.EMBEDDING)


class Stage(StrEnum):
    """A step of one tower's export; the members stand in the order in which the steps run."""

    TABLES = "tables"  # write, check and upload this rank's rows of the tables; only for sharded tables
    CONFIG = "config"  # read the pipeline config, choose the view, plan the dims
    CHECKPOINT = "checkpoint"  # read the weights, strictly
    ROWS = "rows"  # read rows and encode them
    TRACE = "trace"  # torch.export
    COMPILE = "compile"  # AOTInductor
    VERIFY = "verify"  # compare the package with eager, in a fresh process
    ITEMS = "items"  # compute item vectors and build their index; only if the request asks for them
    PUBLISH = "publish"  # upload and check digests; the manifest is uploaded once all towers are there
    RELEASE = "release"  # judge what was published; only if the request has a release gate


class Mode(StrEnum):
    """The packages of a tower: one, or two that run one after the other."""

    UNIFIED = "unified"  # one package holds tables and dense part
    TWO_STAGE = "two_stage"  # a sparse package looks up embeddings, a dense package computes the outputs


class Device(StrEnum):
    """The kind of device that a package runs on."""

    CPU = "cpu"
    CUDA = "cuda"


class Priority(StrEnum):
    """The order in which workers take waiting jobs."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class EventType(StrEnum):
    """The kinds of events that callers receive about a job."""

    EXPORT_STARTED = "export.started"  # an attempt started
    TOWER_FINISHED = "tower.finished"  # published, or failed for good
    EXPORT_FINISHED = "export.finished"  # the job has ended, in whatever state


class DeliveryState(StrEnum):
    """The states of a delivery."""

    WAITING = "waiting"  # to be sent, at once or after a pause
    DELIVERED = "delivered"  # the receiver answered 2xx
    GIVEN_UP = "given_up"  # all tries of a day failed, or the address is not allowed
    DROPPED = "dropped"  # the receiver answered 410, or its subscription was deleted
