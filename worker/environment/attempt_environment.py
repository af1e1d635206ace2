"""What an attempt is given of its worker: variables by a list, limits, and credentials of its own.

An attempt reads what strangers wrote. Should one of them get code to run after all, it is to find little: no
address of the job store, no key of the API, and where a role for it is configured, no credentials but those
for the places of its own job.
"""

from dataclasses import dataclass
from functools import partial

from processes.confinement import Confinement
from worker.attempt.workspace import Workspace
from worker.environment.credential_renewal import Grant
from worker.environment.credentials import Credentials, RoleCredentials
from worker.settings import AllowanceSettings, AttemptSettings, RankSettings, variables_of

_OF_THE_MACHINE = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "LC_*", "TZ", "XDG_CACHE_HOME"),
    *(
        "PYTHON*",
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "GLIBC_TUNABLES",
        "MALLOC_*",
    ),
)
_OF_THE_COMPILER = (
    *("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"),
    *("LIBRARY_PATH", "CUDA_*", "NVIDIA_*", "NCCL_*", "GLOO_*", "TORCH*", "PYTORCH_*", "AOTI_*", "TRITON_*"),
    *("FBGEMM_*", "OMP_*", "GOMP_*", "KMP_*", "MKL_*", "OPENBLAS_*"),
)
_OF_THE_NETWORK = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
)
_STORAGE = ("AWS_*",)
# Where the store is, without what opens it.
_STORAGE_PLACE = (
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_CA_BUNDLE",
)


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """What every attempt of a worker is given."""

    settings: AllowanceSettings
    credentials: Credentials | None = None  # None: attempts get the worker's own for the object store

    def confinement(self) -> Confinement:
        """The variables and the limits."""
        own = (*variables_of(AttemptSettings), *variables_of(RankSettings))
        storage = _STORAGE if self.credentials is None else _STORAGE_PLACE
        listed = self.settings.attempt_variables
        return Confinement(
            variables=(*_OF_THE_MACHINE, *_OF_THE_COMPILER, *_OF_THE_NETWORK, *storage, *own, *listed),
            limits=self._limits(),
        )

    def grant(self, workspace: Workspace, code_cache: str | None) -> Grant | None:
        """The credentials of this attempt, to be asked for; None if it uses the worker's."""
        if self.credentials is None:
            return None
        spec, artifact_uri = workspace.order().spec, workspace.artifact_uri
        ask = partial(self.credentials.ask, spec, artifact_uri, code_cache)
        return Grant(folder=workspace.path / "credentials", ask=ask, lifetime=self.credentials.given_for)

    def _limits(self) -> dict[str, int]:
        """No limit of address space: mapped tables and CUDA take many times the memory that they use."""
        given = {
            "core": 0,  # it would hold weights and credentials
            "nofile": self.settings.attempt_open_files,
            "fsize": self.settings.attempt_file_bytes,
            "nproc": self.settings.attempt_processes,
        }
        return {name: value for name, value in given.items() if value is not None}


def allowance_of(settings: AllowanceSettings) -> Allowance:
    """As the settings say; with a role of theirs, attempts get credentials of their own."""
    if settings.storage_role is None:
        return Allowance(settings=settings)
    role = RoleCredentials(role=settings.storage_role, lifetime=settings.storage_role_lifetime)
    return Allowance(settings=settings, credentials=role)
