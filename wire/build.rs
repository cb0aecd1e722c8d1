//! Compiles the contract. protox reads the .proto files in Rust, so that no `protoc` has to be installed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(
        ["proto/credence/v1/revocation.proto", "proto/credence/v1/audit.proto"],
        ["proto"],
    )?;
    let services = std::env::var_os("CARGO_FEATURE_TONIC").is_some();
    tonic_prost_build::configure()
        .build_client(services)
        .build_server(services)
        // Its bytes are secret; src/lib.rs prints it without them.
        .skip_debug(["credence.v1.CacheKeys"])
        .compile_fds(descriptors)?;
    Ok(())
}
