//! A control plane that closes, resets and floods streams and sends invalid data traps no filter.

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

/// What the server does to a filter's stream.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Ends it before it starts, with this status.
    End(u32),
    Reset,
    /// Refuses it as no gRPC server would, with bytes that are not UTF-8.
    NoGrpc,
    EmptyMessage,
    Garbage,
    /// Sends far more data than a message has.
    Flood,
    /// Sends a message, and ends the stream at once.
    MessageAndEnd,
    /// Sends trailers that are not UTF-8.
    Trailers,
    /// Closes the whole connection.
    HangUp,
}

const FAULTS: [Fault; 10] = [
    Fault::End(0),
    Fault::End(9),
    Fault::Reset,
    Fault::NoGrpc,
    Fault::EmptyMessage,
    Fault::Garbage,
    Fault::Flood,
    Fault::MessageAndEnd,
    Fault::Trailers,
    Fault::HangUp,
];

struct Hostile {
    address: SocketAddr,
    done: Arc<AtomicUsize>,
    _runtime: Runtime,
}

impl Hostile {
    /// Each stream gets the next fault, starting with this number.
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
                        let fault = FAULTS[number % FAULTS.len()];
                        if matches!(fault, Fault::HangUp) {
                            return None;
                        }
                        tokio::spawn(async move { fault.cause(request.into_body(), respond) });
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
        let wanted = self.done.load(Ordering::Relaxed) + times * FAULTS.len();
        waiting::until("every fault", || {
            Ok((self.done.load(Ordering::Relaxed) >= wanted).then_some(()))
        })
        .unwrap();
    }
}

impl Fault {
    /// Does nothing if the stream is already gone.
    fn cause(self, _request: RecvStream, mut respond: SendResponse<Bytes>) -> Option<()> {
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
        // The stream stays open until the filter resets it: dropping it would end it.
        None => std::mem::forget(out),
    }
    Some(())
}

/// Envoy replaces a trapped VM, and logs it.
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
fn a_misbehaving_control_plane_traps_no_filter() {
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

/// Envoy reports the failure of a stream from within the call that opens it.
#[test]
fn streams_that_cannot_be_opened_trap_no_filter() {
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
