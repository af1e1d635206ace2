"""The table of what Slipway needs of torch beyond its public API; `probe.check` compares torch with it."""

import importlib
from collections.abc import Mapping
from types import ModuleType

# Names that moved are looked for in several modules, in this order.
STRIDES = "torch._inductor.sizevars | torch._inductor.codegen.cpp"

# Module of ours -> module of torch -> names in it, each with the parameters that are passed by name or that a
# function of ours put in its place takes. A name may lead into a class.
NEEDS: Mapping[str, Mapping[str, str]] = {
    "torch_private": {
        "torch._inductor": "aot_compile(gm,args,kwargs,options)",
        "torch._inductor.codecache": "ALIGN_BYTES determine_aoti_mmap_flags struct",
        "torch._inductor.config": "save_config_portable",
        "torch._inductor.cpp_builder": "CppBuilder.build(self) get_cpp_compiler",
        "torch._inductor.exc": "InvalidCxxCompiler",
        "torch._inductor.graph": "GraphLowering.get_original_value_of_constant",
        "torch._inductor.virtualized": "V",
        "torch._library.custom_ops": "OPDEFS CustomOpDef",
        "torch._library.triton": "triton_ops_to_kernels",
        "torch._library.utils": "has_fake_kernel",
        "torch._logging.structured": "INTERN_TABLE",
        "torch._subclasses": "FakeTensor",
        "torch.export._draft_export": "FailureReport FailureType.GUARD_ADDED",
        "torch.export.pt2_archive._package_weights": "Weights",
        "torch.fx.experimental._config": "backed_size_oblivious patch",
        "torch.fx.proxy": "TracerBase.create_node(self,kind,target,args,kwargs,name,type_expr)",
        "torch._C": "_dispatch_has_kernel_for_dispatch_key",
    },
    "inductor.headers": {
        "torch._inductor.codecache": "_HEADER_DIR _HEADER_LOCK_DIR "
        "_precompile_header(header,hashable_cmd_line) _worker_compile_cpp(lock_path,cpp_builders)",
        "torch._inductor.cpp_builder": "CppBuilder.get_target_file_path get_compiler_version_info(compiler) "
        "get_cpp_compiler",
        "torch._inductor.runtime.cache_dir_utils": "cache_dir",
    },
    "inductor.instruction_sets": {
        "torch._inductor.cpp_builder": "_get_optimization_cflags get_cpp_compiler",
        "torch._inductor.cpu_vec_isa": "VecAVX512.is_avx512_bf16_supported.cache_clear VecISA.bit_width "
        "VecISA.build_arch_flags VecISA.check_build(self,code) pick_vec_isa supported_vec_isa_list "
        "valid_vec_isa_list.cache_clear",
        "torch._inductor.exc": "InvalidCxxCompiler",
    },
    "inductor.interface": {
        "torch._inductor.cpp_builder": "get_compiler_version_info(compiler) run_compile_cmd(cmd_line,cwd)",
    },
    "inductor.shared_sizes": {
        "torch._inductor.codegen.cpp_wrapper_cpu": "CppWrapperCpu.generate_input_output_runtime_checks(self)",
        "torch._inductor.virtualized": "V",
    },
    "inductor.shortcuts": {
        "torch._inductor.codegen.common": "CSEVariable pytree",
        "torch._inductor.dtype_propagation": "DtypePropagationOpsHandler.__init__(self)",
        "torch.fx.experimental.proxy_tensor": "get_proxy_mode",
        "torch.fx.experimental.sym_node": "SymNode._add SymNode._mul SymNode._sub SymNode._eq SymNode._ne "
        "SymNode._lt SymNode._le SymNode._gt SymNode._ge SymNode._sym_max SymNode._sym_min",
        "torch.utils._pytree": "tree_map",
        STRIDES: "stride_at(index,var) simplify_index_in_vec_range(index,var,vec_length)",
        "torch._inductor.codegen.cpp": "CppVecOverrides",
    },
    "kernels.attention_template": {
        "torch._inductor.codegen.cpp_template_kernel": "CppTemplateKernel.def_kernel(self,inputs,outputs) "
        "CppTemplateKernel.maybe_codegen_profile CppTemplateKernel.rename_indexing CppTemplateKernel.render "
        "CppTemplateKernel.size CppTemplateKernel.stride",
        "torch._inductor.ir": "CppTemplateBuffer ExternKernel.copy_input ExternKernel.realize_input "
        "FixedLayout IRNode StorageBox TensorBox.create",
        "torch._inductor.lowering": "register_lowering(aten_fn,type_promotion_kind)",
        "torch._inductor.utils": "Placeholder.KERNEL_NAME",
    },
    "kernels.products": {"torch._inductor.lowering": "lowerings"},
    "native_call": {"torch._C._aoti": "alloc_tensors_by_stealing_from_void_ptrs"},
    "torch_loader": {
        "torch._C._aoti": "AOTIModelPackageLoader.boxed_run AOTIModelPackageLoader.get_call_spec "
        "AOTIModelPackageLoader.load_constants",
        "torch.utils._pytree": "tree_unflatten treespec_loads",
    },
    "tuning": {
        "torch._inductor.codegen.cpp_wrapper_gpu": "CppWrapperGpu",
        "torch._inductor.codegen.wrapper": "PythonWrapperCodegen.generate_example_arg_value"
        "(self,arg,arg_type,raw_arg)",
        "torch._inductor.ir": "IRNode",
        "torch._inductor.virtualized": "V",
    },
}


def home_of(modules: str, name: str) -> ModuleType | None:
    """Return the first of the modules, as the table writes them, that has a name; None if none has."""
    for module in modules.split(" | "):
        try:
            found = importlib.import_module(module)
        except ImportError:
            continue
        if hasattr(found, name):
            return found
    return None
