//! The types in `src/generated` match the proto file.

use std::fs;
use std::path::Path;

/// protox reads the .proto file in Rust, so that `protoc` need not be installed.
#[test]
fn the_types_match_the_proto_file() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let descriptors = protox::compile([folder.join("proto/etcd.proto")], [folder.join("proto")]).unwrap();
    let generated = tempfile::tempdir().unwrap();
    tonic_prost_build::configure()
        .out_dir(generated.path())
        .build_server(false)
        // Values are shared, not copied, between the answer and its readers.
        .bytes(".")
        // It has the password.
        .skip_debug(["etcdserverpb.AuthenticateRequest", "etcdserverpb.AuthenticateResponse"])
        .compile_fds(descriptors)
        .unwrap();
    let generated = fs::read_to_string(generated.path().join("etcdserverpb.rs")).unwrap();
    let kept = folder.join("src/generated/etcdserverpb.rs");
    if fs::read_to_string(&kept).ok().as_ref() != Some(&generated) {
        fs::write(&kept, generated).unwrap();
        panic!("{} was out of date and has been regenerated; commit it", kept.display());
    }
}
