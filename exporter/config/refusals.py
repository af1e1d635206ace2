"""Errors of the readers of config messages: one sentence, with the place in the config."""

from typing import NoReturn

from exporter.errors import InvalidPipelineConfig, UnsupportedConfig

# Attributes of torch's module containers, which cannot name a table, nor the weights of a group or a task.
_ATTRIBUTES = frozenset(
    (
        "T_destination", "_apply", "_backward_hooks", "_backward_pre_hooks", "_buffers", "_call_impl",
        "_compiled_call_impl", "_forward_hooks", "_forward_hooks_always_called",
        "_forward_hooks_with_kwargs", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs",
        "_get_backward_hooks", "_get_backward_pre_hooks", "_get_name", "_is_full_backward_hook",
        "_load_from_state_dict", "_load_state_dict_post_hooks", "_load_state_dict_pre_hooks",
        "_maybe_warn_non_full_backward_hook", "_modules", "_named_members", "_non_persistent_buffers_set",
        "_parameters", "_register_load_state_dict_pre_hook", "_register_state_dict_hook",
        "_replicate_for_data_parallel", "_save_to_state_dict", "_slow_forward", "_state_dict_hooks",
        "_state_dict_pre_hooks", "_version", "_wrapped_call_impl", "add_module", "apply", "bfloat16",
        "buffers", "call_super_init", "children", "clear", "compile", "cpu", "cuda", "double",
        "dump_patches", "eval", "extra_repr", "float", "forward", "get_buffer", "get_extra_state",
        "get_parameter", "get_submodule", "half", "ipu", "items", "keys", "load_state_dict",
        "modules", "mtia", "named_buffers", "named_children", "named_modules", "named_parameters",
        "parameters", "pop", "register_backward_hook", "register_buffer", "register_forward_hook",
        "register_forward_pre_hook", "register_full_backward_hook", "register_full_backward_pre_hook",
        "register_load_state_dict_post_hook", "register_load_state_dict_pre_hook", "register_module",
        "register_parameter", "register_state_dict_post_hook", "register_state_dict_pre_hook",
        "requires_grad_", "set_extra_state", "set_submodule", "share_memory", "state_dict", "to",
        "to_empty", "train", "training", "type", "update", "values", "xpu", "zero_grad",
    )
)  # fmt: skip


def raise_invalid(where: str, problem: str, *, hint: str) -> NoReturn:
    """Raise InvalidPipelineConfig: the config contradicts itself at `where`."""
    raise InvalidPipelineConfig(f"{where}: {problem}", hint=hint, where=where)


def check_name(name: str, where: str) -> None:
    """Refuse a name that a torch module cannot have: one that is empty, has a dot, or is an attribute's."""
    if not name or "." in name or name in _ATTRIBUTES:
        raise_invalid(where, f"{name!r} cannot be the name of weights", hint="use another name, without dots")


def raise_unsupported(where: str, problem: str, *, hint: str) -> NoReturn:
    """Raise UnsupportedConfig: the config asks at `where` for something that Slipway does not build."""
    raise UnsupportedConfig(f"{where}: {problem}", hint=hint, where=where)
