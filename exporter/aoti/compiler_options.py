"""What inductor is told of a package and of its target, by inductor's own configuration keys."""

from collections.abc import Mapping

from exporter.spec import Device, Target, device_of

# What inductor is told for every package; values are inductor's own configuration keys.
# - Weights stay outside the .so, in a plain blob in the order of the package's constants table, so that
#   compiled code does not depend on them. Of the formats this one writes none: see `_leave_out_weights`.
# - Folding of constants happens when the package is loaded: folded at compile time, their values would be
#   baked into the code. So would be those of weights of one number, that an earlier pass takes for constants.
PACKAGE_CONFIG: Mapping[str, bool | str | int] = {
    "aot_inductor.package": True,
    "aot_inductor.package_constants_in_so": False,
    "aot_inductor.package_constants_on_disk_format": "pickle_weights",
    "aot_inductor.use_runtime_constant_folding": True,
    "joint_graph_constant_folding": False,
}

# What it is told besides for a GPU.
# - Autotuning runs kernels on made-up inputs. A size that depends on data is made up too, as 8192: a mask of
#   64 rows of as many places would take 16 GB.
# - A kernel of ours that autotunes is not refused for what inductor leaves out of its way of autotuning.
# - Numbers that depend on data are as wide in the package as they are in eager.
# - Loops are merged before kernels are fused and not after it: see `workarounds.LOOPS`.
GPU_CONFIG: Mapping[str, bool | int] = {
    "unbacked_symint_fallback": 256,
    "unsafe_ignore_unsupported_triton_autotune_args": True,
    "_use_fp64_for_unbacked_floats": False,
    "loop_ordering_after_fusion": False,
}

# Inductor takes every instruction that the compiling machine has, unless it is told a level.
CPU_LEVELS: Mapping[Target, Mapping[str, str | int]] = {
    "avx2": {"cpp.simdlen": 256, "cpp.march": "x86-64-v3"},
    "avx512": {"cpp.simdlen": 512, "cpp.march": "x86-64-v4"},
}


def target_options(target: Target) -> Mapping[str, str | int | bool]:
    """What a target adds to what every package has."""
    return GPU_CONFIG if device_of(target) is Device.CUDA else CPU_LEVELS.get(target, {})
