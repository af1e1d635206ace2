"""The extras of slipway: tells in one line which of them brings a package that is not installed."""

from collections.abc import Mapping
from importlib.util import find_spec

from processes.errors import MissingExtra

# It requires fbgemm-gpu, whose file on the usual index is for CUDA and fails to load beside torch for CPU.
TORCHREC = "torchrec==1.8.0"
_TORCHREC_ALONE = f'pip install --no-deps "{TORCHREC}"'

# The modules that we import, by the extra that brings them; the first extra with a module is proposed.
MODULES: Mapping[str, tuple[str, ...]] = {
    "exporter": (
        "torch",
        "fbgemm_gpu",
        "torchrec",
        "tensordict",
        "numpy",
        "pyarrow",
        "safetensors",
        "faiss",
        "yaml",
        "sympy",
        "triton",
    ),
    "worker": ("celery", "kombu", "redis", "pynvml"),
    "service": (
        "fastapi",
        "starlette",
        "uvicorn",
        "jinja2",
        "jwt",
        "prometheus_client",
        "cloudevents",
        "standardwebhooks",
        "opentelemetry",
    ),
}

# Some machines and requests do without; what needs them says so.
_DISPENSABLE = {"faiss", "pynvml", "triton"}


def require_extras(*extras: str, asked: str | None = None) -> None:
    """Refuse to go on unless the packages of the extras are installed; nothing is imported.

    `asked` is the extra to propose if it holds all others.

    Raises:
        MissingExtra: some are not; the hint is the command that installs them.
    """
    needed = [name for extra in extras for name in MODULES[extra] if name not in _DISPENSABLE]
    if missing := [name for name in needed if find_spec(name) is None]:
        raise _missing(missing, asked or extras[0])


def as_missing_extra(error: ModuleNotFoundError) -> MissingExtra | None:
    """Return what to tell of a failed import; None if the module is in none of the extras."""
    top = (error.name or "").partition(".")[0]
    return next((_missing([top], extra) for extra, names in MODULES.items() if top in names), None)


def _missing(modules: list[str], extra: str) -> MissingExtra:
    are = "are" if len(modules) > 1 else "is"
    commands = [f'pip install "slipway[{extra}]"'] if modules != ["torchrec"] else []
    commands += [_TORCHREC_ALONE] if "torchrec" in modules else []
    return MissingExtra(f"{', '.join(modules)} {are} not installed", hint=", then ".join(commands))
