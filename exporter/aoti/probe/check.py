"""Check that torch has what `probe.needs` lists: `python -m exporter.aoti.probe.check`.

Other releases of torch rename, move or drop what is private. The check says what is missing before anything
is exported, in place of an error from the middle of an export.
"""

import inspect
import sys
import warnings
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from exporter.aoti.compiler_options import CPU_LEVELS, GPU_CONFIG, PACKAGE_CONFIG
from exporter.aoti.probe.needs import NEEDS, home_of
from exporter.errors import TorchUnsupported
from exporter.outcome import Failure

_OPTIONS = (PACKAGE_CONFIG, GPU_CONFIG, *CPU_LEVELS.values())  # keys of inductor's configuration
_SHOWN = 12  # of what is missing


def find_missing() -> tuple[str, ...]:
    """Return what the installed torch lacks: "torch._inductor.codecache.struct (for torch_private)", ..."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of modules of torch that are imported here for the first time
        return tuple(_list_missing())


def require_torch() -> None:
    """Refuse a torch that lacks anything of the table, or operators of fbgemm that do not load into it.

    Raises:
        TorchUnsupported: it names what is missing.
    """
    try:
        installed = f"torch {version('torch')}"
    except PackageNotFoundError:
        installed = "this installation, which has no torch,"
    missing = (*find_missing(), *_find_unloadable())
    if missing:
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        raise TorchUnsupported(f"{installed} lacks what Slipway needs: {', '.join(missing[:_SHOWN])}{more}")


def _list_missing() -> Iterator[str]:
    for user, modules in NEEDS.items():
        for module, names in modules.items():
            for name in names.split():
                if lacking := _find_lacking(module, name):
                    yield f"{lacking} (for {user})"
    for key in sorted({key for options in _OPTIONS for key in options}):
        if lacking := _find_lacking("torch._inductor.config", key):
            yield f"{lacking} (an option of packages)"


def _find_lacking(modules: str, name: str) -> str:
    """Return what is missing of `name(parameters)` in modules of torch; "" if nothing is."""
    path, _, listed = name.removesuffix(")").partition("(")
    first, *steps = path.split(".")
    home = home_of(modules, first)
    if home is None:
        return f"{modules.partition(' | ')[0]}.{first}"
    found: object = getattr(home, first)
    for step in steps:
        if not hasattr(found, step):
            return f"{home.__name__}.{path}"
        found = getattr(found, step)
    if not listed:
        return ""
    given = inspect.signature(found).parameters if callable(found) else {}
    lacking = [each for each in listed.split(",") if each not in given]
    return f"parameter {', '.join(lacking)} of {home.__name__}.{path}" if lacking else ""


def _find_unloadable() -> Iterator[str]:
    """Yield why fbgemm's operators do not load: its builds fit the release of torch they were made for."""
    try:
        import fbgemm_gpu  # noqa: F401  loads them
    except (ImportError, OSError) as error:
        yield f"operators of fbgemm, which do not load ({_first_cause(error)})"


def _first_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error).strip().partition("\n")[0]


def main() -> int:
    """Say on stderr what is missing, as JSON; return 1 if anything is."""
    try:
        require_torch()
    except TorchUnsupported as error:
        sys.stderr.write(Failure.of(error).model_dump_json() + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
