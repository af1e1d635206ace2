# The API: no torch, no compiler.
#   docker build -f docker/service.Dockerfile -t slipway/service .
# Pass pip's own configuration, for a mirror for example, as a secret: --secret id=pip,src=pip.conf
# `make image-digests` checks the digests of the base images.

FROM python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /build
RUN python -m venv /opt/slipway
COPY docker/pins/service.txt docker/pins/build.txt pins/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf,required=false \
    /opt/slipway/bin/pip install --no-deps --require-hashes -r pins/service.txt \
    && python -m venv /opt/build && /opt/build/bin/pip install --no-deps --require-hashes -r pins/build.txt
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
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation -w dist . ./slipway \
    && /opt/slipway/bin/pip install --no-deps dist/*.whl \
    && /opt/slipway/bin/pip uninstall -y pip setuptools

FROM python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b
RUN groupadd --gid 10001 slipway && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp slipway
COPY --from=build /opt/slipway /opt/slipway
ENV PATH=/opt/slipway/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /tmp
USER 10001:10001
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/healthz', timeout=4)"]
CMD ["python", "-m", "service", "--host=0.0.0.0", "--port=8080", "--grace=25"]
