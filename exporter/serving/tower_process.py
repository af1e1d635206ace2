"""A tower in a process of its own, loaded there as servers load it: a crash does no harm here."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import BaseModel
from safetensors.torch import load_file, save_file
from torch import Tensor

from exporter.aoti.out_of_memory import as_out_of_memory
from exporter.errors import DimPlanViolated, InvalidArtifact, OutOfMemory
from exporter.serving.downloaded_tower import DownloadedTower
from exporter.serving.loader_process import CallRequest, LoaderReply, LoadRequest
from exporter.verify.runner import Refused
from exporter.verify.runner_process import CALL_LIMIT_S, RunnerProcess


class TowerProcess:
    """The process, as a context manager; lookups in sharded tables run in this process, in front of it."""

    def __init__(self, tower: DownloadedTower, scratch: Path) -> None:
        """Prepare to run `tower`; tensors travel as files below `scratch`."""
        self._tower = tower
        self._process = RunnerProcess(scratch, program="exporter.serving.loader_process")

    def __enter__(self) -> Self:
        """Load the tower.

        Raises:
            InvalidArtifact: the loader refuses the artifact.
            OutOfMemory: it took more memory than there was.
            PackageCrashed: the process died, or took too long and was ended.
        """
        self._process.__enter__()
        try:
            self._ask(
                LoadRequest(
                    artifact=self._tower.root,
                    tower=self._tower.entry.name,
                    tf32=self._tower.entry.tf32,
                    has_lookup=self._tower.lookup is not None,
                )
            )
        except BaseException:
            self._process.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.__exit__(kind, error, trace)

    def run(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Call the tower once.

        Raises:
            Refused: the tower, or the lookup in front of it, rejected the inputs.
            InvalidArtifact, OutOfMemory, PackageCrashed: as when it is loaded.
        """
        folder = self._process.folder
        request = CallRequest(
            inputs=folder / "inputs.safetensors",
            looked_up=None,
            outputs=folder / "outputs.safetensors",
        )
        if self._tower.lookup is not None:
            request = request.model_copy(update={"looked_up": folder / "looked-up.safetensors"})
            _save(self._look_up(inputs), folder / "looked-up.safetensors")
        _save(inputs, request.inputs)
        self._ask(request)
        return load_file(request.outputs)

    def _look_up(self, inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        assert self._tower.lookup is not None
        try:
            return self._tower.lookup(inputs)
        except (RuntimeError, DimPlanViolated) as error:  # as a package would refuse them
            if memory := as_out_of_memory(error, "lookups"):
                raise memory from error
            raise Refused(str(error).strip().partition("\n")[0]) from error

    def _ask(self, request: BaseModel) -> None:
        reply = self._process.exchange(request, LoaderReply, limit_s=CALL_LIMIT_S)
        if reply.refused is not None:
            raise Refused(reply.refused)
        if reply.out_of_memory is not None:
            raise OutOfMemory(f"the process running the package: {reply.out_of_memory}")
        if reply.failed is not None:
            raise InvalidArtifact(reply.failed)


def _save(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write copies, as safetensors refuses views that share storage."""
    save_file({name: value.cpu().clone().contiguous() for name, value in tensors.items()}, path)
