"""Sample requests of a tower: cases of the gate, kept with eager's answers and written to a file."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import load, save
from torch import Tensor

from exporter.artifact.read import file_ref
from exporter.dims.plan import BATCH
from exporter.samples.entry import SampleCase, SamplesEntry, input_key, output_key
from exporter.spec import TowerName
from exporter.verify.cases import is_ordinary
from exporter.verify.checks.check import Trial
from exporter.verify.numerics import allowed_differences

SAMPLES_NAME = "samples.safetensors"
_MOST_BYTES = 4 << 20  # of the larger request with its answer


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """One case that the packages have passed: a request, eager's answer, and the allowed differences."""

    case: SampleCase
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All tensors on the CPU, by their names in the file; none shares its storage with another."""
        name = self.case.name
        named = {input_key(name, each): tensor for each, tensor in self.inputs.items()}
        named |= {output_key(name, each): tensor for each, tensor in self.outputs.items()}
        return {
            key: tensor.cpu().clone(memory_format=torch.contiguous_format) for key, tensor in named.items()
        }

    def count_bytes(self) -> int:
        """Return the bytes of all its numbers."""
        return sum(tensor.nbytes for tensor in (*self.inputs.values(), *self.outputs.values()))


@dataclass(frozen=True, kw_only=True, eq=False)
class WrittenSamples:
    """The sample requests of a tower in a file on disk, and their entry in the manifest."""

    entry: SamplesEntry
    file: Path
    samples: tuple[Sample, ...]

    @property
    def files(self) -> dict[str, Path]:
        return {self.entry.file.path: self.file}


@dataclass(kw_only=True, eq=False)
class SampleKeeper:
    """The cases of a tower's gate that can become sample requests."""

    most_rows: int  # of a request; 0: nothing is kept
    _kept: dict[str, Sample] = field(default_factory=dict)  # by their cases' names

    def keep(self, trial: Trial) -> None:
        """Keep a case of rows as they are that the packages have passed, if it has few enough rows."""
        if trial.agreed is None or not is_ordinary(trial.batch) or trial.sizes[BATCH] > self.most_rows:
            return
        name, (outputs, usual) = trial.batch.name, trial.agreed
        allowed = allowed_differences(outputs, trial.runnable.tolerance, usual=usual)
        self._kept[name] = Sample(
            case=SampleCase(name=name, sizes=trial.sizes, allowed=allowed),
            inputs=trial.batch.inputs,
            outputs=outputs,
        )

    def choose(self) -> tuple[Sample, ...]:
        """Return the request of fewest rows, and that of most whose numbers are not too many."""
        kept = sorted(self._kept.values(), key=lambda each: each.case.sizes[BATCH])
        small = [each for each in kept[1:] if each.count_bytes() <= _MOST_BYTES]
        return (*kept[:1], *small[-1:])

    def write(self, tower: TowerName, folder: Path) -> WrittenSamples | None:
        """Write the chosen requests below a tower's folder; return None where nothing was kept."""
        if not (samples := self.choose()):
            return None
        tensors = {key: tensor for sample in samples for key, tensor in sample.tensors.items()}
        file = folder / SAMPLES_NAME
        file.write_bytes(save(tensors))
        entry = SamplesEntry(
            file=file_ref(f"{tower}/{SAMPLES_NAME}", file), cases=tuple(each.case for each in samples)
        )
        return WrittenSamples(entry=entry, file=file, samples=samples)


def find_altered_samples(entry: SamplesEntry, written: WrittenSamples) -> Iterator[str]:
    """Yield what an entry or its file has otherwise than the gate had it: cases, names, single bits."""
    if entry.cases != tuple(sample.case for sample in written.samples):
        yield "the cases are not those that the gate has passed"
    found = load(written.file.read_bytes())
    expected = {key: tensor for sample in written.samples for key, tensor in sample.tensors.items()}
    for key in sorted(found.keys() ^ expected.keys()):
        yield f"{key} is {'not there' if key in expected else 'none of the gate'}"
    for key in sorted(found.keys() & expected.keys()):
        if not _is_same(found[key], expected[key]):
            yield f"{key} is not what the gate has compared"


def _is_same(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors are equal bit by bit."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))
