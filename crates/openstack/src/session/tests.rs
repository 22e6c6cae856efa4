//! The session against a scripted cloud, on a paused clock.

use super::*;
use crate::transport;
use http::Response;
use serde_json::json;
use std::{collections::VecDeque, convert::Infallible};

/// Answers every login with a new token, and other calls by the script.
#[derive(Clone, Default)]
struct Script(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    logins: usize,
    calls: Vec<String>,
    answers: VecDeque<(u16, &'static str, &'static str)>,
    valid_from: usize,
}

impl Script {
    fn answers(self, answers: &[(u16, &'static str, &'static str)]) -> Self {
        self.0.lock().unwrap().answers = answers.iter().copied().collect();
        self
    }

    fn logins(&self) -> usize {
        self.0.lock().unwrap().logins
    }

    fn calls(&self) -> usize {
        self.0.lock().unwrap().calls.len()
    }

    fn answer(&self, request: &Request<Full<Bytes>>) -> Response<Full<Bytes>> {
        let mut state = self.0.lock().unwrap();
        let path = request.uri().path();
        if path == "/v3/auth/tokens" {
            state.logins += 1;
            let body = json!({"token": {
                "expires_at": "2026-01-01T04:00:00.000000Z", "project": {"id": "p"},
                "catalog": [{"type": "network", "endpoints": [
                    {"interface": "public", "region": "r", "url": "http://cloud/net"}]}]}});
            let token = format!("token-{}", state.logins);
            let answer = Response::builder().status(201).header("x-subject-token", token);
            return answer.body(Full::from(body.to_string())).unwrap();
        }
        state.calls.push(format!("{} {path}", request.method()));
        let token = request.headers()["x-auth-token"].to_str().unwrap().to_owned();
        let number: usize = token.trim_start_matches("token-").parse().unwrap();
        if number < state.valid_from {
            return Response::builder().status(401).body(Full::default()).unwrap();
        }
        let (status, retry_after, body) = state.answers.pop_front().unwrap_or((200, "", "{}"));
        let mut answer = Response::builder().status(status);
        if !retry_after.is_empty() {
            answer = answer.header("retry-after", retry_after);
        }
        answer.body(Full::from(body)).unwrap()
    }

    fn session(&self) -> Session {
        let script = self.clone();
        let service = tower::service_fn(move |request: Request<Full<Bytes>>| {
            let script = script.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(10)).await;
                Ok::<_, Infallible>(script.answer(&request))
            }
        });
        let pairs = [("auth_url", "http://cloud"), ("token", "s3cret")];
        let account = Account::read(&pairs.into_iter().collect()).unwrap();
        let (began_at, began) = ("2026-01-01T00:00:00Z".parse::<Timestamp>(), Instant::now());
        let clock = Clock::of(move || {
            *began_at.as_ref().unwrap() + SignedDuration::try_from(began.elapsed()).unwrap()
        });
        Session::new(account, transport::of(service), clock, Arc::default(), 1)
    }
}

fn get() -> Call {
    Call::new(Service::Network, Method::GET, "/ports?name=x")
}

#[tokio::test(start_paused = true)]
async fn a_hundred_calls_log_in_once_and_once_more_when_the_token_is_revoked() {
    let script = Script::default();
    let session = script.session();
    let all = || async {
        let calls = (0..100).map(|_| async { session.send(&get()).await });
        futures::future::join_all(calls).await
    };
    assert!(all().await.iter().all(Result::is_ok));
    assert_eq!(script.logins(), 1);
    script.0.lock().unwrap().valid_from = 2;
    assert!(all().await.iter().all(Result::is_ok));
    assert_eq!(script.logins(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_second_401_is_an_error_of_the_credentials_and_no_loop() {
    let script = Script::default();
    script.0.lock().unwrap().valid_from = 99;
    let session = script.session();
    for _ in 0..10 {
        let error = Error::from(session.send(&get()).await.unwrap_err());
        assert!(matches!(error, Error::Unauthenticated(_)), "{error}");
    }
    assert_eq!(script.logins(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_token_is_renewed_before_it_expires() {
    let script = Script::default();
    let session = script.session();
    session.send(&get()).await.unwrap();
    tokio::time::advance(Duration::from_secs(4 * 3600 - 299)).await;
    session.send(&get()).await.unwrap();
    assert_eq!(script.logins(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_safe_is_repeated_and_a_post_is_not() {
    let script = Script::default().answers(&[(503, "", "<h1>busy</h1>"), (500, "", "")]);
    let session = script.session();
    assert!(session.send(&get()).await.is_ok());
    assert_eq!(script.calls(), 3);

    let script = Script::default().answers(&[(500, "", "")]);
    let session = script.session();
    let post = Call::new(Service::Network, Method::POST, "/ports").body(json!({}));
    let fault = session.send(&post).await.unwrap_err();
    assert!(!fault.surely_nothing_done());
    assert_eq!(script.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured_by_everybody() {
    let script = Script::default().answers(&[(429, "120", "")]);
    let session = script.session();
    let fault = session.send(&get()).await.unwrap_err();
    assert_eq!(fault.retry_after(), Some(Duration::from_secs(120)));
    let next = session.send(&get()).await.unwrap_err();
    assert!(next.retry_after() > Some(Duration::from_secs(100)));
    assert_eq!(script.calls(), 1, "the second call was not sent");
    tokio::time::advance(Duration::from_secs(121)).await;
    assert!(session.send(&get()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_time_is_over_is_not_sent() {
    let script = Script::default();
    let session = script.session();
    let late = get().not_after("2025-12-31T23:59:59Z".parse().unwrap());
    let fault = session.send(&late).await.unwrap_err();
    assert!(fault.surely_nothing_done());
    assert_eq!(script.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_secret_is_not_repeated() {
    let script = Script::default().answers(&[(
        400,
        "",
        r#"{"NeutronError": {"type": "X", "message": "bad s3cret", "detail": ""}}"#,
    )]);
    let error = Error::from(script.session().send(&get()).await.unwrap_err());
    assert!(error.to_string().contains("bad ***"), "{error}");
}

#[test]
fn the_lower_of_ours_and_theirs_is_spoken() {
    assert_eq!(negotiate("2.103").unwrap(), "compute 2.90");
    assert_eq!(negotiate("2.60").unwrap(), "compute 2.60");
    assert!(negotiate("2.51").unwrap_err().to_string().contains("2.51"));
    assert!(negotiate("").is_err());
}
