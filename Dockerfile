# The credence command: the control plane (`serve`) and the tools. filter/Dockerfile builds the module that Envoy loads.
#
#   docker build -t credence .                                                        for this machine
#   docker buildx build --platform linux/amd64,linux/arm64 -t IMAGE:TAG --push .      for both platforms
#
# Base images are named by the digest of their multi-platform index. The tag is for the reader only, because its owner
# may move it. The two images belong together: a binary that is built against a Debian's libc runs on that Debian.

# The compiler runs on the build platform for both targets: emulated, it would take an hour.
FROM --platform=$BUILDPLATFORM docker.io/library/rust:1.95.0-slim-bookworm@sha256:d7482085ff5b415f84dba5647ae71606650bdef00db7aeb69f4b3d170c3e4082 AS build
ARG BUILDARCH
ARG TARGETARCH
WORKDIR /credence
# For the other platform: Rust's standard library, and a C compiler, which links and builds the C parts of `ring`.
RUN case $TARGETARCH in \
        amd64) target=x86_64-unknown-linux-gnu package=gcc-x86-64-linux-gnu library=libc6-dev-amd64-cross ;; \
        arm64) target=aarch64-unknown-linux-gnu package=gcc-aarch64-linux-gnu library=libc6-dev-arm64-cross ;; \
        *) echo "error: Credence is built for amd64 and arm64, not for '$TARGETARCH'" >&2; exit 1 ;; \
    esac; \
    echo "$target" > /target; \
    [ "$TARGETARCH" = "$BUILDARCH" ] && exit; \
    rustup target add "$target" && \
    apt-get update && \
    apt-get install --yes --no-install-recommends "$package=4:12.2.0-3" "$library=2.36-8cross1" && \
    rm -rf /var/lib/apt/lists/*
COPY . .
# One target folder for each platform, so that both can be built at the same time.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/credence/target,id=credence-$TARGETARCH,sharing=locked \
    built=$(scripts/cross-cargo.sh "$(cat /target)" build --locked --profile dist -p credence) && \
    install -D "$built/dist/credence" /out/credence

# Of what volumes hold; distroless has no `mkdir`.
RUN install -d -m 700 /out/private && install -d /out/public

# libc, libgcc and certificates; no shell, no package manager.
FROM gcr.io/distroless/cc-debian12:nonroot@sha256:9dac0a79194e45a7da0158a9c6da57b217585af0786db3845d1f0ec1a0dd182f AS runtime
LABEL org.opencontainers.image.title="Credence" \
      org.opencontainers.image.description="Control plane and tools of Credence" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /out/credence /usr/local/bin/credence
# Docker gives a new volume the owner and the mode of the folder that it is mounted on.
COPY --from=build --chown=65532:65532 /out/private /var/lib/credence
# By number: Kubernetes cannot check runAsNonRoot against a name.
USER 65532:65532
# HTTP, gRPC and probes. Files are written to volumes only.
EXPOSE 7070 7071 7072
ENTRYPOINT ["/usr/local/bin/credence"]
CMD ["--help"]

# The first start of docker-compose.yml: a script, so it has Debian's shell. Of the machine that builds, not for others.
FROM runtime AS first-start
COPY --from=build /usr/bin/dash /usr/local/bin/sh
COPY --from=build --chown=65532:65532 /out/private /run/operator
COPY --from=build --chown=65532:65532 /out/private /run/issuer
COPY --from=build --chown=65532:65532 /out/public /run/settings
ENTRYPOINT ["/usr/local/bin/sh"]

# The last stage is what `docker build` builds.
FROM runtime
