"""Routes: who may take a job. Workers that serve its target, and have the release of torch that it names."""

from collections.abc import Iterable

from exporter.spec import Target
from exporter.torch_releases import TorchRelease

Route = str  # "avx2" for a job that names no release, "avx2@2.13" for one that does
_MARK = "@"


def make_route(target: Target, torch: TorchRelease | None) -> Route:
    """Return the route of a job that names a release, or none."""
    return f"{target}{_MARK}{torch}" if torch else target


def split_route(route: Route) -> tuple[Target, TorchRelease | None]:
    """Return a route's target, and the release that its jobs name."""
    target, _, torch = route.partition(_MARK)
    return target, torch or None


def routes_of_worker(
    targets: Iterable[Target], torch: TorchRelease | None, *, only_named: bool = False
) -> tuple[Route, ...]:
    """Return the routes of a worker with this release; with `only_named` not those that name none."""
    named = [make_route(target, torch) for target in targets if torch]
    return tuple(named) if only_named else (*targets, *named)
