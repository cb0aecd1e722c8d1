//! A person's browser without scripts: it keeps cookies, follows redirects, and posts forms.

use std::collections::BTreeMap;

use url::Url;
use url::form_urlencoded::Serializer;

use crate::identity_provider::PERSON;
use crate::{Client, Failure, Reply, Request};

/// A browser. It stops at [`CALLBACK`], where an agent would take over.
#[derive(Debug)]
pub struct Browser {
    /// By origin: here, ports tell servers apart.
    sites: BTreeMap<String, Site>,
}

/// Where agents listen for the answer. Nothing listens there in tests.
pub const CALLBACK: &str = "http://127.0.0.1/callback";

#[derive(Debug, Default)]
struct Site {
    cookies: BTreeMap<String, String>,
    connection: Option<Client>,
}

/// Where the browser is.
#[derive(Debug, Clone)]
pub struct Page {
    /// Its address.
    pub url: Url,
    /// The HTTP status; `None` at [`CALLBACK`].
    pub status: Option<u16>,
    /// The HTML.
    pub html: String,
}

/// A form of a page.
#[derive(Debug, Clone)]
pub struct Form {
    action: Url,
    /// The hidden fields, and the first entry of each list.
    fields: Vec<(String, String)>,
}

// === impl Browser ===

impl Browser {
    /// The browser of a person of this identity provider.
    pub fn of(person: &str, provider: &str) -> Self {
        let mut site = Site::default();
        site.cookies.insert(PERSON.to_owned(), person.to_owned());
        Self {
            sites: [(provider.to_owned(), site)].into(),
        }
    }

    /// Goes to a URL.
    ///
    /// # Errors
    /// If a server does not answer, or there are too many redirects.
    pub fn open(&mut self, url: &str) -> Result<Page, Failure> {
        self.go(parse(url)?, None)
    }

    /// Posts a form with these further fields.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn submit(&mut self, form: &Form, fields: &[(&str, &str)]) -> Result<Page, Failure> {
        let mut body = Serializer::new(String::new());
        body.extend_pairs(&form.fields).extend_pairs(fields);
        self.go(form.action.clone(), Some(body.finish()))
    }

    fn go(&mut self, mut url: Url, mut form: Option<String>) -> Result<Page, Failure> {
        for _ in 0..MAX_REDIRECTS {
            if url.as_str().starts_with(CALLBACK) {
                let html = String::new();
                return Ok(Page {
                    url,
                    status: None,
                    html,
                });
            }
            let reply = self.request(&url, form.take())?;
            let Some(location) = reply.header("location") else {
                return Ok(Page {
                    url,
                    status: Some(reply.status),
                    html: reply.text(),
                });
            };
            url = url.join(location).map_err(Failure::of("following a redirect"))?;
        }
        Err(Failure::new(format!("too many redirects, the last to {url}")))
    }

    fn request(&mut self, url: &Url, form: Option<String>) -> Result<Reply, Failure> {
        let origin = url.origin().ascii_serialization();
        let site = self.sites.entry(origin).or_default();
        let cookies: Vec<String> = site
            .cookies
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let target = &url[url::Position::BeforePath..url::Position::AfterQuery];
        let request = match form {
            None => Request::get(target),
            Some(form) => Request::new("POST", target).form(form),
        };
        let request = request.to(url).header("cookie", cookies.join("; "));
        let mut connection = match site.connection.take() {
            Some(connection) => connection,
            None => Client::connect(address(url)?)?,
        };
        let reply = connection.send(&request)?;
        // A failed connection is not used again.
        site.connection = Some(connection);
        for (_, cookie) in reply.headers.iter().filter(|(name, _)| name == "set-cookie") {
            let (name, rest) = cookie.split_once('=').unwrap_or_default();
            match rest.split(';').next() {
                Some(value) if !value.is_empty() => _ = site.cookies.insert(name.to_owned(), value.to_owned()),
                _ => _ = site.cookies.remove(name),
            }
        }
        Ok(reply)
    }
}

// === impl Page ===

impl Page {
    /// A parameter with which the browser has returned to [`CALLBACK`].
    pub fn returned(&self, name: &str) -> Option<String> {
        let mut pairs = self.url.query_pairs().filter(|_| self.status.is_none());
        pairs
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.into_owned())
    }

    /// The form that goes to this path, if there is one: the first in this part of the page.
    pub fn form_in(&self, part: &str, action: &str) -> Option<Form> {
        let begin = part.split_once(&format!(r#"action="{action}""#))?.1;
        let inside = begin.split("</form>").next()?;
        let hidden = inside.split(r#"<input type="hidden" name=""#).skip(1);
        let hidden = hidden.filter_map(|field| field.split_once(r#"" value=""#));
        let lists = inside.split(r#"<select name=""#).skip(1);
        let lists = lists.filter_map(|field| field.split_once(r#""><option value=""#));
        let fields = hidden.chain(lists).filter_map(|(name, rest)| {
            let (value, _) = rest.split_once('"')?;
            Some((name.to_owned(), value.to_owned()))
        });
        Some(Form {
            action: self.url.join(action).ok()?,
            fields: fields.collect(),
        })
    }

    /// The same in the whole page.
    ///
    /// # Errors
    /// If there is none.
    pub fn form(&self, action: &str) -> Result<Form, Failure> {
        let missing = || {
            format!(
                "no form for {action} at {} ({:?}): {}",
                self.url, self.status, self.html
            )
        };
        self.form_in(&self.html, action).ok_or_else(|| Failure::new(missing()))
    }

    /// What a person reads, line by line.
    pub fn lines(&self) -> Vec<String> {
        let body = self.html.split_once("<main>").map_or("", |(_, body)| body);
        let parts = body
            .split('<')
            .filter_map(|part| part.split_once('>').map(|(_, text)| text));
        let text = parts.collect::<Vec<_>>().join("").replace("&#34;", "\"");
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.map(str::to_owned).collect()
    }
}

/// The address of a URL's host.
///
/// # Errors
/// If the host is no address.
pub(crate) fn address(url: &Url) -> Result<std::net::SocketAddr, Failure> {
    let addresses = url.socket_addrs(|| None).map_err(Failure::of(url))?;
    addresses
        .first()
        .copied()
        .ok_or_else(|| Failure::new(format!("{url} has no address")))
}

pub(crate) fn parse(url: &str) -> Result<Url, Failure> {
    Url::parse(url).map_err(Failure::of(format_args!("reading the URL {url}")))
}

const MAX_REDIRECTS: usize = 20;
