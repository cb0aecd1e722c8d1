//! A control plane that breaks off, resets, floods and talks nonsense traps no filter: the SDK has a panic for much of what a
//! host may say, and none of it is within the control plane's reach.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use credence_e2e::assertions::assert_denied;
use credence_e2e::{Reply, Request, Stack, StackOptions, waiting};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Response};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// What is done to a stream of the filter's.
#[derive(Clone, Copy, Debug)]
enum Misdeed {
    /// It ends before it has begun, with this status.
    End(u32),
    Reset,
    /// It is refused as no gRPC server would, in bytes that are no text.
    NoGrpc,
    EmptyMessage,
    Garbage,
    /// Far more than any message has.
    Flood,
    /// A message, and the end right behind it.
    MessageAndEnd,
    /// Trailers that are no text.
    Trailers,
    /// The whole connection is closed.
    HangUp,
}

const MISDEEDS: [Misdeed; 10] = [
    Misdeed::End(0),
    Misdeed::End(9),
    Misdeed::Reset,
    Misdeed::NoGrpc,
    Misdeed::EmptyMessage,
    Misdeed::Garbage,
    Misdeed::Flood,
    Misdeed::MessageAndEnd,
    Misdeed::Trailers,
    Misdeed::HangUp,
];

struct Hostile {
    address: SocketAddr,
    done: Arc<AtomicUsize>,
    _runtime: Runtime,
}

impl Hostile {
    /// Each stream meets with the next misdeed, from the one of this number on.
    fn serve() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let done = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&done);
        runtime.spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let counter = Arc::clone(&counter);
                tokio::spawn(async move {
                    let mut connection = h2::server::handshake(connection).await.ok()?;
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        let number = counter.fetch_add(1, Ordering::Relaxed);
                        let misdeed = MISDEEDS[number % MISDEEDS.len()];
                        if matches!(misdeed, Misdeed::HangUp) {
                            return None;
                        }
                        tokio::spawn(async move { misdeed.commit(request.into_body(), respond) });
                    }
                    Some(())
                });
            }
        });
        Self {
            address,
            done,
            _runtime: runtime,
        }
    }

    fn until_all_are_done(&self, times: usize) {
        let wanted = self.done.load(Ordering::Relaxed) + times * MISDEEDS.len();
        waiting::until("every misdeed", || {
            Ok((self.done.load(Ordering::Relaxed) >= wanted).then_some(()))
        })
        .unwrap();
    }
}

impl Misdeed {
    /// Of a stream that is gone already nothing more can be made.
    fn commit(self, _request: RecvStream, mut respond: SendResponse<Bytes>) -> Option<()> {
        let mut head = Response::new(());
        let headers = head.headers_mut();
        headers.insert("content-type", HeaderValue::from_static("application/grpc"));
        let binary = HeaderValue::from_bytes(b"\xff\xfe").unwrap();
        match self {
            Self::End(status) => {
                headers.insert("grpc-status", HeaderValue::from(status));
                respond.send_response(head, true).ok()?;
            }
            Self::Reset => respond.send_reset(Reason::INTERNAL_ERROR),
            Self::NoGrpc => {
                *head.status_mut() = http::StatusCode::NOT_FOUND;
                head.headers_mut().insert("content-type", binary.clone());
                head.headers_mut().insert("grpc-message", binary);
                respond.send_response(head, true).ok()?;
            }
            Self::EmptyMessage => send(respond, head, &[&[]], None)?,
            Self::Garbage => send(respond, head, &[&[0xff; 100], &[0; 3]], None)?,
            Self::Flood => send(respond, head, &[&vec![1; 32 << 20]], None)?,
            Self::MessageAndEnd => send(respond, head, &[&[0xff; 10]], Some(HeaderMap::new()))?,
            Self::Trailers => {
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", binary.clone());
                trailers.insert("grpc-message", binary);
                send(respond, head, &[], Some(trailers))?;
            }
            Self::HangUp => {}
        }
        Some(())
    }
}

fn send(
    mut respond: SendResponse<Bytes>,
    head: Response<()>,
    messages: &[&[u8]],
    trailers: Option<HeaderMap>,
) -> Option<()> {
    let mut out: SendStream<Bytes> = respond.send_response(head, false).ok()?;
    for message in messages {
        let length = u32::try_from(message.len()).ok()?.to_be_bytes();
        let frame = [&[0], &length[..], message].concat();
        out.send_data(frame.into(), false).ok()?;
    }
    match trailers {
        Some(trailers) => out.send_trailers(trailers).ok()?,
        // It stays open until the filter resets it: what is dropped ends.
        None => std::mem::forget(out),
    }
    Some(())
}

/// A trapped VM is replaced, and says so in Envoy's log.
#[track_caller]
fn assert_never_trapped(stack: &Stack) {
    let log = stack.envoy.log();
    for sign in [
        "Proxy-Wasm plugin in-VM backtrace",
        "wasm vm runtime error",
        "RuntimeError",
    ] {
        assert!(!log.contains(sign), "a VM has trapped: {log}");
    }
}

fn healthy(stack: &Stack) -> Reply {
    stack.send(&Request::get("/healthz")).unwrap()
}

#[test]
fn whatever_a_control_plane_does_to_its_streams_traps_no_filter() {
    let hostile = Hostile::serve();
    let stack = Stack::start(&StackOptions {
        control_plane_port: Some(hostile.address.port()),
        unsynced: true,
        ..StackOptions::default()
    })
    .unwrap();
    for _ in 0..3 {
        hostile.until_all_are_done(1);
        assert_eq!(healthy(&stack).status, 200);
        assert_denied(
            &stack.send(&Request::get("/v1/catalog/book").delegation("x")).unwrap(),
            503,
            "not_ready",
        );
    }
    assert_never_trapped(&stack);
}

/// Envoy reports the close of a stream from within the call that opens it.
#[test]
fn streams_that_can_not_be_opened_trap_no_filter() {
    let options = StackOptions {
        unsynced: true,
        ..StackOptions::default()
    };
    let stack = Stack::start(&options.replacing("cluster: credence\n", "cluster: nowhere\n")).unwrap();
    waiting::until("both streams to have failed", || {
        let log = stack.envoy.log();
        Ok((log.matches("nowhere cannot be reached").count() >= 4).then_some(()))
    })
    .unwrap();
    assert_eq!(healthy(&stack).status, 200);
    assert_never_trapped(&stack);
}
