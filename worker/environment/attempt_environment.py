"""The environment of an attempt: variables by an allow-list, resource limits, and credentials of its own.

An attempt reads files that strangers wrote. If one of them gets code to run after all, that code should find
little: no address of the job store, no key of the API and, where SLIPWAY_STORAGE_ROLE is set, only
credentials for the places of its own job.
"""

from dataclasses import dataclass
from functools import partial

from processes.confinement import Confinement
from worker.attempt.workspace import Workspace
from worker.environment.credential_renewal import CredentialRenewal
from worker.environment.credentials import RoleCredentials
from worker.settings import AttemptEnvironmentSettings, AttemptSettings, RankSettings, variables_of

_MACHINE_VARIABLES = (
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
_COMPILER_VARIABLES = (
    *("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"),
    *("LIBRARY_PATH", "CUDA_*", "NVIDIA_*", "NCCL_*", "GLOO_*", "TORCH*", "PYTORCH_*", "AOTI_*", "TRITON_*"),
    *("FBGEMM_*", "OMP_*", "GOMP_*", "KMP_*", "MKL_*", "OPENBLAS_*"),
)
_NETWORK_VARIABLES = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
)
_STORAGE_VARIABLES = ("AWS_*",)
# The address of the object store, without credentials.
_STORAGE_ADDRESS_VARIABLES = (
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_CA_BUNDLE",
)


@dataclass(frozen=True, kw_only=True)
class AttemptEnvironment:
    """The environment that every attempt of a worker gets."""

    settings: AttemptEnvironmentSettings
    credentials: RoleCredentials | None = None  # None: attempts use the worker's own

    def make_confinement(self) -> Confinement:
        """Return the names of the variables that attempts may see, and their resource limits."""
        own = (*variables_of(AttemptSettings), *variables_of(RankSettings))
        storage = _STORAGE_VARIABLES if self.credentials is None else _STORAGE_ADDRESS_VARIABLES
        listed = self.settings.attempt_variables
        return Confinement(
            variables=(
                *_MACHINE_VARIABLES,
                *_COMPILER_VARIABLES,
                *_NETWORK_VARIABLES,
                *storage,
                *own,
                *listed,
            ),
            limits=self._limits(),
        )

    def plan_credential_renewal(
        self, workspace: Workspace, code_cache: str | None
    ) -> CredentialRenewal | None:
        """Return the renewal of this attempt's credentials, not started; None if it uses the worker's own."""
        if self.credentials is None:
            return None
        spec, artifact_uri = workspace.read_request().spec, workspace.artifact_uri
        request = partial(self.credentials.request, spec, artifact_uri, code_cache)
        return CredentialRenewal(
            folder=workspace.path / "credentials", request=request, lifetime=self.credentials.duration
        )

    def _limits(self) -> dict[str, int]:
        """Return the limits by name, without one for address space.

        Mapped tables and CUDA reserve many times the address space that they use as memory.
        """
        given = {
            "core": 0,  # a core dump would hold weights and credentials
            "nofile": self.settings.attempt_open_files,
            "fsize": self.settings.attempt_file_bytes,
            "nproc": self.settings.attempt_processes,
        }
        return {name: value for name, value in given.items() if value is not None}


def make_attempt_environment(settings: AttemptEnvironmentSettings) -> AttemptEnvironment:
    """Return the environment that the settings describe, with credentials of the storage role if one is
    set.
    """
    if settings.storage_role is None:
        return AttemptEnvironment(settings=settings)
    role = RoleCredentials(role=settings.storage_role, lifetime=settings.storage_role_lifetime)
    return AttemptEnvironment(settings=settings, credentials=role)
