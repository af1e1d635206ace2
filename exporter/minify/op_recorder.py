"""Record the operators that a module calls as a graph, which is minified if the module cannot be traced.

The calls are recorded twice, on inputs of different sizes. If both recordings call the same operators, an
axis whose size differs is dynamic, and a number that differs is expressed by sizes that equal it both times:
one size, a size plus or minus a small number, a multiple of a size, or the sum or product of two sizes.
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement

import torch
from torch import Tensor, nn
from torch.fx import Graph, GraphModule, Node
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from exporter.minify.memory_budget import MemoryBudget, MemoryBudgetExceeded, storage_address

DYNAMIC_AXES = "dynamic_axes"  # key in the meta of a node: the axes of its value that vary
_NO_VALUE = torch.empty(0)
_LARGEST_STEP = 2  # largest difference between a number and the size it is expressed by


@dataclass(kw_only=True)
class _RecordedCall:
    """One call of an operator; the result of a call that raised stays None."""

    operator: torch._ops.OpOverload
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    result: object = None

    @property
    def arguments(self) -> list[object]:
        return tree_leaves((self.args, dict(self.kwargs)))

    @property
    def results(self) -> list[object]:
        return tree_leaves(self.result)


@dataclass
class _OperatorRecorder(TorchDispatchMode):
    """Records every call and keeps its tensors alive, so that no two of them share an id."""

    calls: list[_RecordedCall] = field(default_factory=list)
    before: dict[int, Tensor] = field(default_factory=dict)  # by id: copies made before a call overwrote them
    _budget: MemoryBudget = field(default_factory=MemoryBudget)

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch does not annotate it

    def __hash__(self) -> int:
        return id(self)

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        call = _RecordedCall(operator=func, args=args, kwargs=kwargs or {})
        self.calls.append(call)  # before it runs, as it may raise
        self._budget.exclude(call.arguments)
        self._copy_overwritten(call)
        call.result = func(*args, **call.kwargs)
        self._budget.charge(call.results)
        return call.result

    def _copy_overwritten(self, call: _RecordedCall) -> None:
        """Copy the recorded tensors that the call overwrites, and no others: tables may fill the memory."""
        schema = call.operator._schema.arguments  # noqa: SLF001  torch has no public accessor
        values = {**dict(zip([each.name for each in schema], call.args, strict=False)), **call.kwargs}
        overwritten = [
            each.name for each in schema if each.alias_info is not None and each.alias_info.is_write
        ]
        addresses = {
            storage_address(each) for each in tree_leaves([values.get(name) for name in overwritten])
        }
        addresses.discard(None)
        arguments = [each for recorded in self.calls if addresses for each in recorded.arguments]
        for value in arguments:
            is_new = id(value) not in self.before
            if is_new and isinstance(value, Tensor) and storage_address(value) in addresses:
                self.before[id(value)] = value.clone()


def record_operators(
    module: nn.Module, inputs: Mapping[str, Tensor], others: Mapping[str, Tensor]
) -> tuple[GraphModule, list[Tensor]]:
    """Return the graph of the operators that `module` calls on `inputs`, and the tensors the graph takes.

    `others` are inputs of other sizes. If the module raises, its graph ends with the call that raised.

    Raises:
        TooLarge: what the calls make does not fit in memory all at once.
    """
    first, second = _record_calls(module, inputs), _record_calls(module, others)
    calls, again = first.calls, second.calls
    if [call.operator for call in calls] != [call.operator for call in again]:
        again = calls  # the code took another branch: which sizes vary is unknown
    return _GraphBuilder(calls, again, first.before).build()


def _record_calls(module: nn.Module, inputs: Mapping[str, Tensor]) -> _OperatorRecorder:
    recorder = _OperatorRecorder()
    try:
        with torch.no_grad(), recorder:
            module(dict(inputs))
    except MemoryBudgetExceeded:
        raise
    except Exception:  # noqa: BLE001, S110  the recording ends with the call that raised
        pass
    return recorder


class _GraphBuilder:
    """Builds a graph of the calls of one recording; a second one, on other sizes, shows which sizes vary."""

    def __init__(
        self, calls: Sequence[_RecordedCall], again: Sequence[_RecordedCall], before: Mapping[int, Tensor]
    ) -> None:
        self._calls, self._again, self._before = calls, again, before
        self._graph = Graph()
        self._nodes: dict[int, Node] = {}  # by the id of the tensor
        self._tensors: list[tuple[Node, Tensor, Tensor]] = []  # with the values of both recordings
        self._numbers: list[tuple[Node, object, object]] = []  # likewise
        self._inputs: list[Tensor] = []

    def build(self) -> tuple[GraphModule, list[Tensor]]:
        self._add_inputs()
        for call, other in zip(self._calls, self._again, strict=True):
            self._add_call(call, other)
        called = [node for node in self._graph.nodes if node.op == "call_function"]
        self._graph.output(tuple(node for node in called if not node.users))
        return GraphModule(nn.Module(), self._graph), self._inputs

    def _add_inputs(self) -> None:
        known: set[int] = set()  # ids of tensors
        for call, other in zip(self._calls, self._again, strict=True):
            for value, twin in zip(call.arguments, other.arguments, strict=False):
                if isinstance(value, Tensor) and isinstance(twin, Tensor) and id(value) not in known:
                    known.add(id(value))
                    node = self._graph.placeholder(f"taken_{len(self._inputs)}")
                    self._inputs.append(self._before.get(id(value), value).detach())
                    self._register(node, value, twin)
            known.update(id(each) for each in call.results)

    def _add_call(self, call: _RecordedCall, other: _RecordedCall) -> None:
        twins = iter(other.arguments)
        own_tensors = [each for each in call.arguments if isinstance(each, Tensor)]

        def argument(value: object) -> object:
            twin = next(twins, value)
            if isinstance(value, Tensor):
                return self._nodes[id(value)]
            if type(value) is int and type(twin) is int and value != twin:
                return self._express(value, twin, own_tensors)
            return value

        args, kwargs = tree_map(argument, (call.args, dict(call.kwargs)))
        node = self._graph.call_function(call.operator, args, kwargs)
        if isinstance(call.result, tuple | list):
            for place, (value, twin) in enumerate(zip(call.results, other.results, strict=False)):
                if isinstance(value, Tensor) and isinstance(twin, Tensor):
                    self._register(self._graph.call_function(operator.getitem, (node, place)), value, twin)
        elif isinstance(call.result, Tensor) and isinstance(other.result, Tensor):
            self._register(node, call.result, other.result)
        elif isinstance(call.result, bool):  # Python code branches on it, which no operator shows
            branch = self._graph.call_function(operator.truth, (node,))
            branch.meta["val"] = _NO_VALUE
        elif call.result is not None:
            self._numbers.append((node, call.result, other.result))
        else:
            node.meta["val"] = _NO_VALUE  # the call raised: its result is unknown

    def _register(self, node: Node, value: Tensor, twin: Tensor) -> None:
        node.meta["val"] = value
        same_rank = value.dim() == twin.dim()
        sizes = zip(value.shape, twin.shape, strict=True) if same_rank else ()
        node.meta[DYNAMIC_AXES] = [axis for axis, (size, other) in enumerate(sizes) if size != other]
        self._nodes[id(value)] = node
        self._tensors.append((node, value, twin))

    def _express(self, value: int, twin: int, own_tensors: Sequence[Tensor]) -> object:
        """Return a node that equals `value` in the first recording and `twin` in the second, else `value`."""
        for node, number, other in self._numbers:
            if (number, other) == (value, twin):
                return node
        sizes = self._varying_sizes(own_tensors)
        if (value, twin) in sizes:
            return self._size_node(*sizes[value, twin])
        for (size, other), place in sizes.items():
            if value - size == twin - other and abs(value - size) <= _LARGEST_STEP:
                return self._graph.call_function(operator.add, (self._size_node(*place), value - size))
            if size and value % size == 0 and twin == other * (value // size):
                return self._graph.call_function(operator.mul, (self._size_node(*place), value // size))
        for one, two in combinations_with_replacement(sizes, 2):
            for combined in (operator.mul, operator.add):
                if (combined(one[0], two[0]), combined(one[1], two[1])) == (value, twin):
                    both = (self._size_node(*sizes[one]), self._size_node(*sizes[two]))
                    return self._graph.call_function(combined, both)
        return value

    def _varying_sizes(self, own_tensors: Sequence[Tensor]) -> dict[tuple[int, int], tuple[Node, int]]:
        """Return each size that varies, with a node and axis that has it: of the call's own tensors first."""
        own = {id(each) for each in own_tensors}
        sizes: dict[tuple[int, int], tuple[Node, int]] = {}
        for node, value, twin in [*(each for each in self._tensors if id(each[1]) in own), *self._tensors]:
            if value.dim() == twin.dim():
                for axis, (size, other) in enumerate(zip(value.shape, twin.shape, strict=True)):
                    if size != other:
                        sizes.setdefault((size, other), (node, axis))
        return sizes

    def _size_node(self, node: Node, axis: int) -> Node:
        return self._graph.call_function(torch.ops.aten.sym_size.int, (node, axis))
