//! An issuer that is killed (`kill -9`) again and again while people grant, and take back.
//!
//! What was acknowledged stays; what was not may have happened, but whole: a grant is listed and in the ledger, or
//! neither. Nothing is given out twice.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use credence_e2e::browser::Browser;
use credence_e2e::issuer::Listed;
use credence_e2e::oauth_client::{Asked, OauthClient, Refused, Tokens};
use credence_e2e::random::Random;
use credence_e2e::{Failure, waiting};

use crate::{Event, Scene, allow, find, reading};

#[test]
fn kills_lose_no_acknowledged_grant_and_grant_nothing_twice() {
    kills(30);
}

#[test]
#[ignore = "long: make soak runs it"]
fn a_thousand_kills_lose_no_acknowledged_grant_and_grant_nothing_twice() {
    kills(1_000);
}

/// `CREDENCE_SEED` repeats the random choices of a run; `CREDENCE_KILLS` sets another number of kills.
fn kills(usual: u64) {
    let from_environment = |name| env::var(name).ok().and_then(|value| value.parse().ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = from_environment("CREDENCE_SEED").unwrap_or(now.subsec_nanos().into());
    let count = from_environment("CREDENCE_KILLS").unwrap_or(usual);
    eprintln!("CREDENCE_SEED={seed} CREDENCE_KILLS={count}");
    let mut random = Random::new(seed, 0);
    let mut scene = Scene::start();
    let (mut grants, mut interrupted_at) = (Vec::new(), BTreeMap::new());
    let mut round = 0;
    // On a busy machine, longer rounds follow until enough was done.
    while round < count || (round < 8 * count && !are_enough(&grants)) {
        let people: Vec<Person> = (0..PEOPLE)
            .map(|nth| {
                Person::new(
                    &scene,
                    &format!("p{round}-{nth}"),
                    Random::new(seed, 1 + round * PEOPLE + nth),
                )
            })
            .collect();
        let lasts = Duration::from_millis(random.below(LONGEST_ROUND_MS) as u64 * (1 + round / count));
        let is_killed = AtomicBool::new(false);
        let mut interrupted = thread::scope(|scope| {
            let running: Vec<_> = (people.into_iter())
                .map(|person| scope.spawn(|| person.grant_until_a_kill(&is_killed)))
                .collect();
            // At any moment: no event marks it.
            thread::sleep(lasts);
            is_killed.store(true, Ordering::SeqCst);
            scene.issuer.kill().unwrap();
            running
                .into_iter()
                .flat_map(|person| person.join().unwrap())
                .collect::<Vec<_>>()
        });
        if random.once_in(4) {
            // Again, while it starts.
            scene.issuer.restart_and_not_wait().unwrap();
            thread::sleep(Duration::from_millis(random.below(LONGEST_START_MS) as u64));
            scene.issuer.kill().unwrap();
        }
        scene.issuer.restart().unwrap();
        for grant in &mut interrupted {
            if let Some(step) = grant.unanswered {
                *interrupted_at.entry(step).or_insert(0) += 1;
            }
            grant.go_on(&mut scene.agent());
        }
        grants.append(&mut interrupted);
        round += 1;
    }
    eprintln!("{} grants, interrupted at {interrupted_at:?}", grants.len());
    check(&scene, &grants);
}

const PEOPLE: u64 = 4;
const LONGEST_ROUND_MS: usize = 300;
const LONGEST_START_MS: usize = 100;

/// A person, with a browser, and an agent that asks them.
struct Person {
    name: String,
    issuer: String,
    browser: Browser,
    agent: OauthClient,
    random: Random,
}

/// What is known about a grant.
struct Grant {
    person: String,
    /// No other grant has it.
    item: String,
    asked: Asked,
    code: Option<String>,
    /// The tokens that were received.
    tokens: Vec<Tokens>,
    /// The reason of the event, if an end was acknowledged.
    ended: Option<&'static str>,
    /// What was sent last, if it was not answered.
    unanswered: Option<Step>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Consent,
    Redemption,
    Reuse,
    Refresh,
    Withdrawal,
}

impl Person {
    fn new(scene: &Scene, name: &str, random: Random) -> Self {
        Self {
            name: name.to_owned(),
            issuer: scene.issuer.url(),
            browser: scene.issuer.browser(name),
            agent: scene.agent(),
            random,
        }
    }

    fn grant_until_a_kill(mut self, is_killed: &AtomicBool) -> Vec<Grant> {
        let mut grants = Vec::new();
        let failure = loop {
            if let Err(failure) = self.grant(&mut grants) {
                break failure;
            }
        };
        assert!(is_killed.load(Ordering::SeqCst), "{failure}");
        grants
    }

    /// One more grant, and some of what can follow.
    fn grant(&mut self, grants: &mut Vec<Grant>) -> Result<(), Failure> {
        let item = format!("{}-{}", self.name, grants.len());
        let asked = self.agent.ask(&reading(&item), 0)?;
        let page = self.browser.open(&asked.page)?;
        grants.push(Grant {
            person: self.name.clone(),
            item,
            asked,
            code: None,
            tokens: Vec::new(),
            ended: None,
            unanswered: Some(Step::Consent),
        });
        let grant = grants.last_mut().unwrap();
        grant.code = Some(allow(&mut self.browser, &page)?);
        grant.unanswered = None;
        if self.random.once_in(3) {
            // Later: see `go_on`.
            return Ok(());
        }
        grant.redeem(&mut self.agent)?.unwrap();
        if self.random.once_in(4) {
            return grant.redeem_again(&mut self.agent);
        }
        grant.refresh(&mut self.agent)?;
        if self.random.once_in(2) {
            self.withdraw(grants.last_mut().unwrap())?;
        }
        Ok(())
    }

    fn withdraw(&mut self, grant: &mut Grant) -> Result<(), Failure> {
        let listed = Listed::on(&self.browser.open(&format!("{}/", self.issuer))?)?;
        let form = find(&listed, &grant.item)
            .and_then(|grant| grant.withdraw.clone())
            .unwrap();
        grant.unanswered = Some(Step::Withdrawal);
        let page = self.browser.submit(&form, &[])?;
        assert!(page.html.contains("Taken back."), "{}", page.html);
        grant.unanswered = None;
        grant.ended = Some("withdrawn_by_person");
        Ok(())
    }
}

impl Grant {
    fn redeem(&mut self, agent: &mut OauthClient) -> Result<Result<(), Refused>, Failure> {
        self.unanswered = Some(Step::Redemption);
        let answer = agent.redeem(&self.asked, self.code.as_deref().unwrap())?;
        self.unanswered = None;
        Ok(answer.map(|tokens| self.tokens.push(tokens)))
    }

    /// A code works once. Used again, it ends the grant.
    fn redeem_again(&mut self, agent: &mut OauthClient) -> Result<(), Failure> {
        self.unanswered = Some(Step::Reuse);
        let answer = agent.redeem(&self.asked, self.code.as_deref().unwrap())?;
        self.unanswered = None;
        assert_eq!(answer.unwrap_err().error, "invalid_grant");
        self.ended = Some("withdrawn_after_reuse");
        Ok(())
    }

    fn refresh(&mut self, agent: &mut OauthClient) -> Result<(), Failure> {
        self.unanswered = Some(Step::Refresh);
        let answer = agent.refresh(&self.tokens.last().unwrap().refresh_token)?;
        self.unanswered = None;
        self.tokens.push(answer.unwrap());
        Ok(())
    }

    /// The agent goes on after a crash.
    fn go_on(&mut self, agent: &mut OauthClient) {
        match self.unanswered {
            Some(Step::Consent | Step::Withdrawal) => {}
            // The answer was lost, or the request. If it was the answer, the code was used, and ends the grant.
            Some(Step::Redemption) => match self.redeem(agent).unwrap() {
                Ok(()) => self.redeem_again(agent).unwrap(),
                Err(refused) => {
                    assert_eq!(refused.error, "invalid_grant");
                    self.ended = Some("withdrawn_after_reuse");
                }
            },
            Some(Step::Reuse) => self.redeem_again(agent).unwrap(),
            // In both cases, the same refresh token is good.
            Some(Step::Refresh) => {
                self.refresh(agent).unwrap();
                self.refresh(agent).unwrap();
            }
            None if self.tokens.is_empty() => {
                self.redeem(agent).unwrap().unwrap();
                self.redeem_again(agent).unwrap();
            }
            None => {}
        }
    }
}

fn check(scene: &Scene, grants: &[Grant]) {
    scene.wait_until_reported();
    let mut events = BTreeMap::<String, Vec<Event>>::new();
    for event in scene.events() {
        events.entry(event.item.clone()).or_default().push(event);
    }
    let people: BTreeSet<&str> = grants.iter().map(|grant| grant.person.as_str()).collect();
    let listed: BTreeMap<&str, Vec<Listed>> = people
        .into_iter()
        .map(|person| (person, scene.issuer.grants(&mut scene.issuer.browser(person)).unwrap()))
        .collect();
    let (mut ids, mut status) = (BTreeSet::new(), scene.status());
    for grant in grants {
        let Grant {
            person, item, ended, ..
        } = grant;
        let page = find(&listed[person.as_str()], item);
        let is_live = page.is_some_and(|grant| grant.withdraw.is_some());
        assert!(
            page.is_some() || grant.code.is_none(),
            "{item} was granted, and is lost"
        );
        assert!(
            !is_live || ended.is_none(),
            "{item} was {ended:?}, and is granted again"
        );

        let found = events.remove(item).unwrap_or_default();
        let of_reason = |reason: &str| found.iter().filter(|event| event.reason == reason).count();
        assert_eq!(of_reason("granted"), usize::from(page.is_some()), "{item}: {found:?}");
        let end = found.iter().find(|event| event.reason != "granted");
        assert_eq!(
            found.len(),
            2 * usize::from(page.is_some()) - usize::from(is_live),
            "{item}: {found:?}"
        );
        match (ended, end) {
            (Some(reason), end) => assert_eq!(end.map(|end| end.reason.as_str()), Some(*reason), "{item}"),
            (None, Some(end)) => {
                let step = grant.unanswered;
                let is_unanswered = step == Some(Step::Withdrawal) && end.reason == "withdrawn_by_person";
                assert!(is_unanswered, "{item} ended by itself, {step:?}: {end:?}");
            }
            (None, None) => assert_eq!(is_live, page.is_some(), "{item}"),
        }

        let own: BTreeSet<String> = grant.tokens.iter().map(|tokens| tokens.id().unwrap()).collect();
        assert_eq!(own.len(), grant.tokens.len(), "{item} has two tokens with one id");
        let all: BTreeSet<String> = end
            .into_iter()
            .flat_map(|end| end.ids.iter().cloned())
            .chain(own.clone())
            .collect();
        for id in all {
            let is_revoked = || Ok((status.is_revoked(person, &id)? != is_live).then_some(()));
            waiting::until(format_args!("{id} of {item} to be revoked: {}", !is_live), is_revoked).unwrap();
        }
        assert!(own.is_disjoint(&ids), "{item} has the id of another token");
        ids.extend(own);
    }
    events.retain(|item, _| !item.starts_with("mark-"));
    assert!(events.is_empty(), "events without a request: {events:?}");
    assert!(are_enough(grants), "the load was too small to show anything");
}

/// Some were used, and some of these ended.
fn are_enough(grants: &[Grant]) -> bool {
    let ended = grants.iter().filter(|grant| grant.ended.is_some()).count();
    let tokens: usize = grants.iter().map(|grant| grant.tokens.len()).sum();
    ended > 0 && tokens > ended
}
