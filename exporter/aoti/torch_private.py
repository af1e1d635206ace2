"""Every use of torch's private API, in one place (torch 2.13)."""

import gc
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import torch
import torch._inductor
import torch.fx.experimental._config as symbolic_shapes_config
from torch._inductor import cpu_vec_isa
from torch._inductor.cpp_builder import CppBuilder
from torch._library.utils import has_fake_kernel
from torch._logging.structured import INTERN_TABLE
from torch.export import ExportedProgram
from torch.export._draft_export import FailureReport, FailureType
from torch.fx.node import Argument, Node
from torch.fx.node import Target as NodeTarget
from torch.fx.proxy import TracerBase

from exporter.dims.diagnose import SizeGuard, sizes_in
from exporter.dims.torch_dims import TorchDims
from exporter.spec import Target

# What inductor is told for every package; values are inductor's own configuration keys.
# - Weights stay outside the .so, as a plain blob in the order of the package's constants table, so
#   that compiled code does not depend on them and they can be rewritten without compiling.
# - Folding of constants happens when the package is loaded: folded at compile time, the weights'
#   values would be baked into the code.
_PACKAGE_CONFIG: Mapping[str, bool | str | int] = {
    "aot_inductor.package_constants_in_so": False,
    "aot_inductor.package_constants_on_disk_format": "binary_blob",
    "aot_inductor.use_runtime_constant_folding": True,
}

# Inductor takes every instruction that the compiling machine has, unless it is told a level.
_LEVELS: Mapping[Target, Mapping[str, str | int]] = {
    "avx2": {"cpp.simdlen": 256, "cpp.march": "x86-64-v3"},
    "avx512": {"cpp.simdlen": 512, "cpp.march": "x86-64-v4"},
}


class Package:
    """A loaded package: call it with the dict of inputs it was traced with."""

    def __init__(self, path: Path, device_index: int = -1) -> None:
        """Load native code: only from a package whose digest is known."""
        self.model = torch._inductor.aoti_load_package(str(path), device_index=device_index)

    def __call__(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        outputs: dict[str, torch.Tensor] = self.model(dict(inputs))
        return outputs


@contextmanager
def nodes_counted(on_node: Callable[[int, Node], None]) -> Iterator[None]:
    """Tell of each node that tracing makes, and how many there are; torch.export itself tells nothing."""
    create_node, numbers = TracerBase.create_node, count(1)

    def counted(
        self: TracerBase,
        kind: str,
        target: NodeTarget,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: object = None,
    ) -> Node:
        node = create_node(self, kind, target, args, kwargs, name, type_expr)
        on_node(next(numbers), node)
        return node

    with _replaced(TracerBase, "create_node", counted):
        yield


@contextmanager
def files_counted(on_file: Callable[[int], None]) -> Iterator[None]:
    """Tell after each C++ file that inductor builds, objects and libraries, how many there are."""
    build, numbers = CppBuilder.build, count(1)

    def counted(self: CppBuilder) -> None:
        build(self)
        on_file(next(numbers))

    with _replaced(CppBuilder, "build", counted):
        yield


@contextmanager
def _replaced(owner: type, name: str, instead: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, instead)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def sizes_zero_and_one_stay_dynamic() -> Iterator[None]:
    """Trace and compile without assuming that dynamic sizes are at least 2.

    Otherwise torch.export and AOTInductor treat 0 and 1 as special, and the package's input checks
    refuse an empty history or a single row whatever lower bound the `Dim` states.
    """
    with symbolic_shapes_config.patch(  # type: ignore[attr-defined] # added when the module is imported
        backed_size_oblivious=True
    ):
        yield


def draft_guards(
    module: torch.nn.Module, inputs: dict[str, torch.Tensor], dims: TorchDims
) -> tuple[SizeGuard, ...]:
    """What the module's code demands of the sizes of its inputs, as torch's draft_export reports it."""
    with torch.no_grad(), sizes_zero_and_one_stay_dynamic(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.draft_export(module, (inputs,), dynamic_shapes=(dims,), strict=False)
        gc.collect()  # draft_export leaves its log file open, which would be a ResourceWarning later
    failures = program._report.failures  # type: ignore[attr-defined]  # set by draft_export
    # The report's own text is not usable: printing fails on a guard without a stack, and files that
    # torch has logged before in this process have no name in it.
    files = {number: file for file, number in INTERN_TABLE.items()}
    added = [failure for failure in failures if failure.failure_type == FailureType.GUARD_ADDED]
    return tuple(_size_guard(failure, files) for failure in added)


def _size_guard(failure: FailureReport, files: Mapping[int, str]) -> SizeGuard:
    outside_torch = [
        (Path(files[frame["filename"]]), frame)
        for frame in failure.data["user_stack"]
        if "torch" not in Path(files.get(frame["filename"], "torch")).parts
    ]
    place, code = "", ""
    if outside_torch:
        file, frame = outside_torch[-1]
        parts = file.parts[file.parts.index("exporter") :] if "exporter" in file.parts else file.parts[-2:]
        place, code = f"{'/'.join(parts)}:{frame['line']}", str(frame["loc"])
    sources = failure.data["symbol_to_sources"].values()
    return SizeGuard(
        condition=str(failure.data["expr"]),
        sizes=tuple(size for source in sources for size in sizes_in(str(source))),
        place=place,
        code=code,
    )


def compile_and_package(program: ExportedProgram, path: Path, target: Target = "cpu") -> None:
    """Compile a program with AOTInductor for a target into one `.pt2` at `path`."""
    with warnings.catch_warnings(), sizes_zero_and_one_stay_dynamic(), _only_instructions_of(target):
        warnings.simplefilter("ignore")  # inductor's remarks on its own internals; failures raise
        torch._inductor.aoti_compile_and_package(
            program,
            package_path=str(path),
            inductor_configs={**_package_config(program), **_LEVELS.get(target, {})},
        )


def has_shape_rule(operator: torch._ops.OpOverload) -> bool:
    """Whether tracing can tell what sizes an operator returns."""
    name = operator.name()
    keys = ("Meta", "CompositeImplicitAutograd", "CompositeExplicitAutograd")
    if operator.namespace in {"aten", "prim", "prims"}:
        return True
    return has_fake_kernel(operator) or any(
        torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in keys
    )


def _package_config(program: ExportedProgram) -> dict[str, bool | str | int]:
    """`_PACKAGE_CONFIG`; without it for a program that reads no weight, whose empty blob cannot be loaded."""
    signature = program.graph_signature
    weights = {
        *signature.inputs_to_parameters,
        *signature.inputs_to_buffers,
        *signature.inputs_to_lifted_tensor_constants,
    }
    read = any(node.users for node in program.graph.nodes if node.name in weights)
    return dict(_PACKAGE_CONFIG) if read else {}


def cpu_instruction_sets() -> tuple[str, ...]:
    """The vector instruction sets that inductor compiles for here: ("avx512", "avx512_vnni"), ..."""
    isa = cpu_vec_isa.pick_vec_isa()
    return tuple(str(isa).lower().split()) if isa else ()


@contextmanager
def _only_instructions_of(target: Target) -> Iterator[None]:
    """Let inductor write vector code of a level of x86-64 only.

    Of the sets of 512 bits it would pick the newest (AMX, VNNI, bfloat16), which not every machine of the
    level has.
    """
    if target not in _LEVELS:
        yield
        return
    known = cpu_vec_isa.supported_vec_isa_list
    plain = [isa for isa in known if str(isa) == target and isa]  # asking is what probes for bfloat16
    wide = [isa for isa in plain if isinstance(isa, cpu_vec_isa.VecAVX512)]
    bf16 = [isa for isa in wide if isa._is_avx512_bf16_supported]
    cpu_vec_isa.supported_vec_isa_list = plain
    for isa in bf16:
        isa._is_avx512_bf16_supported = False
    _forget_instruction_sets()
    try:
        yield
    finally:
        cpu_vec_isa.supported_vec_isa_list = known
        for isa in bf16:
            isa._is_avx512_bf16_supported = True
        _forget_instruction_sets()


def _forget_instruction_sets() -> None:
    cpu_vec_isa.valid_vec_isa_list.cache_clear()
    cpu_vec_isa.VecAVX512.is_avx512_bf16_supported.cache_clear()
