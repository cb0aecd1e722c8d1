//! Checks Envoy's own router, which reads the same requests: where it could route a request differently from the
//! filter's rules.

use credence_delegation::Location;
use credence_delegation::json::{Json, Object};

/// Notes problems of the connection manager at this place, which has the filter. Rules that name their hosts and
/// clusters fail closed in each case.
pub(super) fn judge(manager: &Object<'_>, place: &Location<'_>) {
    let config = manager.object("route_config");
    let is_elsewhere = ["rds", "scoped_routes"]
        .iter()
        .any(|name| manager.member(name).is_some());
    let hosts: Vec<&Object<'_>> = config.map_or(Vec::new(), |config| objects(config, "virtual_hosts").collect());
    if is_elsewhere || hosts.len() > 1 || hosts.iter().any(|host| !takes_every_host(host)) {
        let ignores_port = config.is_some_and(|config| is_true(config, "ignore_port_in_host_matching"));
        if !(ignores_port || is_true(manager, "strip_any_host_port")) {
            place.field("strip_any_host_port").note(PORT);
        }
        if !is_true(manager, "strip_trailing_host_dot") {
            place.field("strip_trailing_host_dot").note(DOT);
        }
    }
    let place = place.field("route_config.virtual_hosts");
    for (number, host) in hosts.into_iter().enumerate() {
        let place = place.element(number).field("routes");
        for (number, route) in objects(host, "routes").enumerate() {
            let prefix = route.at(&["match", "prefix"]).and_then(Json::as_str);
            if let Some(prefix) = prefix.filter(|prefix| !prefix.is_empty() && !prefix.ends_with('/')) {
                place.element(number).field("match.prefix").note(format!(
                    "Envoy sends {prefix}x here too, which no rule for {prefix}/** matches; write \
                     path_separated_prefix: {prefix}, or name the clusters of the rules below by `clusters`"
                ));
            }
        }
    }
}

fn takes_every_host(virtual_host: &Object<'_>) -> bool {
    let domains = virtual_host.member("domains").and_then(Json::as_array);
    domains.is_some_and(|domains| domains.iter().any(|domain| domain.as_str() == Some("*")))
}

fn is_true(object: &Object<'_>, name: &str) -> bool {
    matches!(object.member(name), Some(Json::Bool(true)))
}

/// The objects of a list. Envoy refuses other elements.
fn objects<'a>(object: &'a Object<'a>, name: &str) -> impl Iterator<Item = &'a Object<'a>> {
    let elements = object.member(name).and_then(Json::as_array).unwrap_or_default();
    elements.iter().filter_map(Json::as_object)
}

const PORT: &str = "Envoy compares hosts with their port, and the filter's rules compare them without: a request with \
                    a port may reach another virtual host than its rule's, so rules with `hosts` deny it; set \
                    strip_any_host_port: true";

const DOT: &str = "Envoy compares hosts with their trailing dot, and the filter's rules compare them without: a \
                   request with one may reach another virtual host than its rule's, so rules with `hosts` deny it; set \
                   strip_trailing_host_dot: true";
