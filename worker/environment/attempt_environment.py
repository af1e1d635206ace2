"""The environment of an attempt: variables by an allow-list, resource limits, and credentials of its own.

An attempt reads files that strangers wrote. If one of them gets code to run after all, that code should find
little: no address of the job store, no key of the API and, where SLIPWAY_STORAGE_ROLE is set, only
credentials for the places of its own job.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import partial

from exporter.errors import UriNotAllowed
from exporter.storage.open import SCHEMES, scheme_of
from exporter.storage.uris import uris_of
from processes.confinement import Confinement
from worker.attempt.workspace import AttemptFile, Workspace
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
# What the libraries of each kind of store read, by the scheme of its URIs.
_STORAGE_VARIABLES = {
    "s3": ("AWS_*",),
    "oss": ("OSS_*", "ALIBABA_CLOUD_*"),
    "gs": ("GOOGLE_*", "GCE_METADATA_*", "CLOUDSDK_*", "STORAGE_EMULATOR_HOST"),
    "az": ("AZURE_*", "IDENTITY_ENDPOINT", "IDENTITY_HEADER", "MSI_ENDPOINT", "MSI_SECRET"),
}
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

    def make_confinement(self, schemes: Collection[str] = ()) -> Confinement:
        """Return the names of the variables that an attempt may see, and its resource limits.

        `schemes` are those of its URIs; it sees the variables of these stores alone. One without remote URIs
        sees those of S3, which families of its own may read.
        """
        own = (*variables_of(AttemptSettings), *variables_of(RankSettings))
        stores = [scheme for scheme in _STORAGE_VARIABLES if scheme in schemes] or ["s3"]
        storage = [name for scheme in stores for name in _STORAGE_VARIABLES[scheme]]
        if self.credentials is not None:
            storage = [*_STORAGE_ADDRESS_VARIABLES]
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
        """Return the renewal of this attempt's credentials, not started; None if it uses the worker's own.

        Raises:
            UriNotAllowed: a URI is of a store for which there are no credentials of one job.
        """
        if self.credentials is None:
            return None
        _require_narrowable(workspace, code_cache)
        given, artifact_uri = workspace.read_request(), workspace.artifact_uri
        request = partial(self.credentials.request, given.spec, artifact_uri, code_cache, given.released)
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


def schemes_of(workspace: Workspace, code_cache: str | None) -> frozenset[str]:
    """Return the schemes of all remote URIs that an attempt uses, the code cache's among them."""
    given = workspace.read_request()
    return _schemes_of_job(given, code_cache) | _remote_schemes(given.released)


def _schemes_of_job(given: AttemptFile, code_cache: str | None) -> frozenset[str]:
    return _remote_schemes([*(each.uri for each in uris_of(given.spec)), code_cache or ""])


def _remote_schemes(uris: Iterable[str]) -> frozenset[str]:
    return frozenset(map(scheme_of, uris)) & frozenset(SCHEMES)


def _require_narrowable(workspace: Workspace, code_cache: str | None) -> None:
    # An earlier release in another store cannot be read then: the release gate says so, and blesses nothing.
    if others := sorted(_schemes_of_job(workspace.read_request(), code_cache) - {"s3"}):
        raise UriNotAllowed(
            f"this worker narrows credentials to each job (SLIPWAY_STORAGE_ROLE), and for {others[0]}:// it "
            "cannot",
            hint="use s3:// URIs, or run such jobs on workers without SLIPWAY_STORAGE_ROLE",
            where=f"{others[0]}://",
        )


def make_attempt_environment(settings: AttemptEnvironmentSettings) -> AttemptEnvironment:
    """Return the environment that the settings describe, with credentials of the storage role if one is
    set.
    """
    if settings.storage_role is None:
        return AttemptEnvironment(settings=settings)
    role = RoleCredentials(role=settings.storage_role, lifetime=settings.storage_role_lifetime)
    return AttemptEnvironment(settings=settings, credentials=role)
