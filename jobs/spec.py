"""The spec of a job: the request that was accepted, with its pipeline config by digest instead of by text."""

import hashlib
from typing import Annotated, Self

from pydantic import Field

from exporter.spec import ExportOptions, ExportSpec

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_BY_DIGEST = {"config_sha256", "config_bytes"}


class JobSpec(ExportOptions):
    """An accepted request without the text of its config, which may have megabytes.

    The job store keeps the text once for all jobs that use it (see `JobStore.config_of`). What needs the
    text asks for it and gets an ExportSpec.
    """

    config_sha256: Sha256
    config_bytes: int = Field(ge=0)  # size of the text in UTF-8

    @classmethod
    def of(cls, spec: ExportSpec) -> Self:
        """Return the spec of a job for a request that holds the text of its config."""
        fields = spec.model_dump(include=set(ExportOptions.model_fields))
        return cls.model_validate({**fields, **describe_config(spec.config or "")})

    def with_config(self, config: str) -> ExportSpec:
        """Return the request with the text of its config."""
        return ExportSpec.model_validate({**self.model_dump(exclude=_BY_DIGEST), "config": config})


def describe_config(config: str) -> dict[str, str | int]:
    """Return the fields of a JobSpec that stand for the text of a config."""
    content = config.encode()
    return {"config_sha256": hashlib.sha256(content).hexdigest(), "config_bytes": len(content)}
