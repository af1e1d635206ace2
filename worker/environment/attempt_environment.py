"""What an attempt is given of its worker: variables by a list, limits, and credentials of its own.

An attempt reads what strangers wrote. Should one of them get code to run after all, it is to find little: no
address of the job store, no key of the API, and where a role for it is configured, no credentials but those
for the places of its own job.
"""

from dataclasses import dataclass
from functools import partial

from processes.confinement import Confinement
from worker.attempt.workspace import Workspace
from worker.environment.credential_renewal import CredentialRenewal
from worker.environment.credentials import RoleCredentials
from worker.settings import AttemptEnvironmentSettings, AttemptSettings, RankSettings, variables_of

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
class AttemptEnvironment:
    """What every attempt of a worker is given."""

    settings: AttemptEnvironmentSettings
    credentials: RoleCredentials | None = None  # None: attempts get the worker's own for the object store

    def make_confinement(self) -> Confinement:
        """The variables and the limits."""
        own = (*variables_of(AttemptSettings), *variables_of(RankSettings))
        storage = _STORAGE if self.credentials is None else _STORAGE_PLACE
        listed = self.settings.attempt_variables
        return Confinement(
            variables=(*_OF_THE_MACHINE, *_OF_THE_COMPILER, *_OF_THE_NETWORK, *storage, *own, *listed),
            limits=self._limits(),
        )

    def plan_credential_renewal(
        self, workspace: Workspace, code_cache: str | None
    ) -> CredentialRenewal | None:
        """The credentials of this attempt, to be asked for; None if it uses the worker's."""
        if self.credentials is None:
            return None
        spec, artifact_uri = workspace.read_request().spec, workspace.artifact_uri
        request = partial(self.credentials.request, spec, artifact_uri, code_cache)
        return CredentialRenewal(
            folder=workspace.path / "credentials", request=request, lifetime=self.credentials.duration
        )

    def _limits(self) -> dict[str, int]:
        """No limit of address space: mapped tables and CUDA take many times the memory that they use."""
        given = {
            "core": 0,  # it would hold weights and credentials
            "nofile": self.settings.attempt_open_files,
            "fsize": self.settings.attempt_file_bytes,
            "nproc": self.settings.attempt_processes,
        }
        return {name: value for name, value in given.items() if value is not None}


def make_attempt_environment(settings: AttemptEnvironmentSettings) -> AttemptEnvironment:
    """As the settings say; with a role of theirs, attempts get credentials of their own."""
    if settings.storage_role is None:
        return AttemptEnvironment(settings=settings)
    role = RoleCredentials(role=settings.storage_role, lifetime=settings.storage_role_lifetime)
    return AttemptEnvironment(settings=settings, credentials=role)
