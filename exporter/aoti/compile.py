"""A program becomes a package: AOTInductor."""

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from torch.export import ExportedProgram

from exporter.aoti.torch_private import compile_and_package, files_counted
from exporter.errors import CompileFailed
from exporter.manifest import Versions
from exporter.spec import Target
from exporter.stages import Progress, no_progress
from exporter.version import __version__


def compile_package(
    program: ExportedProgram, path: Path, progress: Progress = no_progress, *, target: Target = "cpu"
) -> Path:
    """Compile `program` for `target` into the package at `path`, weights beside the code and not inside it.

    Raises:
        CompileFailed: with the compiler's last words.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with files_counted(lambda files: progress(None, f"{path.name}: {files} files compiled")):
            compile_and_package(program, path, target)
    except Exception as error:  # inductor and the C++ compiler fail in many types; all mean the same here
        text = str(error).strip()
        raise CompileFailed(
            f"{type(error).__name__}: {text[:1500]}",
            hint="a C++ compiler (g++) must be on the PATH" if "compiler" in text.lower() else "",
        ) from error
    return path


def versions() -> Versions:
    """The versions a package compiled here depends on."""
    return Versions(
        slipway=__version__,
        python=platform.python_version(),
        torch=torch.__version__,
        torchrec=version("torchrec"),
        fbgemm=_fbgemm_version(),
        triton=version("triton"),
        cuda=torch.version.cuda,
    )


def _fbgemm_version() -> str:
    for distribution in ("fbgemm-gpu", "fbgemm-gpu-cpu"):
        try:
            return f"{distribution} {version(distribution)}"
        except PackageNotFoundError:
            continue
    return "none"
