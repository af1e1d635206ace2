"""Errors of the readers of config messages: one sentence, with the place in the config."""

from typing import NoReturn

from exporter.errors import InvalidPipelineConfig, UnsupportedConfig

# Attributes of torch's module containers, which cannot be the name of a group's or a task's weights.
_METHODS = frozenset(
    (
        "add_module", "apply", "bfloat16", "bool", "buffers", "call_super_init", "children", "clear",
        "compile", "cpu", "cuda", "double", "dump_patches", "eval", "extra_repr", "float", "forward",
        "get_buffer", "get_extra_state", "get_parameter", "get_submodule", "half", "int", "ipu", "items",
        "keys", "load_state_dict", "modules", "mtia", "named_buffers", "named_children", "named_modules",
        "named_parameters", "parameters", "pop", "register_backward_hook", "register_buffer",
        "register_module", "register_parameter", "requires_grad_", "set_extra_state", "set_submodule",
        "share_memory", "state_dict", "to", "to_empty", "train", "training", "type", "update", "values",
        "xpu", "zero_grad",
    )
)  # fmt: skip


def raise_invalid(where: str, problem: str, *, hint: str) -> NoReturn:
    """Raise InvalidPipelineConfig: the config contradicts itself at `where`."""
    raise InvalidPipelineConfig(f"{where}: {problem}", hint=hint, where=where)


def check_name(name: str, where: str) -> None:
    """Refuse a name that a torch module cannot have: one that is empty, has a dot, or is a method's."""
    if not name or "." in name or name in _METHODS:
        raise_invalid(where, f"{name!r} cannot be the name of weights", hint="use another name, without dots")


def raise_unsupported(where: str, problem: str, *, hint: str) -> NoReturn:
    """Raise UnsupportedConfig: the config asks at `where` for something that Slipway does not build."""
    raise UnsupportedConfig(f"{where}: {problem}", hint=hint, where=where)
