"""A traced program as a module that runs, can be traced again, and lets submodules and weights be replaced.

It is not torch's UnflattenedModule, which merges calls that differ (see `aoti.workarounds`): the graph stays
flat, and the metadata that tracing left at each node says which call of which submodule it belongs to.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.fx import Graph, Interpreter, Node
from torch.fx.traceback import preserve_node_meta
from torch.utils._pytree import tree_flatten, tree_unflatten

from exporter.aoti.workarounds import named_arguments
from exporter.errors import PassRefused


class EditableProgram(nn.Module):
    """A traced program that `variants`, `swap_module` and `swap_attribute` work on.

    It is called like the module that was traced. Its weights are those of the program until they are swapped,
    and keep their names. The original program is not changed.
    """

    def __init__(self, program: ExportedProgram) -> None:
        super().__init__()
        unlifted = program.module(check_guards=False)
        for name, child in unlifted.named_children():
            self.add_module(name, child)
        for name, parameter in unlifted._parameters.items():  # noqa: SLF001  without those of children, None included
            self.register_parameter(name, parameter)
        for name, buffer in unlifted._buffers.items():  # noqa: SLF001  as above
            self.register_buffer(name, buffer)
        graph = unlifted.graph
        graph.owning_module = None  # otherwise it looks for submodules in the module it came from
        self._graph = graph
        self._successors: dict[str, Node] = {}
        self._spec = program.call_spec
        self.signatures = {
            entry.fqn: entry.signature for entry in program.module_call_graph if entry.signature is not None
        }
        names = self.signatures[""].forward_arg_names
        if names is None:
            raise PassRefused("the program was traced from a call whose arguments have no names")
        # Each instance has its own `forward`, because argument names differ between programs.
        self.forward = named_arguments(self._run, names)

    @property
    def graph(self) -> Graph:
        """The flat graph; a node's `nn_module_stack` names the calls of modules that it belongs to."""
        return self._graph

    def nodes_named(self) -> Mapping[str, Node]:
        """Return the nodes by name; the name of a node that a swap removed leads to its successor."""
        return {**self._successors, **{node.name: node for node in self._graph.nodes}}

    def replace(self, old: Node, new: Node, *, readers_in: frozenset[Node]) -> None:
        """Make all users of `old`, except the nodes in `readers_in`, read `new` instead."""
        new.meta["val"] = old.meta["val"]
        old.replace_all_uses_with(new, delete_user_cb=lambda user: user not in readers_in)
        self._successors[old.name] = new

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return every parameter and buffer, under each of its names."""
        return {
            **dict(self.named_parameters(remove_duplicate=False)),
            **dict(self.named_buffers(remove_duplicate=False)),
        }

    def _run(self, *args: object) -> object:
        flat, spec = tree_flatten((args, {}))
        if spec != self._spec.in_spec:
            raise PassRefused(
                "the program was traced with inputs of another structure", where=str(spec)[:200]
            )
        with preserve_node_meta():  # so that a second trace knows the submodules, too
            out = Interpreter(self, graph=self._graph).run(*flat, enable_io_processing=False)
        return tree_unflatten(out, self._spec.out_spec)


def similar_names(name: str, known: Sequence[str]) -> str:
    """List known names for a hint on an unknown one: those with the same first part, else some of them."""
    beginning = name.split(".")[0]
    alike = [each for each in known if each.startswith(beginning)] or list(known)
    return ", ".join(alike[:8]) + (", …" if len(alike) > 8 else "")
