//! The keys for the filters' shared caches, which a revocation stream delivers.

use std::time::Duration;

use credence_wire::v1;
use credence_wire::v1::watch_request::Message as WatchMessage;
use credence_wire::v1::watch_response::Message as WatchAnswer;

use super::harness::{Place, Server, Watcher};

/// A stream of a filter in this node, and the keys in its welcome.
async fn welcomed(server: &Server, node: &str) -> (Watcher, v1::CacheKeys) {
    let mut watcher = server.open_watch().await.unwrap();
    let hello = v1::WatchHello {
        log_id: server.log_id(),
        node: node.to_owned(),
        ..Default::default()
    };
    watcher.say(WatchMessage::Hello(hello)).await;
    let keys = watcher.welcome().await.cache_keys.unwrap();
    (watcher, keys)
}

async fn keys_of(server: &Server, node: &str) -> v1::CacheKeys {
    welcomed(server, node).await.1
}

#[tokio::test]
async fn every_filter_of_a_node_gets_the_same_and_another_node_gets_others() {
    let place = Place::new();
    let server = place.start().await;
    let keys = keys_of(&server, "one").await;
    assert_eq!((keys.current.len(), keys.previous.len()), (32, 32));
    assert_ne!(keys.current, keys.previous);
    assert_eq!(keys_of(&server, "one").await, keys);
    let others = keys_of(&server, "two").await;
    assert!(![&keys.current, &keys.previous].contains(&&others.current));
    assert!(![&keys.current, &keys.previous].contains(&&others.previous));
}

#[tokio::test]
async fn a_restarted_control_plane_gives_out_the_same_and_another_one_others() {
    let place = Place::new();
    let keys = keys_of(&place.start().await, "one").await;
    assert_eq!(keys_of(&place.start().await, "one").await, keys);
    assert_ne!(keys_of(&Place::new().start().await, "one").await, keys);
}

#[tokio::test]
async fn a_rotation_reaches_an_open_stream_and_leaves_the_last_key_as_the_previous_one() {
    let place = Place::new();
    let server = place
        .start_with(|config| config.log.cache_key_rotation = Duration::from_secs(1))
        .await;
    let (mut watcher, mut known) = welcomed(&server, "one").await;
    // A machine that stops for a second sees two rotations as one.
    for _ in 0..5 {
        let WatchAnswer::CacheKeys(keys) = watcher.next().await.unwrap() else {
            panic!("nothing else has happened")
        };
        assert_ne!(keys.current, known.current);
        if keys.previous == known.current {
            return;
        }
        known = keys;
    }
    panic!("no key was ever the previous one");
}

#[tokio::test]
async fn a_rotation_reaches_a_stream_that_is_still_pulling_its_snapshot() {
    let place = Place::new();
    let server = place
        .start_with(|config| config.log.cache_key_rotation = Duration::from_secs(1))
        .await;
    server.revoke(super::harness::raise("alice")).await;
    let (mut watcher, known) = welcomed(&server, "one").await;
    let WatchAnswer::CacheKeys(keys) = watcher.next().await.unwrap() else {
        panic!("no chunk was asked for")
    };
    assert_ne!(keys.current, known.current);
}
