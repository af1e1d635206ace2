"""All use of torch's private API (torch 2.13), except loading, tuning, `kernels` and `inductor`.

Other modules use only private names without a public counterpart: types of operators, dispatch modes,
pytrees.
"""

import copy
import gc
import inspect
import struct
import subprocess
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import torch
import torch._inductor
import torch.fx.experimental._config as symbolic_shapes_config
from torch._inductor import codecache, cpp_builder
from torch._inductor import config as inductor_config
from torch._inductor.cpp_builder import CppBuilder
from torch._inductor.exc import InvalidCxxCompiler
from torch._inductor.virtualized import V
from torch._library.custom_ops import OPDEFS, CustomOpDef
from torch._library.triton import triton_ops_to_kernels
from torch._library.utils import has_fake_kernel
from torch._logging.structured import INTERN_TABLE
from torch._subclasses import FakeTensor
from torch.export import ExportedProgram
from torch.export._draft_export import FailureReport, FailureType
from torch.export.pt2_archive._package_weights import Weights
from torch.fx.node import Argument, Node
from torch.fx.node import Target as NodeTarget
from torch.fx.proxy import TracerBase

from exporter.aoti.compiler_options import GPU_CONFIG, PACKAGE_CONFIG, target_options
from exporter.aoti.inductor.headers import header_folder, keep_headers, use_headers
from exporter.aoti.inductor.instruction_sets import limit_instruction_sets, probe_quickly
from exporter.aoti.inductor.interface import link_interface
from exporter.aoti.inductor.shared_sizes import check_shared_sizes
from exporter.aoti.inductor.shortcuts import shortcuts
from exporter.dims.diagnose import SizeGuard, sizes_in
from exporter.dims.torch_dims import TorchDims
from exporter.spec import Device, Target, device_of


@contextmanager
def observe_nodes(on_node: Callable[[int, Node], None]) -> Iterator[None]:
    """Call `on_node` with the number of nodes so far and the node, for each node that tracing creates."""
    create_node, numbers = TracerBase.create_node, count(1)

    def create_and_report(
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

    with _replace_attribute(TracerBase, "create_node", create_and_report):
        yield


@contextmanager
def observe_compiled_files(on_file: Callable[[int], None]) -> Iterator[None]:
    """Call `on_file` with the number of files after each object or library that inductor builds."""
    build, numbers = CppBuilder.build, count(1)

    def build_and_report(self: CppBuilder) -> None:
        build(self)
        on_file(next(numbers))

    with _replace_attribute(CppBuilder, "build", build_and_report):
        yield


@contextmanager
def _replace_attribute(owner: type, name: str, instead: object) -> Iterator[None]:
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
    """Return the conditions of the module's code on sizes of its inputs, from draft_export's report."""
    with torch.no_grad(), sizes_zero_and_one_stay_dynamic(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.draft_export(module, (inputs,), dynamic_shapes=(dims,), strict=False)
        gc.collect()  # closes the log file of draft_export, which would give a ResourceWarning later
    failures = program._report.failures  # type: ignore[attr-defined]  # set by draft_export
    # The report's own text is not usable: formatting fails on a guard without a stack, and files that torch
    # logged earlier in this process have no name in it.
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


@dataclass(frozen=True, kw_only=True, eq=False)
class CompiledFiles:
    """Files that AOTInductor wrote, without weights, and the values of constants of the model's code."""

    paths: tuple[Path, ...]
    values: Mapping[str, torch.Tensor]


def compile_files(
    program: ExportedProgram, target: Target = "cpu", *, make_headers: bool = False
) -> CompiledFiles:
    """Compile a program with AOTInductor for a target; precompile headers for later programs if asked to.

    The compiler gets fake tensors for parameters and buffers, so that no weight can become part of the code.
    """
    with ExitStack() as patches:
        patches.enter_context(warnings.catch_warnings())
        patches.enter_context(sizes_zero_and_one_stay_dynamic())
        patches.enter_context(probe_quickly())
        patches.enter_context(limit_instruction_sets(target))
        patches.enter_context((keep_headers if make_headers else use_headers)(header_folder(target)))
        patches.enter_context(link_interface(header_folder(target)))
        patches.enter_context(shortcuts())
        patches.enter_context(check_shared_sizes())
        if device_of(target) is Device.CUDA:
            from exporter.aoti.tuning import tune_on_weights  # its import takes a third of a second

            patches.enter_context(tune_on_weights(program.state_dict))
        if _reads_weights(program):
            patches.enter_context(_leave_out_weights())
        warnings.simplefilter("ignore")  # warnings on inductor's own internals; failures raise
        module = _replace_weights_with_fakes(program).module(check_guards=False)
        assert isinstance(module, torch.fx.GraphModule) and program.example_inputs is not None
        args, kwargs = program.example_inputs
        # Inductor writes into this dict; by default it is one dict for the whole process.
        options: dict[str, object] = {**_package_config(program), **target_options(target)}
        options["aot_inductor.metadata"] = {}
        written = torch._inductor.aot_compile(module, args, kwargs, options=options)
    assert isinstance(written, list)
    constants = [
        (name, tensor) for each in written if isinstance(each, Weights) for name, (tensor, _) in each.items()
    ]
    return CompiledFiles(
        paths=tuple(Path(each) for each in written if isinstance(each, str)),
        values={name: tensor for name, tensor in constants if not isinstance(tensor, FakeTensor)},
    )


def has_shape_rule(operator: torch._ops.OpOverload) -> bool:
    """Return whether tracing can compute the sizes of an operator's results."""
    name = operator.name()
    keys = ("Meta", "CompositeImplicitAutograd", "CompositeExplicitAutograd")
    if operator.namespace in {"aten", "prim", "prims"}:
        return True
    if (
        definition := _definition(operator)
    ) is not None:  # its fake kernel exists even without a rule, and raises
        return definition._abstract_fn is not None
    return has_fake_kernel(operator) or any(
        torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in keys
    )


def defining_module(operator: torch._ops.OpOverload) -> str | None:
    """Return the module whose import registers an operator made by `torch.library`; None for others."""
    definition = _definition(operator)
    if definition is None:
        return None
    if is_compiled_in(operator):  # torch wraps the function given to `triton_op`
        return str(inspect.getclosurevars(definition._init_fn).nonlocals["fn"].__module__)
    return definition._init_fn.__module__


def is_compiled_in(operator: torch._ops.OpOverload) -> bool:
    """Return whether an operator was made with `triton_op`, whose kernels are compiled into the package."""
    return operator.name().partition(".")[0] in triton_ops_to_kernels


def _definition(operator: torch._ops.OpOverload) -> CustomOpDef | None:
    return OPDEFS.get(operator.name().partition(".")[0])


def _replace_weights_with_fakes(program: ExportedProgram) -> ExportedProgram:
    """Return a copy of the program with the fake tensors of its trace as parameters and buffers."""
    signature = program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    traced = {
        names[node.name]: node.meta["val"]
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in names
    }
    fake: dict[str, torch.Tensor] = {}
    for name, tensor in program.state_dict.items():
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        value = traced.get(name, tensor)
        fake[name] = torch.nn.Parameter(value, requires_grad=False) if is_parameter else value
    bare = copy.copy(program)
    bare._state_dict = fake
    return bare


@contextmanager
def _leave_out_weights() -> Iterator[None]:
    """Compile code that reads its weights from a blob beside it, without writing that blob.

    Inductor generates such code only together with the blob, which it builds in memory. Therefore it is set
    to pickle the weights, which it leaves to its caller; a patch makes the code expect a blob all the same,
    and another one inserts the only fact on the blob that the code contains, its size in bytes.
    """
    with (
        mock.patch.object(codecache, "determine_aoti_mmap_flags", return_value=(True, False)),
        mock.patch.object(codecache, "struct", SimpleNamespace(pack=_pack_size)),
    ):
        yield


def _pack_size(layout: str, *values: int) -> bytes:
    """Call struct.pack, but replace a blob size of 0 by the size that the blob will have."""
    if (layout, values) == ("q", (0,)):
        values = (_blob_size(),)
    return struct.pack(layout, *values)


def _blob_size() -> int:
    """Return the bytes of the blob being compiled, as inductor does: padded unless all is on a GPU."""
    names = (name for name in V.graph.constants if name not in V.graph.folded_constants)
    constants = [V.graph.get_original_value_of_constant(name) for name in names]
    sizes = [tensor.untyped_storage().nbytes() if tensor.numel() else 0 for tensor in constants]
    if all(tensor.is_cuda for tensor in constants):
        return sum(sizes)
    return sum(-(-size // codecache.ALIGN_BYTES) * codecache.ALIGN_BYTES for size in sizes)


def _package_config(program: ExportedProgram) -> Mapping[str, bool | str | int]:
    """Return `PACKAGE_CONFIG`, but no blob for a program without weights: torch loads no empty blob."""
    return PACKAGE_CONFIG if _reads_weights(program) else {"aot_inductor.package": True}


def _reads_weights(program: ExportedProgram) -> bool:
    signature = program.graph_signature
    weights = {
        *signature.inputs_to_parameters,
        *signature.inputs_to_buffers,
        *signature.inputs_to_lifted_tensor_constants,
    }
    return any(node.users for node in program.graph.nodes if node.name in weights)


def compiler_settings() -> tuple[tuple[str, str], ...]:
    """Return everything that affects the compiled code, except the graph and the machine."""
    portable = inductor_config.save_config_portable()
    return (
        ("config", str(sorted((name, repr(value)) for name, value in portable.items()))),
        ("package", str(sorted({**PACKAGE_CONFIG, **GPU_CONFIG}.items()))),
        ("threads", str(torch.get_num_threads())),  # part of the code of loops
        ("c++", _compiler_version()),
        ("tf32", str(torch.backends.cuda.matmul.allow_tf32)),  # part of the code of Triton's kernels
    )


@cache
def _compiler_version() -> str:
    try:
        command = [cpp_builder.get_cpp_compiler(), "--version"]
        answer = subprocess.run(command, check=True, capture_output=True, text=True)
    except (InvalidCxxCompiler, OSError, subprocess.SubprocessError):
        return "none"  # compiling reports it, if something is to be compiled
    return answer.stdout.partition("\n")[0]
