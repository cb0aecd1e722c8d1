//! The services of interop/oracles, each on a free port.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::reading::Reading;
use crate::process::Process;
use crate::{Client, Failure, Request, guardian, ports, waiting};

/// The running services; killed when dropped.
#[derive(Debug)]
pub struct Services {
    /// The services as Envoy reaches them. One service may be there in two protocols.
    pub reached: Vec<Reached>,
    /// Each service's version, by its name.
    pub versions: BTreeMap<String, String>,
    /// The runtimes that this machine lacks; scripts/setup-interop.sh printed why.
    pub left_out: Vec<String>,
    _processes: Vec<Process>,
    // Last: files are removed once nothing uses them.
    folder: TempDir,
}

/// A service, in the protocol that Envoy speaks to it.
#[derive(Debug, Clone)]
pub struct Reached {
    /// Envoy's cluster.
    pub cluster: String,
    /// Its address.
    pub address: SocketAddr,
    /// HTTP/2 by prior knowledge, or HTTP/1.1.
    pub http2: bool,
}

/// The runtimes that scripts/setup-interop.sh prepares, and their services.
const RUNTIMES: &[(&str, &[&str])] = &[
    ("oracles-php", &["php", "lighttpd-php", "lighttpd-cgi"]),
    ("oracles-node", &["express4", "express5"]),
    (
        "oracles-python",
        &[
            "django-uvicorn",
            "django-hypercorn",
            "django-gunicorn",
            "flask-uvicorn",
            "flask-hypercorn",
            "flask-gunicorn",
        ],
    ),
    ("oracles-spring", &["spring5", "spring6"]),
    ("oracles-go", &["servemux", "chi"]),
];

/// Those that also speak HTTP/2 without TLS.
const IN_HTTP2_TOO: &[&str] = &["django-hypercorn", "flask-hypercorn", "servemux", "chi"];

const LAST_LINES: usize = 20;

/// A Java virtual machine starts slowly on a busy machine.
const START: Duration = Duration::from_secs(90);

impl Services {
    /// Starts all services whose runtime exists here, and waits until each answers.
    ///
    /// # Errors
    /// If one does not start; the error has the end of its output.
    pub fn start() -> Result<Self, Failure> {
        let folder =
            TempDir::with_prefix("credence-oracles-").map_err(Failure::of("making a folder for the services"))?;
        guardian::own(folder.path())?;
        let mut processes = Vec::new();
        let mut started = Vec::new();
        let mut left_out = Vec::new();
        for (runtime, names) in RUNTIMES {
            let Some(home) = prepare(runtime)? else {
                left_out.extend(names.iter().map(|name| (*name).to_owned()));
                continue;
            };
            for name in *names {
                let port = ports::free()?;
                for mut command in commands(name, &home, port, folder.path())? {
                    let log = folder.path().join(format!("{name}.log"));
                    processes.push(Process::start(name, command.env("ORACLE", name), &log)?);
                }
                started.push(((*name).to_owned(), SocketAddr::from((Ipv4Addr::LOCALHOST, port))));
            }
        }
        let mut versions = BTreeMap::new();
        let mut reached = Vec::new();
        for (name, address) in started {
            let version = waiting::until_at_most(START, format_args!("the service {name}"), || {
                for process in &mut processes {
                    process.check_running()?;
                }
                Ok(version(address))
            })?;
            versions.insert(name.clone(), version);
            if IN_HTTP2_TOO.contains(&name.as_str()) {
                reached.push(Reached {
                    cluster: format!("{name}-h2"),
                    address,
                    http2: true,
                });
            }
            reached.push(Reached {
                cluster: name,
                address,
                http2: false,
            });
        }
        Ok(Self {
            reached,
            versions,
            left_out,
            _processes: processes,
            folder,
        })
    }

    /// The end of a service's output.
    pub(crate) fn last_words(&self, reached: &Reached) -> String {
        let log = self.folder.path().join(format!("{}.log", reached.name()));
        let text = std::fs::read(log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let last = lines.len().saturating_sub(LAST_LINES);
        lines.get(last..).unwrap_or_default().join("\n")
    }
}

impl Reached {
    /// The service's name: the cluster's, without the protocol.
    fn name(&self) -> &str {
        self.cluster.trim_end_matches("-h2")
    }
}

fn version(address: SocketAddr) -> Option<String> {
    let reply = Client::connect(address).ok()?.send(&Request::get("/public")).ok()?;
    Reading::of(&reply).map(|reading| reading.version)
}

/// The folder of the prepared runtime; `None` if its toolchain is missing here.
fn prepare(runtime: &str) -> Result<Option<PathBuf>, Failure> {
    let attempt = || format!("scripts/setup-interop.sh {runtime}");
    let output = Command::new(repository().join("scripts/setup-interop.sh"))
        .arg(runtime)
        .stderr(Stdio::inherit())
        .output()
        .map_err(Failure::of(attempt()))?;
    if !output.status.success() {
        return Err(Failure::new(format!("{} failed ({})", attempt(), output.status)));
    }
    // Maven writes to standard output too.
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = said.lines().last().unwrap_or_default();
    Ok(line
        .split_once(&format!("ready {runtime} "))
        .map(|(_, home)| home.into()))
}

/// The commands that run the service on this port. All are single processes or end with their parent.
fn commands(name: &str, home: &Path, port: u16, folder: &Path) -> Result<Vec<Command>, Failure> {
    let sources = repository().join("interop/oracles");
    let port = port.to_string();
    let address = format!("127.0.0.1:{port}");
    let mut commands = Vec::new();
    match name {
        "php" => {
            let mut php = Command::new("php");
            php.arg("-S").arg(&address).arg(sources.join("php/index.php"));
            commands.push(php);
        }
        "lighttpd-php" => {
            let fastcgi = ports::free()?.to_string();
            let mut php = Command::new("php-cgi");
            // No limit: by default it ends after 500 requests.
            php.args(["-b", &format!("127.0.0.1:{fastcgi}")])
                .env("PHP_FCGI_MAX_REQUESTS", "0");
            let mut lighttpd = lighttpd(&sources, "php.conf", &port);
            lighttpd.env("FASTCGI_PORT", fastcgi);
            commands.extend([php, lighttpd]);
        }
        "lighttpd-cgi" => commands.push(lighttpd(&sources, "cgi.conf", &port)),
        "express4" | "express5" => {
            let mut node = Command::new("node");
            node.arg(home.join("service.js")).args([name, &port]);
            commands.push(node);
        }
        "spring5" | "spring6" => {
            let home = home.join(name).display().to_string();
            let scratch = folder.join(name);
            std::fs::create_dir(&scratch).map_err(Failure::of("making a folder for Tomcat"))?;
            let mut java = Command::new("java");
            java.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m", "-cp"])
                .arg(format!("{home}/classes:{home}/dependency/*"))
                .arg("oracle.Service")
                .arg(&port)
                .arg(scratch);
            commands.push(java);
        }
        "servemux" | "chi" => {
            let mut go = Command::new(home.join("oracles"));
            go.args([name, &port]);
            commands.push(go);
        }
        _ => {
            let (framework, server) = name
                .split_once('-')
                .ok_or_else(|| Failure::new(format!("no service is called {name}")))?;
            let mut python = Command::new(home.join("bin/python"));
            // -B: leave no compiled files in the sources' folder.
            python
                .args(["-B", "-m", server])
                .current_dir(sources.join("python"))
                .env("PYTHONPATH", ".");
            match server {
                "uvicorn" => python.args(["--port", &port, "--log-level", "warning"]),
                // In this process, without a worker of its own.
                "hypercorn" => python.args(["--workers", "0", "--bind", &address]),
                _ => python.args(["--workers", "1", "--threads", "4", "--bind", &address]),
            };
            if name == "flask-gunicorn" {
                // As in deployments whose proxies send names with `_`.
                python.args(["--header-map", "dangerous"]);
            }
            python.arg(match name {
                // With hypercorn's own wrapper. Behind asgiref's single thread, a stream that Envoy resets blocks all
                // others.
                "flask-hypercorn" => "wsgi:flask_service:wsgi".to_owned(),
                _ if server == "gunicorn" => format!("{framework}_service:wsgi"),
                _ => format!("{framework}_service:application"),
            });
            commands.push(python);
        }
    }
    Ok(commands)
}

fn lighttpd(sources: &Path, file: &str, port: &str) -> Command {
    let folder = sources.join("php");
    let mut lighttpd = Command::new("lighttpd");
    lighttpd
        .args(["-D", "-f"])
        .arg(folder.join(file))
        .env("PORT", port)
        .env("FOLDER", folder);
    lighttpd
}

/// PHP does not accept a path with `..`.
fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}
