"""A package of lower precision against the model in fp32: how far each output is, over all cases."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from exporter.data.batch import NamedBatch
from exporter.lowering.errors import PrecisionLost
from exporter.lowering.lower_tower import Fp32Reference
from exporter.manifest import Fp32Report, OutputDifference
from exporter.verify.numerics import Difference, compare, scales_of


@dataclass(kw_only=True)
class AgainstFp32:
    """Gathers the worst difference of each output; a number that is not finite is worse than any."""

    reference: Fp32Reference
    usual: Mapping[str, float] = field(default_factory=dict)  # scales of the largest ordinary batch
    _worst: dict[str, tuple[Difference, str]] = field(default_factory=dict)

    def learn_scales(self, batch: NamedBatch) -> None:
        """What outputs of small batches are held against."""
        self.usual = scales_of(self.reference(batch.inputs))

    def add(self, batch: NamedBatch, outputs: Mapping[str, Tensor]) -> None:
        """Hold a case's outputs against those in fp32."""
        expected = self.reference(batch.inputs)
        for name, actual in outputs.items():
            found = compare({name: expected[name]}, {name: actual}, usual=self.usual)
            worst, _ = self._worst.get(name, (None, ""))
            if worst is None or found.relative > worst.relative:
                self._worst[name] = found, batch.name

    def report(self, *, title: str) -> Fp32Report:
        """What was found; `title` is the tower's.

        Raises:
            PrecisionLost: naming the output and the case, where it is more than is allowed.
        """
        allowed = self.reference.tolerance
        for name, (worst, case) in self._worst.items():
            if not worst.within(allowed):
                told = worst.problem or f"differs by {worst.largest:.3g} at scale {worst.scale:.3g}"
                raise PrecisionLost(
                    f"{title}: {case}: {name} {told} from the model in fp32, allowed {allowed:g} of it",
                    where=name,
                )
        return Fp32Report(tolerance=allowed, outputs=_outputs(self._worst))


def _outputs(worst: Mapping[str, tuple[Difference, str]]) -> tuple[OutputDifference, ...]:
    found: Sequence[tuple[str, Difference, str]] = [(name, *each) for name, each in worst.items()]
    return tuple(
        OutputDifference(output=name, largest=each.largest, scale=each.scale, case=case)
        for name, each, case in found
    )
