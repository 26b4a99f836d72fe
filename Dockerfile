# edgekit for a workstation or CI, without a GPU: docker build -t edgekit . (docs/install.md)
FROM python:3.12-slim

# ssh-keygen signs bundles and checks signatures; without a board `edgekit run` starts its own sshd
RUN apt-get update \
    && apt-get install -y --no-install-recommends openssh-client openssh-server \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/edgekit
COPY requirements-runtime-lock.txt requirements-build-lock.txt ./
RUN pip install --no-cache-dir --require-hashes -r requirements-runtime-lock.txt -r requirements-build-lock.txt

COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY edgekit ./edgekit
COPY edgekit_device ./edgekit_device
COPY targets ./targets
COPY dla ./dla
COPY trt ./trt
RUN pip install --no-cache-dir --no-deps --no-build-isolation .

RUN useradd --create-home --uid 1000 edgekit
USER edgekit
WORKDIR /work
ENTRYPOINT ["edgekit"]
CMD ["--help"]
