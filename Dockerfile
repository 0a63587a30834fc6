# Images of the operator and of an agent:
#
#   docker build --target operator --tag quorate-operator .
#   docker build --target agent --tag quorate-agent .
#
# `make images` builds both without an image registry, as root, with buildah and debootstrap.
# BASE needs Python 3.11 or later as python3, and nothing else; BUILD_BASE needs the module venv as
# well.  Both need the same interpreter at the same path.
ARG BASE=python:3.13-slim
ARG BUILD_BASE=${BASE}

FROM ${BUILD_BASE} AS build
# Where pip finds its settings, when a machine has its own package index.
ARG PIP_CONFIG_FILE
WORKDIR /build
COPY constraints-build.txt ./
RUN python3 -m venv tools \
 && tools/bin/pip install --quiet --require-hashes --requirement constraints-build.txt

FROM build AS wheel
ARG PIP_CONFIG_FILE
COPY pyproject.toml README.md ./
COPY core core
COPY operator operator
COPY node_agent node_agent
COPY spark spark
COPY cli cli
RUN tools/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

# Dependencies come before the project: its sources change more often than they do.
FROM build AS operator-environment
ARG PIP_CONFIG_FILE
COPY constraints-operator.txt ./
RUN python3 -m venv --without-pip /opt/quorate \
 && tools/bin/pip --python /opt/quorate/bin/python install --quiet --require-hashes \
    --only-binary :all: --requirement constraints-operator.txt
COPY --from=wheel /build/dist dist
RUN tools/bin/pip --python /opt/quorate/bin/python install --quiet --no-deps --no-index dist/*.whl \
 && rm /opt/quorate/bin/quorate /opt/quorate/bin/kubectl-quorate /opt/quorate/bin/quorate-agent

FROM build AS agent-environment
ARG PIP_CONFIG_FILE
COPY constraints-agent.txt ./
RUN python3 -m venv --without-pip /opt/quorate \
 && tools/bin/pip --python /opt/quorate/bin/python install --quiet --require-hashes \
    --only-binary :all: --requirement constraints-agent.txt
COPY --from=wheel /build/dist dist
RUN tools/bin/pip --python /opt/quorate/bin/python install --quiet --no-deps --no-index dist/*.whl \
 && rm /opt/quorate/bin/quorate /opt/quorate/bin/kubectl-quorate /opt/quorate/bin/quorate-operator

# Every dependency of the project and of its tests: the tests run here on the images' Python.
FROM build AS test
ARG PIP_CONFIG_FILE
COPY constraints.txt ./
RUN tools/bin/pip install --quiet --require-hashes --no-build-isolation \
    --requirement constraints.txt
COPY --from=wheel /build/dist dist
RUN tools/bin/pip install --quiet --no-deps --no-index dist/*.whl

FROM ${BASE} AS runtime
# A base may have pip, and programs that run as root whoever starts them.
RUN rm -rf /usr/local/bin/pip* /usr/local/lib/python3*/ensurepip \
    /usr/local/lib/python3*/site-packages/pip* \
 && find / -xdev -type f -perm /6000 -exec chmod a-s {} +
ARG BASE
ARG VERSION=0.1.0.dev0
ARG REVISION=
LABEL org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE}"
ENV PATH=/opt/quorate/bin:/usr/local/bin:/usr/bin:/bin \
    LANG=C.UTF-8 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# Any user will do: files are readable by all, and nothing is written outside of mounted folders.
USER 65532:65532

FROM runtime AS operator
LABEL org.opencontainers.image.title="quorate-operator" \
      org.opencontainers.image.description="Leads clusters of Quorate agents: decides who owns what"
COPY --from=operator-environment /opt/quorate /opt/quorate
ENTRYPOINT ["quorate-operator"]

FROM runtime AS agent
LABEL org.opencontainers.image.title="quorate-agent" \
      org.opencontainers.image.description="Keeps partitions of Quorate zones and serves clients"
COPY --from=agent-environment /opt/quorate /opt/quorate
# Long values lie in huge pages; an agent without this starts anew to have it.
ENV GLIBC_TUNABLES=glibc.malloc.hugetlb=1
ENTRYPOINT ["quorate-agent"]
