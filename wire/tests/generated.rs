//! The types in `src/generated` match the proto files.

use std::fs;
use std::path::Path;

/// protox reads the .proto files in Rust, so that `protoc` need not be installed.
#[test]
fn the_types_match_the_proto_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let contract = ["revocation", "audit"].map(|name| folder.join(format!("proto/credence/v1/{name}.proto")));
    let descriptors = protox::compile(contract, [folder.join("proto")]).unwrap();
    let generated = tempfile::tempdir().unwrap();
    tonic_prost_build::configure()
        .out_dir(generated.path())
        .client_mod_attribute(".", FOR_TONIC)
        .server_mod_attribute(".", FOR_TONIC)
        // Its bytes are secret; src/lib.rs prints it without them.
        .skip_debug(["credence.v1.CacheKeys"])
        .compile_fds(descriptors)
        .unwrap();
    let generated = fs::read_to_string(generated.path().join("credence.v1.rs")).unwrap();
    let kept = folder.join("src/generated/credence.v1.rs");
    if fs::read_to_string(&kept).ok().as_ref() != Some(&generated) {
        fs::write(&kept, generated).unwrap();
        panic!("{} was out of date and has been regenerated; commit it", kept.display());
    }
}

const FOR_TONIC: &str = "#[cfg(feature = \"tonic\")]";
