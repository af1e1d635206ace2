"""Copy a tower with our kernels for its HSTU layers, leaving the original as torch computes it."""

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import torch
from torch import nn

from exporter.dtypes import Kernel
from exporter.models.hstu.attention import AllHeads, Attention, HeadByHead, JaggedAttention, TritonAttention
from exporter.models.hstu.gated_output import GatedOutput, TritonGatedOutput
from exporter.models.hstu.positional_encoder import PositionEncoding, TritonPositionEncoding
from exporter.towers.tower import Tower


def _triton_attention(old: nn.Module) -> nn.Module:
    assert isinstance(old, Attention)
    return TritonAttention(old.heads, old.visibility)


def _jagged_attention(old: nn.Module) -> nn.Module:
    assert isinstance(old, Attention)
    return JaggedAttention(old.heads, old.visibility)


def _triton_output(old: nn.Module) -> nn.Module:
    assert isinstance(old, GatedOutput)
    return TritonGatedOutput(norm_heads=old.norm_heads, dropout=old.dropout)


def _triton_positions(old: nn.Module) -> nn.Module:
    assert isinstance(old, PositionEncoding)
    return TritonPositionEncoding(old.config, scale=old.scale, prefix=old.prefix)


_Twins = Mapping[type[nn.Module], Callable[[nn.Module], nn.Module]]

# Functions that make the twin of a module, by its type. A twin takes the same arguments. These modules have
# no weights: those belong to their callers, which are not replaced.
_ON_CPU: _Twins = {AllHeads: _jagged_attention, HeadByHead: _jagged_attention}
_BY_TRITON: _Twins = {
    AllHeads: _triton_attention,
    HeadByHead: _triton_attention,
    GatedOutput: _triton_output,
    PositionEncoding: _triton_positions,
}


def with_kernels(tower: Tower, device: torch.device, *, kept: Collection[str] = ()) -> Tower:
    """Return a copy with twins by our kernels: for a CPU, or by Triton for CUDA if the request asks for them.

    The tower itself does not change, because the gate compares with it; both share their weights. The copy
    also keeps the original submodules whose names are in `kept`, because a pass looks for them.
    """
    twins_by_type = _BY_TRITON if device.type == "cuda" else _ON_CPU
    if device.type == "cuda" and tower.config.options.kernel is not Kernel.TRITON:
        return tower
    root = tower.module
    old = {
        id(module): module
        for name, module in root.named_modules(remove_duplicate=False)
        if type(module) in twins_by_type and name not in kept
    }
    if not old:
        return tower
    # Objects that deepcopy shares or replaces: all but the modules around those replaced.
    shared: dict[int, object] = {id(tensor): tensor for tensor in (*root.parameters(), *root.buffers())}
    for module in root.modules():
        if old.keys().isdisjoint(id(inner) for inner in module.modules()):
            shared[id(module)] = module
    twins = {key: twins_by_type[type(module)](module).train(module.training) for key, module in old.items()}
    return replace(tower, module=copy.deepcopy(root, shared | twins))
