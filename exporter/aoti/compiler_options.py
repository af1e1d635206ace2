"""Inductor's options for packages and for each target, by inductor's own configuration keys."""

from collections.abc import Mapping

from exporter.spec import Device, Target, device_of

# Options of every package.
# - Weights stay outside the .so, in a plain blob in the order of the package's constants table, so that
#   compiled code does not depend on them. With this format inductor writes no blob: see `_leave_out_weights`
#   in torch_private.py.
# - Constants are folded when the package is loaded: folded at compile time, their values would become part of
#   the code. So would the values of weights of one element, which an earlier pass treats as constants.
PACKAGE_CONFIG: Mapping[str, bool | str | int] = {
    "aot_inductor.package": True,
    "aot_inductor.package_constants_in_so": False,
    "aot_inductor.package_constants_on_disk_format": "pickle_weights",
    "aot_inductor.use_runtime_constant_folding": True,
    "joint_graph_constant_folding": False,
}

# Further options for a GPU.
# - Autotuning runs kernels on made-up inputs. A size that depends on data is assumed to be 8192: a mask of 64
#   rows of that size squared would take 16 GB.
# - Our own kernels that autotune are accepted, though inductor ignores some of their autotuning arguments.
# - Numbers that depend on data are as wide in the package as they are in eager.
# - Loops are merged before kernels are fused and not afterwards: see `workarounds.LOOPS`.
GPU_CONFIG: Mapping[str, bool | int] = {
    "unbacked_symint_fallback": 256,
    "unsafe_ignore_unsupported_triton_autotune_args": True,
    "_use_fp64_for_unbacked_floats": False,
    "loop_ordering_after_fusion": False,
}

# Without these options inductor uses every instruction set of the compiling machine.
CPU_LEVELS: Mapping[Target, Mapping[str, int]] = {
    "avx2": {"cpp.simdlen": 256},
    "avx512": {"cpp.simdlen": 512},
}
# The C++ compiler's name of each level. It is no option, because not every release of torch has one for it.
MARCH: Mapping[Target, str] = {"avx2": "x86-64-v3", "avx512": "x86-64-v4"}


def target_options(target: Target) -> Mapping[str, str | int | bool]:
    """Return the options of a target, in addition to those of every package."""
    return GPU_CONFIG if device_of(target) is Device.CUDA else CPU_LEVELS.get(target, {})
