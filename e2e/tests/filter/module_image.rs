//! The module's OCI image layouts, which scripts/module-layouts.py writes. The tests push and pull them with `crane`,
//! an independent client (interop/oci), and fetch them with the code of Istio's agent (interop/fetch).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use std::{fs, io};

use credence_e2e::artefacts::Artefacts;
use credence_e2e::process::Process;
use credence_e2e::waiting;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

const LAYOUTS: [&str; 2] = ["compat", "artifact"];

#[test]
fn a_registry_gives_back_the_same_digest_and_the_same_bytes() {
    let Some(registry) = Registry::start() else {
        return;
    };
    let packed = Packed::of(&module());
    for layout in LAYOUTS {
        let digest = packed.digest(layout);
        let tag = format!("{}/{layout}:0.2.0", registry.address);
        registry.crane(&["push", &packed.path(layout), &tag]);
        assert_eq!(registry.crane(&["digest", &tag]).trim_ascii(), digest.as_bytes());

        // By its digest, as operators pin it.
        let pinned = format!("{}/{layout}@{digest}", registry.address);
        let back = TempDir::new().unwrap();
        let folder = back.path().join("back");
        registry.crane(&["pull", "--format=oci", &pinned, folder.to_str().unwrap()]);
        assert_eq!(
            files(&folder.join("blobs")),
            files(&packed.folder.path().join(layout).join("blobs")),
            "{layout}"
        );
    }
}

#[test]
fn a_pulled_image_has_the_module_where_istio_looks_for_it() {
    let Some(registry) = Registry::start() else {
        return;
    };
    let packed = Packed::of(&module());
    for layout in LAYOUTS {
        registry.crane(&[
            "push",
            &packed.path(layout),
            &format!("{}/{layout}:0.2.0", registry.address),
        ]);
    }

    // In the ordinary image, the file plugin.wasm.
    let compat = format!("{}/compat:0.2.0", registry.address);
    let file_system = packed.folder.path().join("file-system.tar");
    registry.crane(&["export", &compat, file_system.to_str().unwrap()]);
    let found = ran(Command::new("tar").arg("-xOf").arg(&file_system).arg("plugin.wasm"));
    assert!(found.stdout == module(), "plugin.wasm is not the module");

    // In the artifact, the blob itself, whose digest is the module's.
    let blob = format!("{}/artifact@{}", registry.address, packed.digest("module"));
    assert!(
        registry.crane(&["blob", &blob]) == module(),
        "the blob is not the module"
    );
    assert_eq!(packed.digest("module"), digest_of(&module()));
}

#[test]
#[ignore = "builds a part of Istio, which takes minutes"]
fn istio_fetches_both_layouts_by_the_printed_digests() {
    let (Some(registry), Some(home)) = (Registry::start(), prepared("fetch")) else {
        return;
    };
    let packed = Packed::of(&module());
    for layout in LAYOUTS {
        let tag = format!("{}/{layout}:0.2.0", registry.address);
        registry.crane(&["push", &packed.path(layout), &tag]);
        let digest = packed.digest(layout);
        let sha256 = &digest["sha256:".len()..];
        let fetched = packed.folder.path().join(format!("{layout}.wasm"));
        let fetch = |arguments: &[&str]| {
            let mut command = Command::new(home.join("fetch"));
            command.arg(&fetched).args(arguments).output().unwrap()
        };

        // As in WasmPlugin's `url`, with `sha256` or without.
        let tagged = format!("oci://{tag}");
        let pinned = format!("oci://{}/{layout}@{digest}", registry.address);
        for arguments in [
            &[tagged.as_str(), sha256][..],
            &[&tagged],
            &[&pinned, sha256],
            &[&pinned],
        ] {
            let output = fetch(arguments);
            assert!(output.status.success(), "{arguments:?}: {output:?}");
            assert!(fs::read(&fetched).unwrap() == module(), "{arguments:?}");
            fs::remove_file(&fetched).unwrap();
        }

        // For an image, `sha256` is the manifest's digest. The module's digest is refused.
        let refused = fetch(&[&tagged, &packed.digest("module")["sha256:".len()..]]);
        assert!(!refused.status.success());
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.contains("does not match"), "{said}");
    }
}

#[test]
fn the_same_module_gives_the_same_bytes_wherever_it_is_packed() {
    let first = Packed::of(&module());
    let second = Packed::of(&module());
    assert_eq!(files(first.folder.path()), files(second.folder.path()));
    // Five files and an archive of them for each, and the module.
    assert_eq!(files(first.folder.path()).len(), 1 + LAYOUTS.len() * (5 + 1));
    for layout in LAYOUTS {
        assert_eq!(first.digest(layout), second.digest(layout));
    }
}

#[test]
fn an_archive_has_the_files_of_the_folder_beside_it() {
    let packed = Packed::of(&module());
    for layout in LAYOUTS {
        let unpacked = TempDir::new().unwrap();
        let archive = packed.folder.path().join(format!("{layout}.tar"));
        ran(Command::new("tar")
            .arg("-C")
            .arg(unpacked.path())
            .arg("-xf")
            .arg(archive));
        assert_eq!(
            files(unpacked.path()),
            files(&packed.folder.path().join(layout)),
            "{layout}"
        );
    }
}

#[test]
fn another_module_takes_the_place_of_the_one_before() {
    let packed = Packed::of(&module());
    let mut other = module();
    // A custom section, empty and without a name, which readers skip.
    other.extend([0, 1, 0]);
    let repacked = packed.again(&other);
    for layout in LAYOUTS {
        let digests: [String; 2] = [&packed, &repacked].map(|packed| packed.digest(layout));
        assert_ne!(digests[0], digests[1], "{layout}");
        // None of the previous module's blobs is left.
        let blobs = files(&repacked.folder.path().join(layout).join("blobs"));
        assert!(!blobs.contains_key(Path::new("sha256").join(&digests[0]["sha256:".len()..]).as_path()));
    }
}

#[test]
fn a_file_that_is_not_a_module_is_not_packed() {
    let folder = TempDir::new().unwrap();
    let refused = pack(b"<html>404", folder.path());
    assert!(!refused.status.success());
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("is not a Proxy-Wasm module"), "{said}");
    assert!(!folder.path().join("compat").exists());
}

/// The layouts of a module, and the script's output.
struct Packed {
    folder: TempDir,
    said: String,
}

impl Packed {
    fn of(module: &[u8]) -> Self {
        Self::into(TempDir::new().unwrap(), module)
    }

    /// Packs another module into the same folder.
    fn again(&self, module: &[u8]) -> Self {
        let copy = TempDir::new().unwrap();
        ran(Command::new("cp")
            .arg("-R")
            .arg(self.folder.path().join("."))
            .arg(copy.path()));
        Self::into(copy, module)
    }

    fn into(folder: TempDir, module: &[u8]) -> Self {
        let packed = pack(module, folder.path());
        assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
        let said = String::from_utf8(packed.stdout).unwrap();
        Self { folder, said }
    }

    fn path(&self, layout: &str) -> String {
        self.folder.path().join(layout).to_str().unwrap().to_owned()
    }

    /// The digest to pin, as printed.
    fn digest(&self, name: &str) -> String {
        let line = self.said.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split(' ').nth(1)).unwrap().to_owned()
    }
}

fn pack(module: &[u8], folder: &Path) -> Output {
    let file = folder.join("module.wasm");
    fs::write(&file, module).unwrap();
    Command::new(repository().join("scripts/module-layouts.py"))
        .arg(file)
        .arg(folder)
        .output()
        .unwrap()
}

/// A registry on this machine, and its client.
struct Registry {
    address: String,
    crane: PathBuf,
    folder: TempDir,
    _process: Process,
}

impl Registry {
    /// `None` if Go is not installed; standard error says so.
    fn start() -> Option<Self> {
        let crane = CRANE.as_ref()?.join("crane");
        let folder = TempDir::new().unwrap();
        let mut serve = Command::new(&crane);
        serve.args(["registry", "serve", "--address", "127.0.0.1:0"]);
        let mut process = Process::start("the registry", &mut serve, &folder.path().join("registry.log")).unwrap();
        let port = waiting::until("the registry to say its port", || {
            process.check_running()?;
            let said = process.output();
            Ok(said
                .split_once("serving on port ")
                .and_then(|(_, port)| port.split_once('\n'))
                .map(|(port, _)| port.to_owned()))
        })
        .unwrap();
        Some(Self {
            address: format!("127.0.0.1:{port}"),
            crane,
            folder,
            _process: process,
        })
    }

    fn crane(&self, arguments: &[&str]) -> Vec<u8> {
        let mut command = Command::new(&self.crane);
        // Without credentials.
        command.env("DOCKER_CONFIG", self.folder.path()).args(arguments);
        ran(&mut command).stdout
    }
}

/// Built once for all tests.
static CRANE: LazyLock<Option<PathBuf>> = LazyLock::new(|| prepared("oci"));

/// The folder that scripts/setup-interop.sh has prepared from this folder of interop/. `None` if its toolchain is not
/// installed; standard error says so.
fn prepared(folder: &str) -> Option<PathBuf> {
    let setup = Command::new(repository().join("scripts/setup-interop.sh"))
        .arg(folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&setup.stderr);
    assert!(setup.status.success(), "{said}");
    let answer = String::from_utf8(setup.stdout).unwrap();
    let ready = answer
        .trim()
        .strip_prefix(&format!("ready {folder} "))
        .map(PathBuf::from);
    if ready.is_none() {
        eprintln!("SKIPPED: {said}");
    }
    ready
}

fn ran(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn module() -> Vec<u8> {
    fs::read(Artefacts::from_environment().unwrap().filter).unwrap()
}

/// The files below a folder: relative paths and digests.
fn files(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        let entries: io::Result<Vec<_>> = fs::read_dir(next).unwrap().collect();
        for path in entries.unwrap().into_iter().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else {
                let digest = digest_of(&fs::read(&path).unwrap());
                found.insert(path.strip_prefix(folder).unwrap().to_owned(), digest);
            }
        }
    }
    found
}

fn digest_of(bytes: &[u8]) -> String {
    let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digest}")
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}
