//! What can happen between Drover and the wire: errors, lost answers, late watches, and sudden death.

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Notify;
use tower::{Service, ServiceExt};

/// The body of every answer that went through a wire.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes through.
    Pass,
    /// It is refused before anything is done, with this code.
    Refuse(StatusCode),
    /// It is done, and the answer is this code.
    Garble(StatusCode),
}

/// A call, as a rule sees it.
#[derive(Clone, Debug)]
pub struct Call {
    pub method: Method,
    pub path: String,
    pub query: String,
}

impl Call {
    /// Whether it changes anything.
    pub fn is_write(&self) -> bool {
        self.method != Method::GET && self.method != Method::HEAD
    }

    fn is_watch(&self) -> bool {
        self.query.contains("watch=")
    }
}

type Rule = dyn Fn(&Call) -> Fate + Send + Sync;
type Ear = dyn Fn(&Call, StatusCode, &[u8]) + Send + Sync;

/// The life of one process: it ends with its n-th call, whose answer it never hears. After that none
/// of its calls reaches the world.
pub struct Life {
    calls: AtomicU64,
    dies_with: u64,
    counts: Box<dyn Fn(&Call) -> bool + Send + Sync>,
    dead: AtomicBool,
    died: Notify,
    log: Mutex<Vec<String>>,
}

impl Life {
    /// A life that ends with call number `dies_with` (from 1) of those that count.
    pub fn until(
        dies_with: u64,
        counts: impl Fn(&Call) -> bool + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            calls: AtomicU64::new(0),
            dies_with,
            counts: Box::new(counts),
            dead: AtomicBool::new(false),
            died: Notify::new(),
            log: Mutex::default(),
        })
    }

    /// A life that nothing ends.
    pub fn long() -> Arc<Self> {
        Self::until(u64::MAX, Call::is_write)
    }

    /// Ends it now.
    pub fn end(&self) {
        self.dead.store(true, Ordering::SeqCst);
        self.died.notify_waiters();
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// How many calls that count were made.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// The calls that count, in order, as `METHOD path`.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for its end.
    pub async fn over(&self) {
        while !self.is_over() {
            let died = self.died.notified();
            if self.is_over() {
                return;
            }
            died.await;
        }
    }

    fn count(&self, call: &Call) -> bool {
        if !(self.counts)(call) {
            return false;
        }
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.push(format!("{} {}", call.method, call.path));
        self.calls.fetch_add(1, Ordering::SeqCst) + 1 == self.dies_with
    }
}

/// A wire with a fate for each call, in front of a service.
#[derive(Clone)]
pub struct Wire<S> {
    inner: S,
    life: Arc<Life>,
    rule: Arc<Rule>,
    ear: Arc<Ear>,
    lag: Duration,
}

impl<S> Wire<S> {
    /// A wire on which nothing happens as long as `life` lasts.
    pub fn new(inner: S, life: Arc<Life>) -> Self {
        let (rule, ear) = (Arc::new(|_: &_| Fate::Pass), Arc::new(|_: &_, _, _: &_| {}));
        Self { inner, life, rule, ear, lag: Duration::ZERO }
    }

    /// Each call's fate.
    #[must_use]
    pub fn with_rule(self, rule: impl Fn(&Call) -> Fate + Send + Sync + 'static) -> Self {
        Self { rule: Arc::new(rule), ..self }
    }

    /// Hears every answer that comes from beyond the wire: its code with each part of its body, as they arrive.
    #[must_use]
    pub fn with_ear(self, ear: impl Fn(&Call, StatusCode, &[u8]) + Send + Sync + 'static) -> Self {
        Self { ear: Arc::new(ear), ..self }
    }

    /// What a watch tells arrives this much later.
    #[must_use]
    pub fn with_lag(self, lag: Duration) -> Self {
        Self { lag, ..self }
    }
}

impl<S, B, R> Service<Request<B>> for Wire<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Send + 'static,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: std::fmt::Debug + Send,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Self { inner, life, rule, ear, lag } = self.clone();
        Box::pin(async move {
            let call = Call {
                method: request.method().clone(),
                path: request.uri().path().to_owned(),
                query: request.uri().query().unwrap_or_default().to_owned(),
            };
            if life.is_over() {
                return std::future::pending().await;
            }
            let fate = rule(&call);
            if let Fate::Refuse(code) = fate {
                return Ok(refusal(code));
            }
            let last = life.count(&call);
            let answer = inner.oneshot(request).await?;
            if last {
                life.end();
            }
            if life.is_over() {
                return std::future::pending().await;
            }
            Ok(match fate {
                Fate::Garble(code) => refusal(code),
                _ => {
                    let lag = if call.is_watch() { lag } else { Duration::ZERO };
                    let code = answer.status();
                    carry(answer, lag, life, move |part| ear(&call, code, part))
                }
            })
        })
    }
}

/// A body that ends, silently, with the life that hears it.
fn carry<R>(
    answer: Response<R>,
    lag: Duration,
    life: Arc<Life>,
    hear: impl Fn(&[u8]) + Send + 'static,
) -> Response<Body>
where
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: std::fmt::Debug + Send,
{
    let (parts, body) = answer.into_parts();
    if body.is_end_stream() {
        return Response::from_parts(parts, http_body_util::Empty::new().boxed_unsync());
    }
    let frames = futures::stream::unfold(
        (Box::pin(body), life, hear),
        move |(mut body, life, hear)| async move {
            let frame = body.frame().await?;
            if let Some(part) = frame.as_ref().ok().and_then(|frame| frame.data_ref()) {
                hear(part);
            }
            if !lag.is_zero() {
                tokio::time::sleep(lag).await;
            }
            if life.is_over() {
                return std::future::pending().await;
            }
            frame.ok().map(|frame| (Ok::<_, Infallible>(frame), (body, life, hear)))
        },
    );
    Response::from_parts(parts, BodyExt::boxed_unsync(StreamBody::new(frames)))
}

/// A body that both Kubernetes' and OpenStack's clients can read.
fn refusal(code: StatusCode) -> Response<Body> {
    let reason = if code == StatusCode::CONFLICT { "Conflict" } else { "InternalError" };
    let text = format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"simulated fault","reason":"{reason}","code":{}}}"#,
        code.as_u16()
    );
    let body = http_body_util::Full::new(Bytes::from(text)).boxed_unsync();
    let mut answer = Response::new(body);
    *answer.status_mut() = code;
    let json = http::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(http::header::CONTENT_TYPE, json);
    answer
}
