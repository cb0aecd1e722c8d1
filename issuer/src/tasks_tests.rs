//! Evidence on its way to a ledger that refuses, answers late, or was replaced: a stand-in, since no event of the issuer is
//! refused by the real one.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Mutex, PoisonError};

use credence_runtime::metrics::Counters;
use credence_storage::folder_lock::FolderLock;

use super::*;
use crate::events::{Event, Kind};
use crate::settings::ControlPlaneSettings;

/// A ledger with one source. It refuses batches with an event of the client `bad`, and loses answers when it is told.
#[derive(Debug, Default)]
struct Ledger {
    source: u64,
    clients: Vec<String>,
    loses_answers: bool,
}

struct Scene {
    _folder: tempfile::TempDir,
    _lock: FolderLock,
    store: Store,
    plane: Plane,
    ledger: Arc<Mutex<Ledger>>,
    refused: Counter,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let lock = FolderLock::take(folder.path(), None).unwrap();
        let store = Store::open(folder.path(), lock.watch(&[]).unwrap(), events::prepare).unwrap();
        let token_file = folder.path().join("token");
        std::fs::write(&token_file, "token").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let served = Arc::clone(&ledger);
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                serve(connection.unwrap(), &served);
            }
        });
        let settings = ControlPlaneSettings {
            url,
            token_file,
            ca: None,
        };
        Self {
            _folder: folder,
            _lock: lock,
            store,
            plane: Plane::new(&settings).unwrap(),
            ledger,
            refused: Counter::default(),
        }
    }

    async fn note(&self, clients: &[&str]) {
        for client in clients {
            let event = Event::about(Kind::Refused, ("https://issuer.example", "ada"), client, None);
            events::record(&self.store, event, &Counters::default()).await.unwrap();
        }
    }

    /// As the task does, until nothing is left to do or something fails.
    async fn report(&self) -> Result<(), TaskError> {
        let mut at_most = MAX_TOGETHER;
        while let Some(next) = report_some(
            &self.store,
            &self.plane,
            "https://issuer.example",
            at_most,
            &self.refused,
        )
        .await?
        {
            at_most = next;
        }
        Ok(())
    }

    fn ledger(&self) -> std::sync::MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> u64 {
        events::waiting(&self.store).unwrap()
    }
}

fn serve(mut connection: TcpStream, ledger: &Mutex<Ledger>) {
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    let (mut head, mut length) = (String::new(), 0);
    while reader.read_line(&mut head).unwrap() > 2 {
        let line = head.lines().last().unwrap().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body = String::from_utf8(body).unwrap();
    let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
    let path = head.split(' ').nth(1).unwrap();
    let own = format!("/v1/audit/sources/{}", ledger.source);
    let clients = |body: &str| -> Vec<String> {
        let parts = body.split(r#""client":""#).skip(1);
        parts.map(|part| part.split('"').next().unwrap().to_owned()).collect()
    };
    let mut status = "200 OK";
    if path == "/v1/audit/sources" {
        *ledger = Ledger {
            source: ledger.source + 1,
            ..Ledger::default()
        };
    } else if !path.starts_with(&own) {
        status = "404 Not Found";
    } else if path.ends_with("/batches") {
        let first = format!(r#"{{"first_sequence":{},"#, ledger.clients.len() + 1);
        assert!(body.starts_with(&first), "{body}, and not {first}");
        if clients(&body).iter().any(|client| client == "bad") {
            status = "400 Bad Request";
        } else {
            ledger.clients.extend(clients(&body));
            if std::mem::take(&mut ledger.loses_answers) {
                return;
            }
        }
    }
    let answer = format!(
        r#"{{"ticket":"{}","acknowledged":{},"detail":"no"}}"#,
        ledger.source,
        ledger.clients.len()
    );
    let length = answer.len();
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{answer}");
    connection.write_all(answer.as_bytes()).unwrap();
}

#[tokio::test]
async fn an_event_that_the_ledger_refuses_holds_up_no_other() {
    let scene = Scene::new();
    scene.note(&["a", "b", "bad", "c", "bad", "d"]).await;
    scene.report().await.unwrap();
    assert_eq!(scene.ledger().clients, ["a", "b", "c", "d"]);
    assert_eq!((scene.waiting(), scene.refused.get()), (0, 2));
    scene.note(&["e"]).await;
    scene.report().await.unwrap();
    assert_eq!(scene.ledger().clients, ["a", "b", "c", "d", "e"]);
}

#[tokio::test]
async fn an_answer_that_was_lost_doubles_no_event() {
    let scene = Scene::new();
    scene.note(&["a", "b"]).await;
    scene.report().await.unwrap();
    scene.note(&["c", "d"]).await;
    scene.ledger().loses_answers = true;
    scene.report().await.unwrap_err();
    assert_eq!(scene.waiting(), 2);
    // An event that is refused comes behind those that were sent.
    scene.note(&["bad", "e"]).await;
    scene.report().await.unwrap();
    assert_eq!(scene.ledger().clients, ["a", "b", "c", "d", "e"]);
    assert_eq!((scene.waiting(), scene.refused.get()), (0, 1));
}

#[tokio::test]
async fn a_ledger_that_was_replaced_gets_a_new_source() {
    let scene = Scene::new();
    scene.note(&["a"]).await;
    scene.report().await.unwrap();
    for source in [7, 1] {
        // Another ledger; then one that has more of the source than was sent to it.
        *scene.ledger() = Ledger {
            source,
            clients: vec!["x".to_owned(); 9],
            loses_answers: false,
        };
        scene.note(&["b"]).await;
        scene.report().await.unwrap();
        assert_eq!(scene.ledger().clients, ["b"], "{source}");
    }
}
