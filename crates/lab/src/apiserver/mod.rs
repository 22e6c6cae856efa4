//! The API server: one engine over schemas, no struct per kind.

pub mod access;
mod body;
mod builtin;
mod crds;
mod create;
mod delete;
mod discovery;
mod duration;
mod media;
mod openapi;
mod patch;
mod prepare;
mod protobuf;
mod read;
pub mod registry;
mod render;
pub mod request;
mod route;
mod serve;
pub mod status;
pub mod store;
pub mod subresource;
mod table;
mod update;
mod watch;

pub use registry::{Kind, Registry};
pub use request::Request;
pub use route::Service;
pub use status::Status;
pub use store::{Key, ResourceId, Store};

use crate::clock::Clock;
use crate::pki::Authority;
use bytes::Bytes;
use serde_json::Value;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The body of every answer: whole, or a stream of watch events.
pub type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>;

/// Who is on the other end of a connection: what TLS proved, or, in process, a fixed user.
#[derive(Clone, Debug)]
pub enum Peer {
    /// Nobody was proved; the headers decide (a bearer token) or the user is anonymous.
    Anonymous,
    /// The client certificate (DER) that TLS proved possession of; whether the CA signed it is for
    /// `access::authenticate` to check.
    Certificate(Vec<u8>),
    /// In process: this user.
    User(access::User),
}

/// What a server is made from.
pub struct Config {
    /// The time of the world.
    pub clock: Clock,
    /// Of uids and generated names.
    pub seed: u64,
    /// Signs and recognises certificates.
    pub pki: Arc<Authority>,
    /// Steps kept of each resource's past; a watch that is further behind gets 410.
    pub watch_history: usize,
}

impl Config {
    /// A server with this clock and authority and the usual limits.
    #[must_use]
    pub fn new(clock: Clock, pki: Arc<Authority>) -> Self {
        Self { clock, seed: 1, pki, watch_history: WATCH_HISTORY }
    }
}

/// Steps kept of each resource's past unless configured: a burst over a thousand nodes stays inside.
const WATCH_HISTORY: usize = 20_000;

struct Inner {
    clock: Clock,
    pki: Arc<Authority>,
    store: Store,
    registry: Registry,
    dice: Mutex<fastrand::Rng>,
    // Writes are decided one after the other: what a decision read is still true when it is kept.
    turn: Mutex<()>,
    documents: Mutex<openapi::Memo>,
}

/// A Kubernetes API server.
#[derive(Clone)]
pub struct ApiServer {
    inner: Arc<Inner>,
}

/// A decided answer, before it is put into the form the client accepts.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status.
    pub code: u16,
    /// The object, or what stands in its place.
    pub body: Value,
    /// Texts for `Warning` headers.
    pub warnings: Vec<String>,
}

impl Answer {
    /// 200 with this object.
    #[must_use]
    pub fn ok(body: Value) -> Self {
        Self { code: 200, body, warnings: Vec::new() }
    }

    /// 201 with this object.
    #[must_use]
    pub fn created(body: Value) -> Self {
        Self { code: 201, body, warnings: Vec::new() }
    }
}

impl ApiServer {
    /// A server with the built-in kinds, the first namespaces and the bootstrap RBAC objects.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let inner = Inner {
            clock: config.clock,
            pki: config.pki,
            store: Store::new(config.watch_history),
            registry: builtin::registry(),
            dice: Mutex::new(fastrand::Rng::with_seed(config.seed)),
            turn: Mutex::new(()),
            documents: Mutex::default(),
        };
        let server = Self { inner: Arc::new(inner) };
        builtin::bootstrap(&server);
        server
    }

    /// The server as a service for one connection's peer.
    #[must_use]
    pub fn service(&self, who: Peer) -> Service {
        Service::new(self.clone(), who)
    }

    /// What the server keeps.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// What the server serves.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.inner.registry
    }

    /// The time of the world.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.inner.clock
    }

    /// Signs and recognises certificates.
    #[must_use]
    pub fn pki(&self) -> &Authority {
        &self.inner.pki
    }

    /// A fresh uid (version 4).
    pub(crate) fn uid(&self) -> String {
        let mut bytes = self.dice().u128(..);
        bytes &= !(0xf << 76) & !(0xc << 60);
        bytes |= (0x4 << 76) | (0x8 << 60);
        let hex = format!("{bytes:032x}");
        [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
    }

    /// Five letters that make a name unlike others. Kubernetes: no vowels, so that no words come out.
    pub(crate) fn suffix(&self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut dice = self.dice();
        (0..5).map(|_| char::from(LETTERS[dice.usize(..LETTERS.len())])).collect()
    }

    fn dice(&self) -> MutexGuard<'_, fastrand::Rng> {
        self.inner.dice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn documents(&self) -> MutexGuard<'_, openapi::Memo> {
        self.inner.documents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Now, as Kubernetes writes times: whole seconds.
    pub(crate) fn stamp(&self) -> String {
        self.clock().now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}
