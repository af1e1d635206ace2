"""A tower with Triton kernels in it computes the same, beside itself, from the same weights."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.export import ExportedProgram

from exporter.dtypes import Kernel, Precision
from exporter.lowering.kernels import with_kernels
from exporter.lowering.precision import InPrecision
from exporter.models.hstu.attention import AllHeads, JaggedAttention, TritonAttention
from exporter.packages.parts import plan_parts, trace_parts
from exporter.spec import AttentionKind, Mode, SwapAttention, TowerName
from exporter.towers.tower import Tower
from exporter.trace.op_libraries import all_graphs
from tests.exporter.models.recorded import Batch, random_inputs, recorded_tower

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
KERNEL = "slipway.hstu_attention.default"
KERNEL_ON_CPU = "slipway.jagged_attention.default"
KERNELS = (KERNEL, "slipway.gated_output.default", "slipway.encode_positions.default")
STACK = "user_tower._hstu_encoder._stu_module"

pytestmark = pytest.mark.filterwarnings("ignore:_check_is_size will be removed:FutureWarning")


def by_triton(model: str, name: str) -> Tower:
    tower = recorded_tower(model, name)
    options = replace(tower.config.options, kernel=Kernel.TRITON)
    return replace(tower, config=replace(tower.config, options=options))


def drawn(tower: Tower) -> Batch:
    torch.manual_seed(3)
    return random_inputs(tower, [3, 9, 5, 0, 4, 2, 6], [2, 1, 3, 1, 2, 4, 5])


def operators(program: ExportedProgram) -> list[str]:
    return [str(node.target) for graph in all_graphs([program]) for node in graph.nodes]


@pytest.mark.parametrize(
    ("model", "name"), [("hstu_match", "user"), ("dlrm_hstu", "model"), ("dlrm_hstu_trunc", "model")]
)
def test_a_tower_computes_the_same_with_kernels(model: str, name: str) -> None:
    tower = by_triton(model, name)
    inputs = drawn(tower)
    with torch.no_grad():
        expected, outputs = tower.module(inputs), with_kernels(tower, CUDA).module(inputs)
    torch.testing.assert_close(outputs, expected)


def test_the_tower_itself_stays_as_it_is_and_shares_its_weights() -> None:
    tower = by_triton("hstu_match", "user")
    copied = with_kernels(tower, CUDA).module
    assert {type(each) for each in tower.module.modules()} & {AllHeads, TritonAttention} == {AllHeads}
    assert {type(each) for each in copied.modules()} & {AllHeads, TritonAttention} == {TritonAttention}
    assert copied.get_submodule("embedding_group") is tower.module.get_submodule("embedding_group")
    own = tower.module.state_dict(keep_vars=True)
    assert all(tensor is own[name] for name, tensor in copied.state_dict(keep_vars=True).items())
    assert copied.state_dict().keys() == own.keys()


def test_for_a_cpu_attention_alone_is_replaced_by_a_kernel_without_a_mask() -> None:
    tower = by_triton("hstu_match", "user")
    layers = sum(isinstance(each, AllHeads) for each in tower.module.modules())
    [traced] = trace_parts(plan_parts(tower, Mode.UNIFIED, max_batch_size=64), drawn(tower), CPU)
    called = operators(traced.program)
    assert [each for each in called if each.startswith("slipway.")] == [KERNEL_ON_CPU] * layers
    assert "aten.eye.default" not in called


@pytest.mark.parametrize(
    ("model", "name"), [("hstu_match", "user"), ("dlrm_hstu", "model"), ("dlrm_hstu_trunc", "model")]
)
def test_a_tower_computes_the_same_by_the_kernel_for_cpus(model: str, name: str) -> None:
    tower = recorded_tower(model, name)
    served, inputs = with_kernels(tower, CPU), drawn(tower)
    assert served is not tower
    with torch.no_grad():
        torch.testing.assert_close(served.module(inputs), tower.module(inputs))


def test_the_last_layer_attends_for_what_is_asked_for_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    tower = recorded_tower("dlrm_hstu", "model")
    asking: list[int] = []
    attend = JaggedAttention.attend_tails

    def observed(self: JaggedAttention, q: Tensor, *others: Tensor) -> Tensor:
        asking.append(q.shape[0])
        return attend(self, q, *others)

    monkeypatch.setattr(JaggedAttention, "attend_tails", observed)
    with torch.no_grad():
        outputs = with_kernels(tower, CPU).module(drawn(tower))
    first, last = asking
    assert first > last == len(outputs["probs_is_click"]) > 0


def test_a_tower_without_hstu_layers_stays_itself() -> None:
    tower = recorded_tower("hstu_match", "item")
    assert with_kernels(tower, CPU) is tower


def test_a_model_that_does_not_ask_for_kernels_gets_none() -> None:
    tower = recorded_tower("hstu_match", "user")
    assert with_kernels(tower, CUDA) is tower


def test_a_program_calls_the_kernels_of_each_layer_and_makes_no_mask() -> None:
    tower = by_triton("dlrm_hstu", "model")
    [part] = plan_parts(with_kernels(tower, CUDA), Mode.UNIFIED, max_batch_size=64)
    [traced] = trace_parts([part], drawn(tower), CPU)
    called = operators(traced.program)
    layers = sum(isinstance(each, AllHeads) for each in tower.module.modules())
    assert [called.count(each) for each in KERNELS] == [layers, layers, 1]
    assert "aten.eye.default" not in called


def test_the_dense_part_of_two_has_the_kernels_under_autocast() -> None:
    tower = by_triton("hstu_match", "user")
    served = InPrecision(tower.served, Precision.BF16).eval()
    _, dense = plan_parts(replace(tower, module=served), Mode.TWO_STAGE, max_batch_size=64)
    found = [
        each for each in with_kernels(dense.tower, CUDA).module.modules() if type(each) is TritonAttention
    ]
    assert len(found) == 2


def test_what_a_pass_names_is_left_to_the_pass() -> None:
    tower = by_triton("hstu_match", "user")
    kept = f"{STACK}._stu_layers.1._attention"
    copied = with_kernels(tower, CUDA, kept=[kept]).module
    assert type(copied.get_submodule(kept)) is AllHeads
    assert type(copied.get_submodule(kept.replace("1", "0"))) is TritonAttention


def test_a_pass_swaps_attention_for_the_kernel() -> None:
    tower = recorded_tower("hstu_match", "user")
    asked = SwapAttention(tower=TowerName.USER, submodule=STACK, attention=AttentionKind.TRITON)
    inputs = drawn(tower)
    [traced] = trace_parts(plan_parts(tower, Mode.UNIFIED, max_batch_size=64), inputs, CPU, passes=[asked])
    called = operators(traced.program)
    assert called.count(KERNEL) == 2
    with torch.no_grad():
        torch.testing.assert_close(traced.program.module()(inputs), tower.module(inputs))


@pytest.mark.parametrize(
    ("model", "kernel", "waits"),
    [
        ("dlrm_hstu", Kernel.PYTORCH, [1, 1]),
        ("dlrm_hstu", Kernel.TRITON, [1, 0]),
        ("dlrm_hstu_trunc", Kernel.PYTORCH, [1, 3]),
        ("dlrm_hstu_trunc", Kernel.TRITON, [1, 1]),
    ],
)
def test_the_host_reads_numbers_of_the_device_for_checks_masks_and_truncation_alone(
    model: str, kernel: Kernel, waits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    tower = by_triton(model, "model")
    options = replace(tower.config.options, kernel=kernel)
    tower = replace(tower, config=replace(tower.config, options=options))
    parts = plan_parts(with_kernels(tower, CUDA), Mode.TWO_STAGE, max_batch_size=64)
    # Traced on the CPU that is here, where attention would become the kernel for CPUs.
    monkeypatch.setattr("exporter.packages.parts.with_kernels", lambda tower, device, kept: tower)
    traced = trace_parts(parts, drawn(tower), CPU)
    assert [operators(each.program).count("aten.item.default") for each in traced] == waits
