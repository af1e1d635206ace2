"""Search for the smallest graph that still fails the same way, within a time limit, over a program's nodes.

Where numbers are wrong, the first operator with a wrong result is tried by itself. Otherwise the program is
cut after the earliest node with which it still fails, then before the latest; then each remaining node is
left out in turn. Values that come from before a cut become inputs with the values they had.
"""

import logging
import re
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

from exporter.minify.memory_budget import MemoryBudget, MemoryBudgetExceeded
from exporter.minify.repro_script import ALLOWED, COMPARED, TIGHT, Step, is_randomised, render_script
from exporter.minify.script_runner import Ending, ExpectedEnding, ScriptRunner

log = logging.getLogger(__name__)

SCRIPT_NAME = "smallest.py"
_ANY_ENDING = ExpectedEnding()


@dataclass(frozen=True, kw_only=True)
class SmallestCase:
    """The smallest failing case that a search found."""

    ending: Ending
    nodes: tuple[str, ...]  # the remaining operators
    of_nodes: int  # the number of operators before the search
    scripts_run: int
    random_inputs: tuple[str, ...]  # inputs too large for the script, which fills them with random numbers
    script: str
    log: str  # output of the last script that failed


OnFound = Callable[[SmallestCase], object]


def _ignore(found: SmallestCase) -> None:
    pass


def find_smallest_failing(  # noqa: PLR0913  all but two are keyword arguments
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
    """Search for the smallest part of `program` that fails as `expected`.

    The search takes at most `budget_s` seconds, each script at most `limit_s`. Each smaller case is passed to
    `on_found`. Return None if the program by itself does not fail, or fails in another way.
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
    """Search for the fewest operators that cannot be traced, among those `record_operators` has recorded.

    Limits, `on_found` and the result are those of `find_smallest_failing`.
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
    """Run one node by itself; return the case if its result differs from what tracing promised, else None."""
    module = program.module(check_guards=False)
    assert isinstance(module, GraphModule)
    with ScriptRunner(libraries, folder, limit_s=limit_s) as runner:
        search = _Search(module, tree_leaves(dict(inputs)), runner, libraries, until=time.monotonic())
        return search.run_node(node)


class _Search:
    """A search over the calls of one module's graph."""

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
        self._allowed = ALLOWED

    def run(self, last_step: Step, expected: ExpectedEnding, on_found: OnFound) -> SmallestCase | None:
        self._record_values_before(0)
        ending = self._run_cut(self._nodes, self._outputs(), last_step)
        if ending is None and last_step is Step.COMPARE and not self._is_of_low_precision():
            self._allowed = TIGHT
            ending = self._run_cut(self._nodes, self._outputs(), last_step)
        if ending is None or not expected.matches(ending):
            return None

        on_found(self._case(ending, self._nodes))

        def fails(kept: Sequence[Node], outputs: Sequence[Node]) -> bool:
            same = self._run_cut(kept, outputs, ending.step) == ending
            if same:
                on_found(self._case(ending, kept, outputs))
            return same

        if operator := self._find_wrong_operator(fails, ending):
            return self._case(ending, operator)
        last = self._find_earliest_end(fails)
        if last is None:
            return self._case(ending, self._nodes)
        self._record_values_before(last)
        kept = self._find_latest_start(fails, last)
        return self._case(ending, self._leave_out_each(fails, kept))

    def run_node(self, name: str) -> SmallestCase | None:
        """Run a node and nothing else, up to the step that compares its result with what tracing promised."""
        place = next((place for place, node in enumerate(self._nodes) if node.name == name), None)
        if place is None:
            return None
        self._record_values_before(place)
        kept = [self._nodes[place]]
        ending = self._run_cut(kept, kept, Step.PROMISE)
        return self._case(ending, kept) if ending else None

    def _find_wrong_operator(
        self, fails: Callable[[Sequence[Node], Sequence[Node]], bool], ending: Ending
    ) -> Sequence[Node]:
        """Return the first operator whose result is wrong, if it fails by itself; empty if none is found.

        All results are outputs of one program for it, which may not fail like that: code of its own is made
        where operators are fused.
        """
        tensors = [node for node in self._nodes if _is_tensor(node)]
        if ending.step is not Step.COMPARE or len(tensors) < 2:
            return ()
        try:
            self._record_values_before(len(self._nodes) - 1)
        except MemoryBudgetExceeded:  # the results would not fit into the script's process either
            return ()
        if self._run_cut(self._nodes, tensors, ending.step) != ending:
            return ()
        [*_, compared] = re.findall(rf"^{COMPARED}(\d+)$", self._last_log, re.M)
        operator = [tensors[int(compared)]]
        return operator if fails(operator, operator) else ()

    def _find_earliest_end(self, fails: Callable[[Sequence[Node], Sequence[Node]], bool]) -> int | None:
        """Return the place of the first node such that the nodes up to it still fail; None if not found."""

        def fails_up_to(place: int) -> bool:
            kept = self._nodes[: place + 1]
            return fails(
                kept, _unread_tensors(kept)
            )  # every tensor is an output, else the fault may be dead code

        places = [place for place, node in enumerate(self._nodes) if _is_tensor(node)]
        low, high, found = 0, len(places) - 1, None
        while low <= high and time.monotonic() < self._until:
            middle = (low + high) // 2
            if fails_up_to(places[middle]):
                found, high = places[middle], middle - 1
            else:
                low = middle + 1
        return found

    def _find_latest_start(
        self, fails: Callable[[Sequence[Node], Sequence[Node]], bool], last: int
    ) -> Sequence[Node]:
        """Return the fewest ancestors of the node at `last`, and itself, that still fail."""
        ancestors = _ancestors(self._nodes[last], self._nodes)
        if len(ancestors) > 1 and time.monotonic() < self._until and fails(ancestors[-1:], ancestors[-1:]):
            return ancestors[-1:]  # the fault is most often in one operator
        low, high, kept = 0, len(ancestors) - 1, ancestors
        while low < high and time.monotonic() < self._until:
            middle = (low + high + 1) // 2
            if fails(ancestors[middle:], ancestors[-1:]):
                low, kept = middle, ancestors[middle:]
            else:
                high = middle - 1
        return kept

    def _leave_out_each(
        self, fails: Callable[[Sequence[Node], Sequence[Node]], bool], kept: Sequence[Node]
    ) -> Sequence[Node]:
        for node in kept[:-1]:
            rest = [each for each in kept if each is not node]
            if time.monotonic() < self._until and fails(rest, rest[-1:]):
                kept = rest
        return kept

    def _run_cut(self, kept: Sequence[Node], outputs: Sequence[Node], last_step: Step) -> Ending | None:
        script = self._render(kept, outputs, "A graph cut from a program.", last_step)
        ending = self._runner.run_script(script, last_step=last_step)
        if ending is not None:
            self._last_log = self._runner.log
        return ending

    def _render(self, kept: Sequence[Node], outputs: Sequence[Node], title: str, last_step: Step) -> str:
        graph, inputs = self._cut(kept, outputs)
        promises = last_step is Step.PROMISE
        return render_script(
            graph,
            inputs,
            libraries=self._libraries,
            title=title,
            promises=promises,
            allowed=self._allowed,
        )

    def _is_of_low_precision(self) -> bool:
        """Return whether numbers have so few bits that two ways of computing them differ by more."""
        values = [value for node in self._nodes for value in tree_leaves(node.meta.get("val"))]
        tensors = [value for value in values if isinstance(value, Tensor)]
        low = any(value.dtype in {torch.float16, torch.bfloat16} for value in tensors)
        return low or any(node.target is torch.ops.higher_order.wrap_with_autocast for node in self._nodes)

    def _cut(self, kept: Sequence[Node], outputs: Sequence[Node]) -> tuple[Graph, dict[str, object]]:
        """Build a graph of the kept nodes; other values that they read become inputs, as recorded."""
        graph, moved, inputs = Graph(), dict[Node, Node](), dict[str, object]()
        members = set(kept)
        outside = dict.fromkeys(each for node in kept for each in node.all_input_nodes if each not in members)
        for node in outside:
            placeholder = graph.placeholder(node.name)
            placeholder.meta = {"val": self._values.get(node), **node.meta}
            moved[node], inputs[placeholder.name] = placeholder, self._values[node]
        for node in kept:
            moved[node] = graph.node_copy(node, moved.__getitem__)
        graph.output(tuple(moved[node] for node in outputs))
        graph.eliminate_dead_code()
        return graph, inputs

    def _record_values_before(self, place: int) -> None:
        """Record the values of inputs, weights and the nodes before a place, which are known not to fail."""
        stop = self._nodes[place]
        recorder = _ValueRecorder(self._module, stop)
        with torch.no_grad(), suppress(_StopReached):
            recorder.run(*self._inputs, enable_io_processing=False)
        self._values = recorder.values

    def _case(
        self, ending: Ending, kept: Sequence[Node], outputs: Sequence[Node] | None = None
    ) -> SmallestCase:
        if outputs is None:
            outputs = kept[-1:] if len(kept) < len(self._nodes) else self._outputs()
        count = f"{len(kept)} of {len(self._nodes)} nodes"
        title = f"{ending}: the smallest graph found that fails this way, {count}."
        return SmallestCase(
            ending=ending,
            nodes=tuple(str(node.target) for node in kept),
            of_nodes=len(self._nodes),
            scripts_run=self._runner.scripts_run,
            random_inputs=tuple(
                name for name, value in self._cut(kept, outputs)[1].items() if is_randomised(value)
            ),
            script=self._render(kept, outputs, title, ending.step),
            log=self._last_log,
        )

    def _outputs(self) -> Sequence[Node]:
        [output] = [node for node in self._module.graph.nodes if node.op == "output"]
        nodes: list[Node] = output.all_input_nodes
        return nodes


class _StopReached(Exception):
    pass


class _ValueRecorder(Interpreter):
    """Runs a graph up to a node, and records the value of every node before it."""

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
    """Return the tensors among these nodes that no other of them reads."""
    members = set(kept)
    return [node for node in kept if _is_tensor(node) and not members & node.users.keys()]


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), Tensor)


def _ancestors(node: Node, nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes that `node` is computed from, and itself, in calling order."""
    needed = {node}
    for each in reversed(nodes):
        if each in needed:
            needed.update(each.all_input_nodes)
    return [each for each in nodes if each in needed]
