# The credence command: control plane (`serve`) and tools. Build:  docker build -t credence .
FROM docker.io/library/rust:1.95-slim-bookworm AS build
WORKDIR /credence
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/credence/target \
    cargo build --locked --release -p credence && install -D target/release/credence /out/credence

# No shell, no package manager, not root.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /out/credence /usr/local/bin/credence
ENTRYPOINT ["/usr/local/bin/credence"]
CMD ["--help"]
