"""The feature groups an HSTU encoder reads, by the names TorchEasyRec gives them."""

from dataclasses import dataclass

from exporter.config.hstu import HstuConfig
from exporter.config.schema import GroupKind, PipelineConfig
from exporter.errors import InvalidPipelineConfig
from exporter.models.embedding import group_widths

_CONTEXTUAL = "contextual"
_QUERY_TIME = "query_time"


@dataclass(frozen=True, kw_only=True)
class HistoryGroups:
    """Keys of the embedded groups, and the widths that the weights' shapes depend on."""

    prefix: str  # "uih", or the encoder's name
    event_width: int
    contextual: str = _CONTEXTUAL
    contextual_count: int = 0
    contextual_width: int = 0
    query_time: str | None = None  # None: the last event's time is the anchor

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
    def of(cls, pipeline: PipelineConfig, hstu: HstuConfig) -> "HistoryGroups":
        """Find the groups that `hstu` reads.

        Raises:
            InvalidPipelineConfig: a group is missing, or contextual features differ in width.
        """
        names = {group.name for group in pipeline.groups}
        prefix = hstu.name or "uih"
        for needed in (prefix, f"{prefix}_timestamp", *_action_groups(hstu, prefix)):
            if needed not in names:
                raise InvalidPipelineConfig(
                    f"the model reads feature group {needed!r}, which is not defined",
                    hint=f"the groups defined are {', '.join(sorted(names))}",
                    where="feature_groups",
                )
        found = cls(
            prefix=prefix,
            event_width=sum(group_widths(pipeline, prefix)),
            query_time=_QUERY_TIME if _QUERY_TIME in names else None,
        )
        return _with_context(found, pipeline) if _CONTEXTUAL in names else found


def _action_groups(hstu: HstuConfig, prefix: str) -> list[str]:
    encoder = hstu.preprocessor.action_encoder
    if encoder is None:
        return []
    return [f"{prefix}_action"] + ([f"{prefix}_watchtime"] if encoder.watchtime_thresholds else [])


def _with_context(found: HistoryGroups, pipeline: PipelineConfig) -> HistoryGroups:
    widths = group_widths(pipeline, _CONTEXTUAL)
    if len(set(widths)) != 1:
        raise InvalidPipelineConfig(
            f"features of group {_CONTEXTUAL!r} must be equally wide, and are {widths}",
            hint="give them one embedding_dim",
            where=_CONTEXTUAL,
        )
    is_deep = pipeline.group(_CONTEXTUAL).kind is GroupKind.DEEP
    return HistoryGroups(
        prefix=found.prefix,
        event_width=found.event_width,
        contextual=_CONTEXTUAL if is_deep else f"{_CONTEXTUAL}.query",
        contextual_count=len(widths),
        contextual_width=widths[0],
        query_time=found.query_time,
    )
