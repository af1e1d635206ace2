"""Feature groups that an HSTU encoder reads, under TorchEasyRec's names."""

from dataclasses import dataclass, replace

from exporter.config.features.widths import group_width
from exporter.config.hstu.encoder import CANDIDATE, CANDIDATE_TIMESTAMP, CONTEXTUAL, QUERY_TIME, HstuConfig
from exporter.config.schema import GroupKind, PipelineConfig
from exporter.errors import InvalidPipelineConfig
from exporter.redaction import name_first


@dataclass(frozen=True, kw_only=True)
class HistoryGroups:
    """Keys of the history's embedded groups, and the widths that decide the weights' shapes."""

    prefix: str  # "uih", or the encoder's name
    event_width: int
    contextual: str = CONTEXTUAL
    contextual_count: int = 0  # elements of context in front of a row
    contextual_width: int = 0
    query_time: str | None = None  # None: ages are counted from the last element's time

    @property
    def events(self) -> str:
        return f"{self.prefix}.sequence"

    @property
    def event_lengths(self) -> str:
        return f"{self.prefix}.sequence_length"

    @property
    def actions(self) -> str:
        return f"{self.prefix}_action.sequence"

    @property
    def watchtimes(self) -> str:
        return f"{self.prefix}_watchtime.sequence"

    @property
    def timestamps(self) -> str:
        return f"{self.prefix}_timestamp.sequence"

    @classmethod
    def of(
        cls, pipeline: PipelineConfig, hstu: HstuConfig, *, concat_contextual: bool = False
    ) -> "HistoryGroups":
        """Find the groups that `hstu` reads.

        Raises:
            InvalidPipelineConfig: a group is missing, or contextual features differ in width.
        """
        names = {group.name for group in pipeline.groups}
        prefix = hstu.history
        _require(names, prefix, f"{prefix}_timestamp", *_action_groups(hstu, prefix))
        found = cls(
            prefix=prefix,
            event_width=group_width(pipeline, f"{prefix}.sequence"),
            query_time=QUERY_TIME if QUERY_TIME in names else None,
        )
        return _with_context(found, pipeline, concat_contextual) if CONTEXTUAL in names else found

    def ending_in_candidates(self) -> "HistoryGroups":
        """Return the groups for rows that end in candidates, whose time is that of the request."""
        return replace(self, query_time=None)


@dataclass(frozen=True, kw_only=True)
class CandidateGroups:
    """Keys of the candidates' embedded groups, and the candidates' width."""

    width: int
    items: str = f"{CANDIDATE}.sequence"
    lengths: str = f"{CANDIDATE}.sequence_length"
    timestamps: str = f"{CANDIDATE_TIMESTAMP}.sequence"

    @classmethod
    def of(cls, pipeline: PipelineConfig) -> "CandidateGroups":
        """Find the candidates' groups.

        Raises:
            InvalidPipelineConfig: a group is missing.
        """
        _require({group.name for group in pipeline.groups}, CANDIDATE, CANDIDATE_TIMESTAMP)
        return cls(width=group_width(pipeline, f"{CANDIDATE}.sequence"))


def _require(names: set[str], *needed: str) -> None:
    for name in needed:
        if name not in names:
            raise InvalidPipelineConfig(
                f"the model reads feature group {name!r}, which is not defined",
                hint=f"the groups defined are {name_first(sorted(names))}",
                where="feature_groups",
            )


def _action_groups(hstu: HstuConfig, prefix: str) -> list[str]:
    encoder = hstu.preprocessor.action_encoder
    if encoder is None:
        return []
    return [f"{prefix}_action"] + ([f"{prefix}_watchtime"] if encoder.watchtime_thresholds else [])


def _with_context(found: HistoryGroups, pipeline: PipelineConfig, concatenated: bool) -> HistoryGroups:
    widths = tuple(pipeline.feature(name).width for name in pipeline.group(CONTEXTUAL).features)
    if concatenated:
        widths = (sum(widths),)
    if len(set(widths)) != 1:
        raise InvalidPipelineConfig(
            f"features of group {CONTEXTUAL!r} must be equally wide, and are {widths}",
            hint="give them one embedding_dim",
            where=CONTEXTUAL,
        )
    is_deep = pipeline.group(CONTEXTUAL).kind is GroupKind.DEEP
    return replace(
        found,
        contextual=CONTEXTUAL if is_deep else f"{CONTEXTUAL}.query",
        contextual_count=len(widths),
        contextual_width=widths[0],
    )
