//! The issuer with the real control plane: crashes, outages, restored copies, keys and settings. People use plain forms;
//! interop/oauth has the tests with browsers and other clients.

mod alone;
mod crashes;
mod keys;
mod outages;
mod restores;
mod settings;

use std::sync::atomic::{AtomicU32, Ordering};

use credence_e2e::artefacts::Artefacts;
use credence_e2e::audit::Record;
use credence_e2e::browser::{Browser, Page};
use credence_e2e::command::Credence;
use credence_e2e::control_plane::ControlPlane;
use credence_e2e::forge::{self, Forger};
use credence_e2e::issuer::{Issuer, Listed};
use credence_e2e::oauth_client::{Asked, OauthClient, Tokens};
use credence_e2e::{Client, Failure, Request, waiting};
use serde::Deserialize;
use tempfile::TempDir;

/// An issuer beside a control plane.
struct Scene {
    issuer: Issuer,
    control_plane: ControlPlane,
    credence: Credence,
    // Last: files are removed once no process uses them.
    folder: TempDir,
}

/// What the ledger has of a grant.
#[derive(Debug)]
struct Event {
    /// `granted`, or why it ended.
    reason: String,
    /// The item of the catalogue that was granted.
    item: String,
    /// The tokens that could still be used.
    ids: Vec<String>,
}

impl Scene {
    fn start() -> Self {
        let program = Artefacts::from_environment().unwrap().credence;
        let folder = tempfile::tempdir().unwrap();
        let mut issuer = Issuer::prepare(&program).unwrap();
        let control_plane = ControlPlane::start(&program, folder.path(), &issuer.serve_options()).unwrap();
        issuer
            .serve(&control_plane, "limits: {requests_per_second: 10000}")
            .unwrap();
        Self {
            issuer,
            control_plane,
            credence: Credence::new(&program, folder.path()),
            folder,
        }
    }

    fn agent(&self) -> OauthClient {
        self.issuer.client(key()).unwrap()
    }

    /// The person lets the agent read this item.
    fn granted(&self, browser: &mut Browser, item: &str) -> Granted {
        let mut agent = self.agent();
        let asked = agent.ask(&reading(item), 0).unwrap();
        let page = browser.open(&asked.page).unwrap();
        let code = allow(browser, &page).unwrap();
        Granted { agent, asked, code }
    }

    /// The person takes back the grant of this item. Returns what the page says.
    fn withdrawn(&self, browser: &mut Browser, item: &str) -> String {
        let listed = self.issuer.grants(browser).unwrap();
        let grant = find(&listed, item).unwrap();
        let page = browser.submit(grant.withdraw.as_ref().unwrap(), &[]).unwrap();
        let notice = page.lines().into_iter().find(|line| line.starts_with("Taken back."));
        notice.unwrap_or_else(|| panic!("{}", page.html))
    }

    /// Waits until the ledger has every event so far: they arrive in order.
    fn wait_until_reported(&self) {
        static MARKS: AtomicU32 = AtomicU32::new(0);
        let mark = format!("mark-{}", MARKS.fetch_add(1, Ordering::Relaxed));
        self.granted(&mut self.issuer.browser("mark"), &mark);
        let is_there = || Ok(self.events().iter().any(|event| event.item == mark).then_some(()));
        waiting::until("the ledger to have every event", is_there).unwrap();
    }

    /// The events of the issuer in the ledger.
    fn events(&self) -> Vec<Event> {
        #[derive(Deserialize)]
        struct Arguments {
            tools: Reading,
        }
        #[derive(Deserialize)]
        struct Reading {
            #[serde(rename = "catalog.read")]
            constraints: Constraints,
        }
        #[derive(Deserialize)]
        struct Constraints {
            item: Exact,
        }
        #[derive(Deserialize)]
        struct Exact {
            value: String,
        }
        let access = self.control_plane.place();
        let token = self.control_plane.token_file().display().to_string();
        let query = [
            "audit",
            "query",
            "--json",
            "--limit",
            "1000000",
            "--kind",
            "decision",
            "--token-file",
            &token,
        ];
        let printed = self
            .credence
            .run(query.into_iter().chain(access.iter().map(String::as_str)));
        let records = printed.unwrap();
        let records = records
            .lines()
            .map(|line| serde_json::from_str::<Record>(line).unwrap());
        let decisions = records.filter_map(|record| record.decision().cloned());
        decisions
            .map(|decision| {
                let arguments: Arguments = serde_json::from_str(&decision.arguments).unwrap();
                Event {
                    reason: decision.reason,
                    item: arguments.tools.constraints.item.value,
                    ids: decision.delegation_ids,
                }
            })
            .collect()
    }

    /// The reasons of the events about this item, in alphabetical order.
    fn reasons(&self, item: &str) -> Vec<String> {
        let mut reasons: Vec<String> = self
            .events()
            .into_iter()
            .filter_map(|event| (event.item == item).then_some(event.reason))
            .collect();
        reasons.sort_unstable();
        reasons
    }

    /// Asks the control plane about tokens.
    fn status(&self) -> Status {
        let token = std::fs::read_to_string(self.control_plane.token_file()).unwrap();
        Status {
            issuer: self.issuer.url(),
            authorization: format!("Bearer {}", token.trim()),
            connection: Client::connect(self.control_plane.http()).unwrap(),
        }
    }
}

/// A kept connection to the control plane.
struct Status {
    issuer: String,
    authorization: String,
    connection: Client,
}

impl Status {
    /// Whether the token of this id is revoked.
    fn is_revoked(&mut self, person: &str, id: &str) -> Result<bool, Failure> {
        #[derive(Deserialize)]
        struct Answer {
            status: String,
        }
        let (issuer, now, key) = (&self.issuer, forge::now(), key().thumbprint_uri());
        let key = key.rsplit(':').next().unwrap_or_default();
        let facts = format!("issuer={issuer}&subject={person}&epoch=0&issued_at={now}&id={id}&key={key}");
        let request = Request::get(&format!("/v1/delegations/status?{facts}"));
        let reply = self
            .connection
            .send(&request.header("authorization", &self.authorization))?;
        let answer = serde_json::from_slice::<Answer>(&reply.body).map_err(Failure::of(reply.text()))?;
        Ok(answer.status == "revoked")
    }
}

/// A code, and what redeems it.
struct Granted {
    agent: OauthClient,
    asked: Asked,
    code: String,
}

impl Granted {
    fn redeem(&mut self) -> Tokens {
        self.agent.redeem(&self.asked, &self.code).unwrap().unwrap()
    }
}

/// Ticks the one tool on a consent page, and allows it. Returns the code.
fn allow(browser: &mut Browser, page: &Page) -> Result<String, Failure> {
    let back = browser.submit(&page.form("/consent")?, &[("t0", "on"), ("decision", "allow")])?;
    let missing = || Failure::new(format!("no code at {} ({:?}): {}", back.url, back.status, back.html));
    back.returned("code").ok_or_else(missing)
}

/// The grant of this item on a person's page.
fn find<'l>(listed: &'l [Listed], item: &str) -> Option<&'l Listed> {
    let words = format!("the item is exactly &#34;{item}&#34;<");
    listed.iter().find(|grant| grant.html.contains(&words))
}

/// To read this item only.
fn reading(item: &str) -> String {
    format!(r#"{{"catalog.read":{{"item":{{"constraint_type":"exact","value":"{item}"}}}}}}"#)
}

/// The agent's.
fn key() -> Forger {
    Forger::from_seed([5; 32])
}
