//! Services and issuers that answer badly: too much, too slowly, without an end.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use credence_e2e::agent_proxy::AgentProxy;
use credence_e2e::process::resident_mib;
use credence_e2e::{AUDIENCE, Client, ISSUER, Request, Stack, waiting};

use super::{charge, delegation, stack};

#[test]
fn a_nonce_that_is_too_long_is_not_used() {
    let stack = stack();
    let long = "n".repeat(5_000);
    let service = Server::start(move |heard, stream| {
        let nonce = if heard.number < 2 { &long } else { "short" };
        let headers = format!("delegation-nonce: {nonce}\r\ncontent-length: 0");
        write!(stream, "HTTP/1.1 401 Unauthorized\r\n{headers}\r\n\r\n").unwrap_or_default();
    });
    let proxy = service.behind_a_proxy(stack, &stack.agent_rules().unwrap(), "");
    for _ in 0..3 {
        let reply = proxy.send(Request::post("/v1/fresh/acme?amount=5")).unwrap();
        // The service's own answer each time.
        let by = reply.header("x-answered-by");
        assert_eq!((reply.status, by), (401, None), "{}", reply.text());
    }
    // Only the short one is worth a second attempt.
    assert_eq!(service.requests.load(Ordering::Relaxed), 4);
}

#[test]
fn an_error_that_does_not_end_is_cut_off() {
    let stack = stack();
    let service = Server::start(|_, stream| {
        let headers = "content-type: application/json\r\ncontent-length: 60000";
        write!(stream, "HTTP/1.1 403 Forbidden\r\n{headers}\r\n\r\n{{").unwrap_or_default();
        thread::sleep(PATIENCE);
    });
    let rules = rules(r#""mcp":{"versions":["2025-11-25"],"methods":{"tools/list":{"open":true}}}"#);
    let proxy = service.behind_a_proxy(stack, &rules, "limits: {answer_s: 1, stream_s: 2}\n");
    let list = Request::new("POST", "/mcp")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2025-11-25")
        .json(list(7));
    let began = Instant::now();
    let reply = proxy.send(list).unwrap();
    assert_eq!((reply.status, reply.reason()), (403, None), "{}", reply.text());
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
}

#[test]
fn a_notification_without_an_answer_does_not_stop_the_next_request() {
    let service = Server::start(|heard, stream| {
        if heard.body.contains("notifications/") {
            write!(stream, "HTTP/1.1 400 Bad Request\r\ncontent-length: 100\r\n\r\nx").unwrap_or_default();
            thread::sleep(PATIENCE);
        }
        answer(stream, "200 OK", r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    });
    let mut client = StdioClient::start(&service);
    client.say(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{}}"#);
    client.say(&list(1));
    let began = Instant::now();
    assert_eq!(client.hear(), r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
}

#[test]
fn answers_that_do_not_end_do_not_fill_the_memory() {
    let service = Server::start(|heard, stream| {
        let (kind, begin) = match heard.number % 2 {
            0 => ("text/event-stream", "data: "),
            _ => ("application/json", "{"),
        };
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n\r\n{begin}").unwrap_or_default();
        let part = [b' '; 64 << 10];
        for _ in 0..112 {
            if stream.write_all(&part).is_err() {
                return;
            }
        }
        thread::sleep(PATIENCE);
    });
    let mut client = StdioClient::start(&service);
    for id in 0..128 {
        client.say(&list(id));
    }
    waiting::until("the requests to arrive", || {
        let number = service.requests.load(Ordering::Relaxed);
        Ok((number == 128).then_some(()))
    })
    .unwrap();
    // Without a bound, it would read all 896 MiB.
    for _ in 0..20 {
        let resident = resident_mib(client.process.id()).unwrap();
        assert!(resident < 250.0, "{resident} MiB");
        thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn an_issuer_cannot_write_lines_of_the_log() {
    let issuer = Server::start(|heard, stream| {
        if heard.head.starts_with("GET ") {
            return answer(stream, "200 OK", &metadata(stream));
        }
        let refusal = r#"{"error":"invalid_request","error_description":"no\nINFO a forged line \u001b[2J"}"#;
        answer(stream, "400 Bad Request", refusal);
    });
    let (proxy, page) = asking(&issuer);
    let reply = Client::connect(page).unwrap().send(&begin(page)).unwrap();
    assert_eq!(reply.status, 502);
    let log = waiting::until("the refusal to be logged", || {
        let log = proxy.output();
        Ok(log.contains("a forged line").then_some(log))
    })
    .unwrap();
    assert!(
        !log.contains("\nINFO a forged line") && !log.contains('\u{1b}'),
        "{log}"
    );
}

#[test]
fn another_issuer_does_not_get_the_kept_grant() {
    let bodies = Arc::new(Mutex::new(String::new()));
    let noted = Arc::clone(&bodies);
    let issuer = Server::start(move |heard, stream| {
        *noted.lock().unwrap() += &heard.body;
        answer(stream, "200 OK", &metadata(stream));
    });
    let stack = stack();
    let mut proxy = AgentProxy::prepare(stack).unwrap();
    proxy.write("grant", "https://earlier.example secret-token").unwrap();
    let state = format!("      state: \"{}\"", proxy.file("grant").display());
    let settings = proxy.settings_with_issuer(stack, &issuer.origin(), &state).unwrap();
    proxy.serve(&settings).unwrap();
    // It asks a person instead.
    proxy.consent_page(&charge("5")).unwrap();
    // And the same grant, if it were this issuer's, would be used.
    proxy
        .write("grant", &format!("{} other-token", issuer.origin()))
        .unwrap();
    proxy.restart().unwrap();
    waiting::until("the grant to be used", || {
        let log = proxy.output();
        Ok(log.contains("the issuer gives no new token yet").then_some(()))
    })
    .unwrap();
    let bodies = bodies.lock().unwrap();
    assert!(
        bodies.contains("other-token") && !bodies.contains("secret-token"),
        "{bodies}"
    );
}

#[test]
fn another_user_cannot_keep_a_person_from_the_page_of_consent() {
    if !super::attacks::is_root() {
        return;
    }
    let issuer = Server::start(|_, stream| answer(stream, "200 OK", &metadata(stream)));
    let (proxy, page) = asking(&issuer);
    let hold = |_| {
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid=65534",
            "--clear-groups",
            "curl",
            "--silent",
            "--max-time",
            "20",
        ]);
        command.arg(format!("telnet://{page}"));
        command.stdin(Stdio::piped()).spawn().unwrap()
    };
    let mut strangers: Vec<Child> = (0..12).map(hold).collect();
    waiting::until("the strangers to be refused", || {
        let is_refused = proxy.output().contains("another user opened the page of consent");
        Ok(is_refused.then_some(()))
    })
    .unwrap();
    let reply = Client::connect(page).unwrap().send(&begin(page)).unwrap();
    // The issuer of this test has only metadata.
    assert_eq!(reply.status, 502, "{}", reply.text());
    for stranger in &mut strangers {
        // At once: the proxy has closed the connection.
        assert!(stranger.wait().is_ok());
    }
}

// === What they need ===

/// A request as a server hears it.
struct Heard {
    head: String,
    body: String,
    /// How many came before it.
    number: usize,
}

/// A server that answers as a test wants, and closes the connection after that.
struct Server {
    address: SocketAddr,
    requests: Arc<AtomicUsize>,
}

impl Server {
    fn start(answer: impl Fn(&Heard, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let (answer, counted) = (Arc::new(answer), Arc::clone(&requests));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, counted) = (Arc::clone(&answer), Arc::clone(&counted));
                thread::spawn(move || {
                    let mut reader = BufReader::new(stream.unwrap());
                    if let Some((head, body)) = read(&mut reader) {
                        let number = counted.fetch_add(1, Ordering::Relaxed);
                        answer(&Heard { head, body, number }, reader.get_mut());
                    }
                });
            }
        });
        Self { address, requests }
    }

    fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A proxy that has it as its service, with these rules and further settings.
    fn behind_a_proxy(&self, stack: &Stack, rules: &str, more: &str) -> AgentProxy {
        let mut proxy = AgentProxy::prepare(stack).unwrap();
        let settings = self.settings(stack, &proxy, rules, r#"listen: "127.0.0.1:0""#);
        proxy.serve(&(settings + more)).unwrap();
        proxy
    }

    fn settings(&self, stack: &Stack, proxy: &AgentProxy, rules: &str, listen: &str) -> String {
        let client = format!(r#"{listen}, service: "{}""#, self.origin());
        let settings = proxy.settings_for(stack, &delegation(stack), &client).unwrap();
        let service = proxy.service(stack).unwrap();
        proxy.write("rules.json", rules).unwrap();
        settings.replace(&service, &service.replace(&stack.origin(), &self.origin()))
    }
}

/// Head and body of a request.
fn read(reader: &mut BufReader<TcpStream>) -> Option<(String, String)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body).ok()?;
    Some((head, String::from_utf8(body).unwrap()))
}

fn answer(stream: &mut TcpStream, status: &str, body: &str) {
    let headers = format!("content-type: application/json\r\ncontent-length: {}", body.len());
    write!(
        stream,
        "HTTP/1.1 {status}\r\n{headers}\r\nconnection: close\r\n\r\n{body}"
    )
    .unwrap_or_default();
}

/// A client of `credence proxy --stdio`.
struct StdioClient {
    process: Child,
    answers: BufReader<ChildStdout>,
    /// The proxy's files.
    _files: AgentProxy,
}

impl StdioClient {
    /// The client of an MCP server whose rules ask for nothing.
    fn start(server: &Server) -> Self {
        let stack = stack();
        let files = AgentProxy::prepare(stack).unwrap();
        let settings = server.settings(stack, &files, &rules(r#""public":true"#), r#"listen: "127.0.0.1:0""#);
        files.write("proxy.yaml", &settings).unwrap();
        let mut command = Command::new(stack.credence.program());
        command.args(["proxy", "--stdio", &format!("{}/mcp", server.origin()), "--config"]);
        command.arg(files.file("proxy.yaml"));
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = piped.spawn().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Self {
            process,
            answers,
            _files: files,
        }
    }

    fn say(&mut self, line: &str) {
        let input = self.process.stdin.as_mut().unwrap();
        writeln!(input, "{line}").unwrap();
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for StdioClient {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A proxy that asks for consent at this issuer, and where its page is.
fn asking(issuer: &Server) -> (AgentProxy, SocketAddr) {
    let stack = stack();
    let mut proxy = AgentProxy::prepare(stack).unwrap();
    let settings = proxy.settings_with_issuer(stack, &issuer.origin(), "").unwrap();
    proxy.serve(&settings).unwrap();
    let page = proxy.consent_page(&charge("5")).unwrap();
    let page = page.trim_start_matches("http://").trim_end_matches('/').parse();
    (proxy, page.unwrap())
}

fn begin(page: SocketAddr) -> Request {
    Request::get("/").without("host").header("host", page.to_string())
}

/// An issuer's metadata (RFC 8414), at the server of this connection.
fn metadata(stream: &TcpStream) -> String {
    let url = format!("http://{}", stream.local_addr().unwrap());
    format!(
        r#"{{"issuer":"{url}","authorization_endpoint":"{url}/a","token_endpoint":"{url}/t","pushed_authorization_request_endpoint":"{url}/p"}}"#
    )
}

/// Rules with one for `/mcp`.
fn rules(rule: &str) -> String {
    format!(
        r#"{{"credence_agent_rules":1,"issuers":["{ISSUER}"],"audience":["{AUDIENCE}"],"rules":[{{"name":"mcp","match":{{"path":"/mcp"}},{rule}}}]}}"#
    )
}

fn list(id: u32) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list","params":{{}}}}"#)
}

/// Longer than any limit of these tests.
const PATIENCE: Duration = Duration::from_secs(60);
