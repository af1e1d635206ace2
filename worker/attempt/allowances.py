"""Limits of an attempt, by the settings of its ranks: families that it may load, sizes of its inputs."""

from exporter.construction.input_limits import InputLimits
from exporter.families.loading import offer_family
from worker.settings import AttemptSettings, RankSettings


def offer_families(rank: RankSettings, shared: AttemptSettings) -> tuple[str, ...]:
    """Return the families whose code may be loaded; one of the caller's own is offered from here on."""
    if rank.own_family is None:
        return shared.families
    offer_family(rank.own_family)
    return (*shared.families, rank.own_family.name)


def input_limits(shared: AttemptSettings) -> InputLimits:
    """Return the largest inputs that are read."""
    return InputLimits(
        checkpoint_files=shared.max_checkpoint_files,
        checkpoint_bytes=shared.max_checkpoint_bytes,
        rows_files=shared.max_rows_files,
        rows_bytes=shared.max_rows_bytes,
    )
