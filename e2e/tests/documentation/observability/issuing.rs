//! The metrics of an issuer at which a person has signed in, and was refused by policy. The identity provider is that of
//! docs/start/issuer.md.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use credence_e2e::control_plane::ControlPlane;
use credence_e2e::process::Process;
use credence_e2e::{Client, Failure, Request, ports, waiting};

use crate::page::Page;

pub(super) fn metrics(folder: &Path, credence: &Path, control_plane: &ControlPlane) -> Result<String, Failure> {
    let [login, own, admin] = [ports::free()?, ports::free()?, ports::free()?];
    let at = |port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let file = |name: &str, text: &str| {
        fs::write(folder.join(name), text).map_err(Failure::of("writing a file"))?;
        Ok(folder.join(name).display().to_string())
    };
    let provider = stand_in().replace("9100", &login.to_string());
    let program = file("login.py", &provider)?;
    let mut command = Command::new("python3");
    let _login = Process::start(
        "login",
        command.arg(program).current_dir(folder),
        &folder.join("login.log"),
    )?;
    wait_for(at(login), "/keys")?;

    let settings = format!(
        "url: http://127.0.0.1:{own}
identity_provider: {{issuer: 'http://127.0.0.1:{login}', client_id: credence}}
control_plane: {{url: '{}', token_file: {}}}
keys_passphrase_file: {}
clients: [{{id: planner, name: Planner, redirect_uris: ['http://127.0.0.1/callback']}}]
scopes: {{pay: {{pay: {{}}}}}}
policy: [{{name: read, tools: {{read: {{}}}}, audience: ['https://payments.example']}}]
",
        control_plane.url(),
        control_plane.token_file().display(),
        file("passphrase", "correct horse battery staple\n")?,
    );
    let settings = file("issuer.yaml", &settings)?;
    let data = folder.join("issuer").display().to_string();
    let place = ["--config", &settings, "--data", &data];
    let created = Command::new(credence)
        .args(["issuer", "keys", "create"])
        .args(place)
        .status();
    assert!(created.map_err(Failure::of("making keys"))?.success());
    let mut serve = Command::new(credence);
    serve.args(["issuer", "serve"]).args(place);
    serve.args(["--listen", &at(own).to_string(), "--admin", &at(admin).to_string()]);
    let _issuer = Process::start("the issuer", &mut serve, &folder.join("issuer.log"))?;
    wait_for(at(own), "/healthz")?;

    // To the provider, back, and with the session to what no rule allows.
    let mut issuer = Client::connect(at(own))?;
    let mut browse = |cookie: &str, path: &str| {
        let reply = issuer.send(&Request::get(path).header("cookie", cookie))?;
        let header = |name: &str| reply.header(name).unwrap_or_default().to_owned();
        let set = header("set-cookie").split(';').next().unwrap_or_default().to_owned();
        Ok::<_, Failure>((header("location"), set))
    };
    let (to_provider, left) = browse("", "/")?;
    let reply = Client::connect(at(login))?.send(&Request::get(&path_of(&to_provider)))?;
    let (_, session) = browse(&left, &path_of(reply.header("location").unwrap_or_default()))?;
    let asked = "/authorize?client_id=planner&response_type=code&scope=pay&code_challenge_method=S256&code_challenge=";
    let (answered, _) = browse(&session, &format!("{asked}{}", "a".repeat(43)))?;
    assert!(answered.contains("error=access_denied"), "{answered}");
    let metrics = Client::connect(at(admin))?.send(&Request::get("/metrics"))?;
    Ok(metrics.text())
}

/// The program of the page.
fn stand_in() -> String {
    let page = Page::read("docs/start/issuer.md");
    let (_, program) = page.text.split_once("<<'PYTHON'\n").unwrap();
    program.split_once("\nPYTHON\n").unwrap().0.to_owned()
}

fn path_of(url: &str) -> String {
    let (_, rest) = url.split_once("://").unwrap_or(("", url));
    rest.find('/').map_or_else(String::new, |path| rest[path..].to_owned())
}

fn wait_for(address: SocketAddr, path: &str) -> Result<(), Failure> {
    waiting::until(format_args!("{address}{path}"), || {
        let answered = Client::connect(address).and_then(|mut client| client.send(&Request::get(path)));
        Ok(answered.ok().filter(|reply| reply.status == 200).map(drop))
    })
}
