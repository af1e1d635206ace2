# Workers, by device:
#   docker build -f docker/worker.Dockerfile --target cpu  -t slipway/worker-cpu --secret id=pip,src=docker/pip.conf .
#   docker build -f docker/worker.Dockerfile --target cuda -t slipway/worker-cuda .
# The secret is pip's own configuration. For `cpu` it must name an index that has torch's CPU build, as docker/pip.conf
# does, because the usual index has the build for CUDA only.
# `make image-digests` checks the digests of the base images.

FROM python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b AS slipway
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /build
COPY docker/pins/build.txt pins/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf,required=false \
    python -m venv /opt/build && /opt/build/bin/pip install --no-deps --require-hashes -r pins/build.txt
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE ./
COPY protos protos
COPY cli cli
COPY exporter exporter
COPY jobs jobs
COPY launcher launcher
COPY processes processes
COPY service service
COPY slipway slipway
COPY telemetry telemetry
COPY worker worker
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation -w dist . ./slipway

FROM python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b AS install-cpu
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /build
RUN python -m venv /opt/slipway
COPY docker/pins/worker-cpu.txt pins/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf,required=false \
    /opt/slipway/bin/pip install --no-deps --require-hashes -r pins/worker-cpu.txt
COPY --from=slipway /build/dist dist
RUN /opt/slipway/bin/pip install --no-deps dist/*.whl && /opt/slipway/bin/pip uninstall -y pip

FROM python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b AS install-cuda
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /build
RUN python -m venv /opt/slipway
COPY docker/pins/worker-cuda.txt pins/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf,required=false \
    /opt/slipway/bin/pip install --no-deps --require-hashes -r pins/worker-cuda.txt
COPY --from=slipway /build/dist dist
RUN /opt/slipway/bin/pip install --no-deps dist/*.whl && /opt/slipway/bin/pip uninstall -y pip

# The base of workers: a C++ compiler for AOTInductor, and a first process that hides its environment.
FROM python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b AS machine
# The base's digest fixes Debian's release, whose security updates are wanted.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ libc6-dev libgomp1 \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 slipway \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /scratch slipway \
    && install -d -o 10001 -g 10001 /scratch /var/cache/slipway /var/lib/slipway
ENV PATH=/opt/slipway/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    HOME=/scratch TMPDIR=/scratch SLIPWAY_WORK_DIR=/scratch/work SLIPWAY_ALIVE_FILE=/scratch/alive.json \
    XDG_CACHE_HOME=/var/cache
# Python looks for modules in its working directory, so an attempt must not be able to write there.
WORKDIR /opt
USER 10001:10001
HEALTHCHECK --interval=30s --timeout=20s --start-period=60s --retries=4 CMD ["python", "-m", "worker.alive"]
ENTRYPOINT ["python", "-m", "worker.init"]
CMD ["celery", "-A", "worker.app", "worker", "--without-gossip", "--without-mingle"]

FROM machine AS cpu
COPY --from=install-cpu /opt/slipway /opt/slipway
# Half a gigabyte saves each job that compiles two seconds, for the levels that are the same anywhere.
RUN python -m worker.warm_up --folder /var/lib/slipway/compiled avx2 avx512
ENV SLIPWAY_COMPILED_AHEAD=/var/lib/slipway/compiled

# A package's wrapper is compiled against the CUDA toolkit's headers and the driver's stub; torch and triton
# bring the rest.
FROM nvidia/cuda:13.0.3-base-ubuntu22.04@sha256:73ab6dfb3814a5097cd456736e70650ef9dc72343be4117d0400de78168760fe AS toolkit
# The packages' names carry the toolkit's version.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends cuda-cudart-dev-13-0 cuda-driver-dev-13-0 cuda-nvcc-13-0 \
    && rm -rf /var/lib/apt/lists/*

FROM machine AS cuda
COPY --from=toolkit /usr/local/cuda-13.0 /usr/local/cuda
COPY --from=install-cuda /opt/slipway /opt/slipway
ENV CUDA_HOME=/usr/local/cuda NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
