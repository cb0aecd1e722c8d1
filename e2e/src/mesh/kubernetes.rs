//! The parts of a Kubernetes API server that istiod needs. It lists and watches applied objects, keeps what istiod
//! writes, and knows which token belongs to which account. It does not validate objects: `istioctl validate` does.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

// Objects pass through from our files to istiod and back, without a look at their content.
#[allow(clippy::disallowed_types)]
use serde_json::Value;
use serde_json::json;

use crate::Failure;
use crate::message::Message;

/// A running stand-in; it stops with the process.
#[derive(Debug, Clone)]
pub struct Kubernetes {
    address: SocketAddr,
    cluster: Arc<Cluster>,
}

/// A workload's identity: its service account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The namespace.
    pub namespace: String,
    /// The service account's name.
    pub name: String,
}

// === impl Kubernetes ===

impl Kubernetes {
    /// Starts it on this address, with Istio's kinds and these namespaces only.
    ///
    /// # Errors
    /// If another program listens there.
    pub fn start(address: SocketAddr, namespaces: &[&str]) -> Result<Self, Failure> {
        let failed = "starting the stand-in for Kubernetes";
        let listener = TcpListener::bind(address).map_err(Failure::of(failed))?;
        let address = listener.local_addr().map_err(Failure::of(failed))?;
        let cluster = Arc::new(Cluster::default());
        {
            let mut objects = cluster.lock();
            for (_, resource, group) in KINDS {
                // istiod watches a kind only once the API server has it.
                let place = Place::new("apiextensions.k8s.io", "customresourcedefinitions", "");
                // Without a version, istiod does not recognise a kind of the Gateway API.
                let metadata = json!({
                    "name": format!("{resource}.{group}"),
                    "annotations": {"gateway.networking.k8s.io/bundle-version": "v1.5.0"},
                });
                objects.put(
                    &place,
                    json!({"kind": "CustomResourceDefinition", "metadata": metadata}),
                );
            }
            for name in namespaces {
                let labels = json!({"kubernetes.io/metadata.name": name});
                let place = Place::new("", "namespaces", "");
                objects.put(
                    &place,
                    json!({"kind": "Namespace", "metadata": {"name": name, "labels": labels}}),
                );
            }
        }
        let served = Arc::clone(&cluster);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let cluster = Arc::clone(&served);
                // istiod reports a broken connection.
                thread::spawn(move || serve(&connection, &cluster));
            }
        });
        Ok(Self { address, cluster })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `kubectl apply`: each document of a YAML file replaces the object of its name.
    ///
    /// # Errors
    /// If it is not YAML, or of a kind that Istio does not have.
    #[allow(clippy::disallowed_types)]
    pub fn apply(&self, yaml: &str) -> Result<(), Failure> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).map_err(Failure::of("reading YAML to apply"))?;
        let mut objects = self.cluster.lock();
        for document in documents.into_iter().filter(|document| !document.is_null()) {
            let kind = document["kind"].as_str().unwrap_or_default();
            let version = document["apiVersion"].as_str().unwrap_or_default();
            let of = version.split_once('/').map_or("", |(group, _)| group);
            let (_, resource, group) = KINDS
                .iter()
                .chain(&OWN_KINDS)
                .find(|(other, _, group)| (*other, *group) == (kind, of))
                .ok_or_else(|| Failure::new(format!("istiod is not asked about things of kind {kind:?}")))?;
            let elsewhere = if *resource == "gatewayclasses" { "" } else { "default" };
            let namespace = document["metadata"]["namespace"]
                .as_str()
                .unwrap_or(elsewhere)
                .to_owned();
            objects.put(&Place::new(group, resource, &namespace), document);
        }
        drop(objects);
        self.cluster.changed.notify_all();
        Ok(())
    }

    /// `kubectl delete`.
    ///
    /// # Errors
    /// If there is no such object.
    pub fn delete(&self, kind: &str, namespace: &str, name: &str) -> Result<(), Failure> {
        let known = KINDS.iter().find(|(other, _, _)| *other == kind);
        let deleted = known.is_some_and(|(_, resource, group)| {
            self.cluster
                .lock()
                .remove(&Place::new(group, resource, namespace), name)
        });
        self.cluster.changed.notify_all();
        deleted
            .then_some(())
            .ok_or_else(|| Failure::new(format!("there is no {kind} {name} in {namespace}")))
    }

    /// Makes this token authenticate as that account, like the token that Kubernetes mounts into a pod.
    pub fn recognise(&self, token: &str, account: Account) {
        self.cluster.lock().accounts.insert(token.to_owned(), account);
    }
}

// === impl Cluster ===

#[derive(Debug, Default)]
struct Cluster {
    objects: Mutex<Objects>,
    changed: Condvar,
}

impl Cluster {
    fn lock(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All objects, and all events.
#[derive(Debug, Default)]
#[allow(clippy::disallowed_types)]
struct Objects {
    /// The number of events so far: what Kubernetes calls a resource version.
    version: u64,
    living: BTreeMap<(Place, String), Value>,
    events: Vec<Event>,
    accounts: BTreeMap<String, Account>,
}

/// An object's identity, except its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    group: String,
    resource: String,
    namespace: String,
}

#[derive(Debug, Clone)]
#[allow(clippy::disallowed_types)]
struct Event {
    version: u64,
    what: &'static str,
    place: Place,
    object: Value,
}

impl Place {
    fn new(group: &str, resource: &str, namespace: &str) -> Self {
        Self {
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
        }
    }

    /// Whether a request for the other place covers this one. Without a namespace, it covers all namespaces.
    fn is_asked_for_by(&self, other: &Self) -> bool {
        self.group == other.group
            && self.resource == other.resource
            && (other.namespace.is_empty() || self.namespace == other.namespace)
    }
}

#[allow(clippy::disallowed_types)]
impl Objects {
    fn put(&mut self, place: &Place, mut object: Value) -> Value {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let key = (place.clone(), name.clone());
        let before = self.living.get(&key);
        let generation = before.map_or(0, |before| {
            before["metadata"]["generation"].as_u64().unwrap_or_default()
        });
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        object["metadata"]["generation"] = json!(generation + 1);
        object["metadata"]["uid"] = json!(format!("{}-{}-{name}", place.resource, place.namespace));
        object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
        if !place.namespace.is_empty() {
            object["metadata"]["namespace"] = json!(place.namespace);
        }
        let what = if before.is_some() { "MODIFIED" } else { "ADDED" };
        self.living.insert(key, object.clone());
        self.note(what, place, object.clone());
        object
    }

    fn remove(&mut self, place: &Place, name: &str) -> bool {
        let Some(mut object) = self.living.remove(&(place.clone(), name.to_owned())) else {
            return false;
        };
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.note("DELETED", place, object);
        true
    }

    fn note(&mut self, what: &'static str, place: &Place, object: Value) {
        self.events.push(Event {
            version: self.version,
            what,
            place: place.clone(),
            object,
        });
    }

    /// The response to a `TokenReview` (Kubernetes API, authentication.k8s.io/v1).
    fn review(&self, token: &str) -> Value {
        let Some(Account { namespace, name }) = self.accounts.get(token) else {
            return json!({"authenticated": false});
        };
        let groups = json!(["system:serviceaccounts", format!("system:serviceaccounts:{namespace}")]);
        let user = json!({"username": format!("system:serviceaccount:{namespace}:{name}"), "groups": groups});
        json!({"authenticated": true, "user": user})
    }
}

// === one connection ===

fn serve(connection: &TcpStream, cluster: &Cluster) -> io::Result<()> {
    let mut reader = BufReader::new(connection.try_clone()?);
    let mut writer = connection.try_clone()?;
    while let Some(request) = Message::read_request(&mut reader)? {
        match Question::of(&request) {
            Some(question) if question.is_watch() => return watch(&mut writer, cluster, &question),
            Some(question) => {
                let (status, answer) = answer(cluster, &question, &request);
                reply(&mut writer, status, &answer)?;
            }
            None => reply(&mut writer, 200, &discovery(&request))?,
        }
    }
    Ok(())
}

/// The objects that a request asks for.
struct Question {
    method: String,
    place: Place,
    name: Option<String>,
    api_version: String,
    parameters: BTreeMap<String, String>,
    /// Whether names and labels are enough (`PartialObjectMetadata`).
    is_partial: bool,
}

impl Question {
    /// `None` if the request is not about objects.
    fn of(request: &Message) -> Option<Self> {
        let mut start = request.start.split(' ');
        let (method, target) = (start.next()?, start.next()?);
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        let (group, version) = match *segments.first()? {
            "api" if segments.len() > 2 => ("", segments.drain(..2).nth(1)?),
            "apis" if segments.len() > 3 => {
                let mut named = segments.drain(..3).skip(1);
                (named.next()?, named.next()?)
            }
            _ => return None,
        };
        let namespace = match segments.as_slice() {
            ["namespaces", namespace, _, ..] => *namespace,
            _ => "",
        };
        if !namespace.is_empty() {
            segments.drain(..2);
        }
        let parameters = query.split('&').filter_map(|pair| pair.split_once('='));
        Some(Self {
            method: method.to_owned(),
            place: Place::new(group, segments.first()?, namespace),
            name: segments.get(1).map(|&name| name.to_owned()),
            api_version: if group.is_empty() {
                version.to_owned()
            } else {
                format!("{group}/{version}")
            },
            parameters: parameters
                .map(|(name, value)| (name.to_owned(), decoded(value)))
                .collect(),
            is_partial: request
                .header("accept")
                .is_some_and(|kinds| kinds.contains("as=PartialObjectMetadata")),
        })
    }

    fn parameter(&self, name: &str) -> &str {
        self.parameters.get(name).map(String::as_str).unwrap_or_default()
    }

    fn is_watch(&self) -> bool {
        matches!(self.parameter("watch"), "true" | "1")
    }

    /// Whether the request covers the object.
    #[allow(clippy::disallowed_types)]
    fn covers(&self, place: &Place, object: &Value) -> bool {
        let metadata = &object["metadata"];
        let fields = self
            .parameter("fieldSelector")
            .split(',')
            .filter_map(|field| field.split_once('='));
        let labels = self
            .parameter("labelSelector")
            .split(',')
            .filter(|label| !label.is_empty());
        place.is_asked_for_by(&self.place)
            && fields
                .filter_map(|(field, value)| Some((field.strip_prefix("metadata.")?, value)))
                .all(|(field, value)| metadata[field].as_str() == Some(value))
            && labels.into_iter().all(|label| is_labelled(&metadata["labels"], label))
    }

    /// The object in the requested form.
    #[allow(clippy::disallowed_types)]
    fn rendered(&self, object: &Value) -> Value {
        if self.is_partial {
            return json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": object["metadata"],
            });
        }
        let mut object = object.clone();
        object["apiVersion"] = json!(self.api_version);
        object
    }
}

/// One requirement of a label selector: `name=value`, `name!=value`, `name` or `!name`. Of a set (`name in (…)`), only
/// the name is compared.
#[allow(clippy::disallowed_types)]
fn is_labelled(labels: &Value, requirement: &str) -> bool {
    if let Some((name, value)) = requirement.split_once("!=") {
        return labels[name].as_str() != Some(value);
    }
    if let Some((name, value)) = requirement.split_once('=') {
        return labels[name].as_str() == Some(value.trim_start_matches('='));
    }
    match requirement.strip_prefix('!') {
        Some(name) => labels[name].is_null(),
        None => !labels[requirement.split(' ').next().unwrap_or_default()].is_null(),
    }
}

#[allow(clippy::disallowed_types)]
fn answer(cluster: &Cluster, question: &Question, request: &Message) -> (u16, Value) {
    let mut objects = cluster.lock();
    let name = question.name.as_deref().unwrap_or_default();
    let found = objects.living.get(&(question.place.clone(), name.to_owned()));
    let mut sent: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    match (question.method.as_str(), &question.name) {
        ("GET", Some(_)) => match found {
            Some(object) => (200, question.rendered(object)),
            None => missing(question),
        },
        ("GET", None) => {
            let items: Vec<Value> = objects
                .living
                .iter()
                .filter(|((place, _), object)| question.covers(place, object))
                .map(|(_, object)| question.rendered(object))
                .collect();
            let metadata = json!({"resourceVersion": objects.version.to_string()});
            let mut list = json!({"metadata": metadata, "items": items});
            // A client of a typed list knows the item's kind, and rejects items that name another one.
            if question.is_partial {
                list["kind"] = json!("PartialObjectMetadataList");
                list["apiVersion"] = json!("meta.k8s.io/v1");
            }
            (200, list)
        }
        ("POST", _) if question.place.resource == "tokenreviews" => {
            sent["status"] = objects.review(sent["spec"]["token"].as_str().unwrap_or_default());
            (201, sent)
        }
        // The stand-in deletes at once. istiod does not read back what it patches.
        ("DELETE" | "PATCH", _) => match found {
            Some(object) => (200, question.rendered(object)),
            None => missing(question),
        },
        ("POST" | "PUT", _) if sent["metadata"]["name"].is_string() => {
            let place = question.place.clone();
            let put = objects.put(&place, sent);
            cluster.changed.notify_all();
            (201, put)
        }
        _ => missing(question),
    }
}

#[allow(clippy::disallowed_types)]
fn missing(question: &Question) -> (u16, Value) {
    let details = json!({"name": question.name, "kind": question.place.resource});
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "details": details,
    });
    (404, status)
}

/// The version, and a list of API groups, which istiod does not use.
#[allow(clippy::disallowed_types)]
fn discovery(request: &Message) -> Value {
    if request.start.contains(" /version") {
        return json!({"major": "1", "minor": "34", "gitVersion": "v1.34.0"});
    }
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})
}

#[allow(clippy::disallowed_types)]
fn reply(writer: &mut impl Write, status: u16, answer: &Value) -> io::Result<()> {
    let body = answer.to_string();
    let length = body.len();
    write!(
        writer,
        "HTTP/1.1 {status} Answer\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

/// Sends the events since the requested version, and new ones until the time is up.
fn watch(writer: &mut impl Write, cluster: &Cluster, question: &Question) -> io::Result<()> {
    writer.write_all(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
    )?;
    let mut seen: u64 = question.parameter("resourceVersion").parse().unwrap_or_default();
    let seconds = question.parameter("timeoutSeconds").parse().unwrap_or(LONGEST_WATCH_S);
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        let mut objects = cluster.lock();
        let news: Vec<Event> = objects
            .events
            .iter()
            .filter(|event| event.version > seen && question.covers(&event.place, &event.object))
            .cloned()
            .collect();
        seen = seen.max(objects.version);
        if news.is_empty() {
            let waited = cluster.changed.wait_timeout(objects, BETWEEN_LOOKS);
            objects = waited.unwrap_or_else(PoisonError::into_inner).0;
            drop(objects);
            continue;
        }
        drop(objects);
        for event in news {
            let object = question.rendered(&event.object);
            let line = format!("{}\n", json!({"type": event.what, "object": object}));
            write!(writer, "{:x}\r\n{line}\r\n", line.len())?;
        }
    }
    writer.write_all(b"0\r\n\r\n")
}

/// Percent-decoding.
fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        match part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend(part.bytes().skip(2));
            }
            None => bytes.extend(part.bytes()),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Istio's kinds, and the Gateway API's that Istio reads: the name in YAML, the name in API paths, and the group.
const KINDS: [(&str, &str, &str); 17] = [
    ("WasmPlugin", "wasmplugins", "extensions.istio.io"),
    ("TrafficExtension", "trafficextensions", "extensions.istio.io"),
    ("Gateway", "gateways", "networking.istio.io"),
    ("VirtualService", "virtualservices", "networking.istio.io"),
    ("DestinationRule", "destinationrules", "networking.istio.io"),
    ("ServiceEntry", "serviceentries", "networking.istio.io"),
    ("WorkloadEntry", "workloadentries", "networking.istio.io"),
    ("WorkloadGroup", "workloadgroups", "networking.istio.io"),
    ("Sidecar", "sidecars", "networking.istio.io"),
    ("EnvoyFilter", "envoyfilters", "networking.istio.io"),
    ("ProxyConfig", "proxyconfigs", "networking.istio.io"),
    ("AuthorizationPolicy", "authorizationpolicies", "security.istio.io"),
    ("PeerAuthentication", "peerauthentications", "security.istio.io"),
    ("RequestAuthentication", "requestauthentications", "security.istio.io"),
    ("Telemetry", "telemetries", "telemetry.istio.io"),
    ("Gateway", "gateways", "gateway.networking.k8s.io"),
    ("GatewayClass", "gatewayclasses", "gateway.networking.k8s.io"),
];

/// Kubernetes' built-in kinds.
const OWN_KINDS: [(&str, &str, &str); 3] = [
    ("Service", "services", ""),
    ("Pod", "pods", ""),
    ("EndpointSlice", "endpointslices", "discovery.k8s.io"),
];

const LONGEST_WATCH_S: u64 = 600;

/// Events wake a watch up. This only bounds how long a connection stays after its client has gone.
const BETWEEN_LOOKS: Duration = Duration::from_secs(5);
