"""The operators that a module calls, as a graph: what is left to make small where no program was traced.

Recorded twice, on inputs of different sizes. Where the calls are the same, an axis that differs is dynamic,
and a number that differs is written as what it equals both times: a size, a little more or less, a multiple,
or the sum or product of two.
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

DYNAMIC_AXES = "dynamic_axes"  # in a node's meta: the axes of its value that vary
_NO_VALUE = torch.empty(0)
_LARGEST_STEP = 2  # what a number may be above or below a size


@dataclass(kw_only=True)
class _RecordedCall:
    """One call of an operator; its result stays None if it raised."""

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
    """Keeps every call, and with it every tensor, so that no two have one address."""

    calls: list[_RecordedCall] = field(default_factory=list)
    before: dict[int, Tensor] = field(default_factory=dict)  # copies of what a call was about to overwrite
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
        self.calls.append(call)  # before it is run: it may be the one that raises
        self._budget.exclude(call.arguments)
        self._copy_what_is_written(call)
        call.result = func(*args, **call.kwargs)
        self._budget.charge(call.results)
        return call.result

    def _copy_what_is_written(self, call: _RecordedCall) -> None:
        """Nothing else is copied: tables are larger than the memory that is left."""
        schema = call.operator._schema.arguments  # noqa: SLF001  torch offers it no other way
        values = {**dict(zip([each.name for each in schema], call.args, strict=False)), **call.kwargs}
        writes = [each.name for each in schema if each.alias_info is not None and each.alias_info.is_write]
        written = {storage_address(each) for each in tree_leaves([values.get(name) for name in writes])} - {
            None
        }
        for value in (each for known in self.calls if written for each in known.arguments):
            if (
                isinstance(value, Tensor)
                and storage_address(value) in written
                and id(value) not in self.before
            ):
                self.before[id(value)] = value.clone()


def record_operators(
    module: nn.Module, inputs: Mapping[str, Tensor], others: Mapping[str, Tensor]
) -> tuple[GraphModule, list[Tensor]]:
    """The operators that `module` calls on `inputs`, and the tensors that the graph takes.

    `others` are inputs of other sizes. Should the module raise, its graph ends with the call that did.

    Raises:
        TooLarge: what the calls make does not fit in memory all at once.
    """
    first, second = _record_calls(module, inputs), _record_calls(module, others)
    calls, again = first.calls, second.calls
    if [call.operator for call in calls] != [call.operator for call in again]:
        again = calls  # another way through the code: nothing can be said of sizes
    return _GraphBuilder(calls, again, first.before).drawn()


def _record_calls(module: nn.Module, inputs: Mapping[str, Tensor]) -> _OperatorRecorder:
    recorder = _OperatorRecorder()
    try:
        with torch.no_grad(), recorder:
            module(dict(inputs))
    except MemoryBudgetExceeded:
        raise
    except Exception:  # noqa: BLE001, S110  the call that raised is the recording's last
        pass
    return recorder


class _GraphBuilder:
    """Draws the calls of one recording, held against those of another."""

    def __init__(
        self, calls: Sequence[_RecordedCall], again: Sequence[_RecordedCall], before: Mapping[int, Tensor]
    ) -> None:
        self._calls, self._again, self._before = calls, again, before
        self._graph = Graph()
        self._nodes: dict[int, Node] = {}  # by the tensor's address
        self._known: list[tuple[Node, Tensor, Tensor]] = []  # and what it was both times
        self._numbers: list[tuple[Node, object, object]] = []
        self._taken: list[Tensor] = []

    def drawn(self) -> tuple[GraphModule, list[Tensor]]:
        self._draw_inputs()
        for call, other in zip(self._calls, self._again, strict=True):
            self._draw(call, other)
        made = [node for node in self._graph.nodes if node.op == "call_function"]
        self._graph.output(tuple(node for node in made if not node.users))
        return GraphModule(nn.Module(), self._graph), self._taken

    def _draw_inputs(self) -> None:
        made: set[int] = set()
        for call, other in zip(self._calls, self._again, strict=True):
            for value, twin in zip(call.arguments, other.arguments, strict=False):
                if isinstance(value, Tensor) and isinstance(twin, Tensor) and id(value) not in made:
                    made.add(id(value))
                    node = self._graph.placeholder(f"taken_{len(self._taken)}")
                    self._taken.append(self._before.get(id(value), value).detach())
                    self._keep(node, value, twin)
            made.update(id(each) for each in call.results)

    def _draw(self, call: _RecordedCall, other: _RecordedCall) -> None:
        twins = iter(other.arguments)
        near = [each for each in call.arguments if isinstance(each, Tensor)]

        def argument(value: object) -> object:
            twin = next(twins, value)
            if isinstance(value, Tensor):
                return self._nodes[id(value)]
            if type(value) is int and type(twin) is int and value != twin:
                return self._size(value, twin, near)
            return value

        args, kwargs = tree_map(argument, (call.args, dict(call.kwargs)))
        node = self._graph.call_function(call.operator, args, kwargs)
        if isinstance(call.result, tuple | list):
            for place, (value, twin) in enumerate(zip(call.results, other.results, strict=False)):
                if isinstance(value, Tensor) and isinstance(twin, Tensor):
                    self._keep(self._graph.call_function(operator.getitem, (node, place)), value, twin)
        elif isinstance(call.result, Tensor) and isinstance(other.result, Tensor):
            self._keep(node, call.result, other.result)
        elif isinstance(call.result, bool):  # the module's code branches on it, which no operator shows
            branch = self._graph.call_function(operator.truth, (node,))
            branch.meta["val"] = _NO_VALUE
        elif call.result is not None:
            self._numbers.append((node, call.result, other.result))
        else:
            node.meta["val"] = _NO_VALUE  # it raised: what it would have given, nobody knows

    def _keep(self, node: Node, value: Tensor, twin: Tensor) -> None:
        node.meta["val"] = value
        same_rank = value.dim() == twin.dim()
        sizes = zip(value.shape, twin.shape, strict=True) if same_rank else ()
        node.meta[DYNAMIC_AXES] = [axis for axis, (size, other) in enumerate(sizes) if size != other]
        self._nodes[id(value)] = node
        self._known.append((node, value, twin))

    def _size(self, value: int, twin: int, near: Sequence[Tensor]) -> object:
        """What equals `value` in the first recording and `twin` in the second; the number if nothing does."""
        for node, number, other in self._numbers:
            if (number, other) == (value, twin):
                return node
        sizes = self._sizes(near)
        if (value, twin) in sizes:
            return self._sized(*sizes[value, twin])
        for (size, other), place in sizes.items():
            if value - size == twin - other and abs(value - size) <= _LARGEST_STEP:
                return self._graph.call_function(operator.add, (self._sized(*place), value - size))
            if size and value % size == 0 and twin == other * (value // size):
                return self._graph.call_function(operator.mul, (self._sized(*place), value // size))
        for one, two in combinations_with_replacement(sizes, 2):
            for combined in (operator.mul, operator.add):
                if (combined(one[0], two[0]), combined(one[1], two[1])) == (value, twin):
                    both = (self._sized(*sizes[one]), self._sized(*sizes[two]))
                    return self._graph.call_function(combined, both)
        return value

    def _sizes(self, near: Sequence[Tensor]) -> dict[tuple[int, int], tuple[Node, int]]:
        """Sizes that vary, and where each is had: from a call's own tensors, if they have it."""
        own = {id(each) for each in near}
        sizes: dict[tuple[int, int], tuple[Node, int]] = {}
        for node, value, twin in [*(each for each in self._known if id(each[1]) in own), *self._known]:
            if value.dim() == twin.dim():
                for axis, (size, other) in enumerate(zip(value.shape, twin.shape, strict=True)):
                    if size != other:
                        sizes.setdefault((size, other), (node, axis))
        return sizes

    def _sized(self, node: Node, axis: int) -> Node:
        return self._graph.call_function(torch.ops.aten.sym_size.int, (node, axis))
