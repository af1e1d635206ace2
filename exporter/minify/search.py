"""The smallest graph that still fails the same way: a bounded search over a program's nodes.

First the program is cut behind the earliest node that suffices, then before the latest; what is left is tried
without one node after the other. What stands before a cut is replaced by the values it really had.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.utils._pytree import tree_leaves

from exporter.minify.memory_budget import MemoryBudget
from exporter.minify.repro_script import Step, is_randomised, render_script
from exporter.minify.script_runner import Ending, ExpectedEnding, ScriptRunner

log = logging.getLogger(__name__)

SCRIPT_NAME = "smallest.py"
_ANY_ENDING = ExpectedEnding()


@dataclass(frozen=True, kw_only=True)
class SmallestCase:
    """What the search came to."""

    ending: Ending
    nodes: tuple[str, ...]  # the operators that are left
    of: int  # how many there were
    tried: int
    drawn: tuple[str, ...]  # the inputs that the script draws, being too large to carry
    script: str
    log: str  # of the last script that failed


OnFound = Callable[[SmallestCase], object]


def _ignore(found: SmallestCase) -> None:
    pass


def find_smallest_failing(  # noqa: PLR0913  what to search, where, how long and for what: all by name
    program: ExportedProgram,
    inputs: Mapping[str, Tensor],
    *,
    libraries: Sequence[str],
    folder: Path,
    budget_s: float,
    limit_s: float = 120.0,
    expected: ExpectedEnding = _ANY_ENDING,
    on_found: OnFound = _ignore,
) -> SmallestCase | None:
    """Search for `budget_s` at most, each script for `limit_s`; each smaller case goes to `on_found`.

    None if the program alone does not fail, or not as `expected`.
    """
    module = program.module(check_guards=False)
    assert isinstance(module, GraphModule)
    until = time.monotonic() + budget_s
    with ScriptRunner(libraries, folder, limit_s=limit_s, until=until) as runner:
        search = _Search(module, tree_leaves(dict(inputs)), runner, libraries, until=until)
        return search.run(Step.COMPARE, expected, on_found)


def find_smallest_untraceable(
    recorded: tuple[GraphModule, list[Tensor]],
    *,
    libraries: Sequence[str],
    folder: Path,
    budget_s: float,
    limit_s: float = 30.0,
    expected: ExpectedEnding = _ANY_ENDING,
    on_found: OnFound = _ignore,
) -> SmallestCase | None:
    """The same for the operators that were recorded of a module that could not be traced.

    None also if they fail otherwise than `expected`.
    """
    module, inputs = recorded
    until = time.monotonic() + budget_s
    with ScriptRunner(libraries, folder, limit_s=limit_s, until=until) as runner:
        search = _Search(module, inputs, runner, libraries, until=until)
        return search.run(Step.TRACE, expected, on_found)


def reproduce_node(
    program: ExportedProgram,
    inputs: Mapping[str, Tensor],
    node: str,
    *,
    libraries: Sequence[str],
    folder: Path,
    limit_s: float = 120.0,
) -> SmallestCase | None:
    """The node that breaks its promise, by itself; None if by itself it does not."""
    module = program.module(check_guards=False)
    assert isinstance(module, GraphModule)
    with ScriptRunner(libraries, folder, limit_s=limit_s) as runner:
        search = _Search(module, tree_leaves(dict(inputs)), runner, libraries, until=time.monotonic())
        return search.of_node(node)


class _Search:
    """Keeps the smallest cut that failed, as (first node kept, last node kept, nodes left out)."""

    def __init__(
        self,
        module: GraphModule,
        inputs: Sequence[Tensor],
        runner: ScriptRunner,
        libraries: Sequence[str],
        *,
        until: float,
    ) -> None:
        self._module = module
        self._inputs = inputs
        self._nodes = [node for node in module.graph.nodes if node.op == "call_function"]
        self._values: dict[Node, object] = {}
        self._runner = runner
        self._libraries = libraries
        self._until = until
        self._last_log = ""

    def run(self, last_step: Step, expected: ExpectedEnding, on_found: OnFound) -> SmallestCase | None:
        self._remember_before(0)
        ending = self._try(self._nodes, self._outputs(), last_step)
        if ending is None or not expected.matches(ending):
            return None

        on_found(self._told(ending, self._nodes))

        def fails(kept: Sequence[Node], outputs: Sequence[Node]) -> bool:
            same = self._try(kept, outputs, ending.step) == ending
            if same:
                on_found(self._told(ending, kept, outputs))
            return same

        last = self._first_that_suffices(fails)
        if last is None:
            return self._told(ending, self._nodes)
        self._remember_before(last)
        kept = self._latest_start(fails, last)
        return self._told(ending, self._without_each(fails, kept))

    def of_node(self, name: str) -> SmallestCase | None:
        """A node and nothing else, up to the step that holds it against what tracing promised."""
        place = next((place for place, node in enumerate(self._nodes) if node.name == name), None)
        if place is None:
            return None
        self._remember_before(place)
        kept = [self._nodes[place]]
        ending = self._try(kept, kept, Step.PROMISE)
        return self._told(ending, kept) if ending else None

    def _first_that_suffices(self, fails: Callable[[Sequence[Node], Sequence[Node]], bool]) -> int | None:
        """The first node that fails when all behind it is left out; None where that cannot be found."""

        def until(place: int) -> bool:
            kept = self._nodes[: place + 1]
            return fails(
                kept, _unread_tensors(kept)
            )  # all of it counts, else a longer cut may leave the fault out

        places = [place for place, node in enumerate(self._nodes) if _is_tensor(node)]
        low, high, found = 0, len(places) - 1, None
        while low <= high and time.monotonic() < self._until:
            middle = (low + high) // 2
            if until(places[middle]):
                found, high = places[middle], middle - 1
            else:
                low = middle + 1
        return found

    def _latest_start(
        self, fails: Callable[[Sequence[Node], Sequence[Node]], bool], last: int
    ) -> Sequence[Node]:
        """As few nodes before `last` as suffice."""
        ancestors = _ancestors(self._nodes[last], self._nodes)
        low, high, kept = 0, len(ancestors) - 1, ancestors
        while low < high and time.monotonic() < self._until:
            middle = (low + high + 1) // 2
            if fails(ancestors[middle:], ancestors[-1:]):
                low, kept = middle, ancestors[middle:]
            else:
                high = middle - 1
        return kept

    def _without_each(
        self, fails: Callable[[Sequence[Node], Sequence[Node]], bool], kept: Sequence[Node]
    ) -> Sequence[Node]:
        for node in kept[:-1]:
            rest = [each for each in kept if each is not node]
            if time.monotonic() < self._until and fails(rest, rest[-1:]):
                kept = rest
        return kept

    def _try(self, kept: Sequence[Node], outputs: Sequence[Node], last_step: Step) -> Ending | None:
        script = self._script(kept, outputs, "A graph cut from a program.", last_step)
        ending = self._runner.run_script(script, last_step=last_step)
        if ending is not None:
            self._last_log = self._runner.log
        return ending

    def _script(self, kept: Sequence[Node], outputs: Sequence[Node], title: str, last_step: Step) -> str:
        graph, inputs = self._cut(kept, outputs)
        promises = last_step is Step.PROMISE
        return render_script(graph, inputs, libraries=self._libraries, title=title, promises=promises)

    def _cut(self, kept: Sequence[Node], outputs: Sequence[Node]) -> tuple[Graph, dict[str, object]]:
        """A graph of the kept nodes; what they read besides is an input with the value it had."""
        graph, moved, inputs = Graph(), dict[Node, Node](), dict[str, object]()
        members = set(kept)
        taken = dict.fromkeys(each for node in kept for each in node.all_input_nodes if each not in members)
        for node in taken:
            placeholder = graph.placeholder(node.name)
            placeholder.meta = {"val": self._values.get(node), **node.meta}
            moved[node], inputs[placeholder.name] = placeholder, self._values[node]
        for node in kept:
            moved[node] = graph.node_copy(node, moved.__getitem__)
        graph.output(tuple(moved[node] for node in outputs))
        graph.eliminate_dead_code()
        return graph, inputs

    def _remember_before(self, place: int) -> None:
        """The values of inputs and weights, and of the nodes before a place: those are known not to fail."""
        stop = self._nodes[place]
        run = _ValueRecorder(self._module, stop)
        with torch.no_grad(), suppress(_StopReached):
            run.run(*self._inputs, enable_io_processing=False)
        self._values = run.values

    def _told(
        self, ending: Ending, kept: Sequence[Node], outputs: Sequence[Node] | None = None
    ) -> SmallestCase:
        if outputs is None:
            outputs = kept[-1:] if len(kept) < len(self._nodes) else self._outputs()
        title = f"{ending}: the smallest graph found that fails so, {len(kept)} of {len(self._nodes)} nodes."
        return SmallestCase(
            ending=ending,
            nodes=tuple(str(node.target) for node in kept),
            of=len(self._nodes),
            tried=self._runner.scripts_run,
            drawn=tuple(name for name, value in self._cut(kept, outputs)[1].items() if is_randomised(value)),
            script=self._script(kept, outputs, title, ending.step),
            log=self._last_log,
        )

    def _outputs(self) -> Sequence[Node]:
        [output] = [node for node in self._module.graph.nodes if node.op == "output"]
        nodes: list[Node] = output.all_input_nodes
        return nodes


class _StopReached(Exception):
    pass


class _ValueRecorder(Interpreter):
    """Runs up to a node, and keeps what every node before it gave."""

    def __init__(self, module: GraphModule, stop: Node) -> None:
        super().__init__(module, garbage_collect_values=False)
        self._stop = stop
        self._budget = MemoryBudget()
        self.values: dict[Node, object] = {}

    def run_node(self, n: Node) -> object:
        if n is self._stop:
            raise _StopReached
        self.values[n] = super().run_node(n)
        count = self._budget.charge if n.op == "call_function" else self._budget.exclude
        count(tree_leaves(self.values[n]))
        return self.values[n]


def _unread_tensors(kept: Sequence[Node]) -> list[Node]:
    """The tensors that no other of these nodes reads."""
    members = set(kept)
    return [node for node in kept if _is_tensor(node) and not members & node.users.keys()]


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), Tensor)


def _ancestors(node: Node, nodes: Sequence[Node]) -> list[Node]:
    """The nodes that `node` is computed from, and itself, in calling order."""
    needed = {node}
    for each in reversed(nodes):
        if each in needed:
            needed.update(each.all_input_nodes)
    return [each for each in nodes if each in needed]
