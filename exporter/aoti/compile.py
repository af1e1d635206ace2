"""Compile a program with AOTInductor."""

import platform
from importlib.metadata import PackageNotFoundError, version

import torch
from torch.export import ExportedProgram

from exporter.aoti.code import CompiledCode
from exporter.aoti.out_of_memory import as_out_of_memory
from exporter.aoti.torch_private import compile_files, observe_compiled_files
from exporter.errors import CompileFailed
from exporter.manifest import Versions
from exporter.spec import Device, Target, device_of
from exporter.stages import Progress, no_progress
from exporter.version import __version__


def compile_code(
    program: ExportedProgram,
    progress: Progress = no_progress,
    *,
    target: Target = "cpu",
    make_headers: bool = False,
) -> CompiledCode:
    """Compile `program` for `target`; the code does not contain the weights.

    Headers that this compile needs are precompiled for later ones if `make_headers`.

    Raises:
        OutOfMemory: the compiler ran out of memory; kernels for a GPU are tuned on the GPU.
        CompileFailed: any other failure, with the start of the compiler's message.
    """
    if device_of(target) is Device.CPU:
        # Inductor's import takes a second.
        from exporter.aoti.kernels.attention_template import register_kernels
        from exporter.aoti.kernels.products import split_biases

        register_kernels()
        split_biases()
    try:
        with observe_compiled_files(lambda files: progress(None, _count_compiled(files))):
            written = compile_files(program, target, make_headers=make_headers)
    except Exception as error:  # inductor and the C++ compiler raise many unrelated types
        text = str(error).strip()
        raise as_out_of_memory(error, "compiling") or CompileFailed(
            f"{type(error).__name__}: {text[:1500]}",
            hint="a C++ compiler (g++) must be on the PATH" if "compiler" in text.lower() else "",
        ) from error
    return CompiledCode(
        files={path.name: path.read_bytes() for path in written.paths},
        values=written.values,
    )


def versions() -> Versions:
    """Return the versions that a package compiled here depends on."""
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


def _count_compiled(files: int) -> str:
    return f"{files} file{'' if files == 1 else 's'} compiled"
