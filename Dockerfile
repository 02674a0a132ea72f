# The homa command in a small image. It compares Homa with TCP by default:
#
#   docker build --build-arg HOMA_COMMIT="$(git describe --always --dirty)" -t homa .
#   docker run --rm --security-opt seccomp=unconfined homa
#
# The flag permits the namespaces of an emulated rack. Without it the comparison runs over loopback and says so.
# docs/guide/install.md has more.
FROM rust:1-slim-bookworm AS builder
# The build has no git directory (.dockerignore), and the commit is none of its business otherwise.
ARG HOMA_COMMIT=
WORKDIR /src
COPY . .
RUN HOMA_COMMIT="$HOMA_COMMIT" cargo build --locked --profile dist -p homa-cli -p homa-preload
RUN strip target/dist/homa target/dist/libhoma_preload.so

FROM debian:bookworm-slim
# `ip` makes the network devices of a rack.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends iproute2 \
 && rm -rf /var/lib/apt/lists/*
# The bench needs no privileges, and its results need a directory.
RUN useradd --no-create-home --shell /usr/sbin/nologin homa \
 && install --directory --owner=homa --group=homa /results
COPY --from=builder /src/target/dist/homa /usr/local/bin/homa
COPY --from=builder /src/target/dist/libhoma_preload.so /usr/local/lib/homa/libhoma_preload.so
USER homa
WORKDIR /results
ENTRYPOINT ["homa"]
CMD ["bench"]
