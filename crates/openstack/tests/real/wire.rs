//! The wire between a provider and the real services, and what can happen on it.

use bytes::Bytes;
use drover_openstack::transport::{Failure, Transport, of};
use http::{Method, Request, Response, header::HeaderName};
use http_body_util::Full;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;
use tower::ServiceExt as _;

type Answer = Response<drover_openstack::transport::Body>;

/// What happens on the wire.
#[derive(Clone, Copy, Debug)]
pub enum Trick {
    /// The process ends at the call of this number, before or after the cloud got it.
    Die { call: usize, acted: bool },
    /// The first answer to a POST to this collection is lost.
    Lose(&'static str),
    /// Every token is revoked as soon as it is made, so many times.
    Revoke(usize),
}

/// Counts the calls of one provider, and plays one trick on it.
#[derive(Default)]
pub struct Wire {
    seen: Mutex<Vec<String>>,
    trick: Mutex<Option<Trick>>,
    died: Notify,
}

impl Wire {
    pub fn with(trick: Trick) -> Arc<Self> {
        Arc::new(Self { trick: Mutex::new(Some(trick)), ..Self::default() })
    }

    /// Until the process has died.
    pub async fn death(&self) {
        self.died.notified().await;
    }

    /// The calls so far that have all of these words in them, as `POST http://127.0.0.1:9696/v2.0/ports`.
    pub fn count(&self, words: &[&str]) -> usize {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().filter(|call| words.iter().all(|word| call.contains(word))).count()
    }

    pub fn calls(&self) -> Vec<String> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn over(self: &Arc<Self>, transport: Transport) -> Transport {
        let wire = self.clone();
        of(tower::service_fn(move |request: Request<Full<Bytes>>| {
            let (wire, transport) = (wire.clone(), transport.clone());
            async move { wire.pass(transport, request).await }
        }))
    }

    async fn pass(&self, to: Transport, request: Request<Full<Bytes>>) -> Result<Answer, Failure> {
        let number = {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.push(format!("{} {}", request.method(), request.uri()));
            seen.len()
        };
        let post = request.method() == Method::POST;
        let path = request.uri().path().to_owned();
        let uri = request.uri().clone();
        let trick = *self.trick.lock().unwrap_or_else(PoisonError::into_inner);
        match trick {
            Some(Trick::Die { call, acted }) if number >= call => {
                if number == call && acted {
                    drop(to.oneshot(request).await);
                }
                self.died.notify_one();
                std::future::pending().await
            }
            Some(Trick::Lose(collection)) if post && path.ends_with(collection) => {
                self.play(None);
                drop(to.oneshot(request).await);
                let message = "connection reset by peer".to_owned();
                Err(Failure { message, unsent: false })
            }
            Some(Trick::Revoke(times)) if post && path.ends_with("/auth/tokens") => {
                self.play((times > 1).then_some(Trick::Revoke(times - 1)));
                let answer = to.clone().oneshot(request).await?;
                let token = &answer.headers()["x-subject-token"];
                let revoke = Request::delete(uri)
                    .header(HeaderName::from_static("x-auth-token"), token)
                    .header(HeaderName::from_static("x-subject-token"), token)
                    .body(Full::default())
                    .expect("a request");
                assert_eq!(to.oneshot(revoke).await?.status(), 204);
                Ok(answer)
            }
            _ => to.oneshot(request).await,
        }
    }

    fn play(&self, trick: Option<Trick>) {
        *self.trick.lock().unwrap_or_else(PoisonError::into_inner) = trick;
    }
}
