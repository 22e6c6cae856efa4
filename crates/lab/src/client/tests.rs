//! Tests of the client over a server of a few lines.

use super::*;
use crate::dial::BoxError;
use futures::StreamExt as _;
use http::Response;
use http_body_util::StreamBody;
use serde_json::json;
use std::convert::Infallible;
use std::sync::Mutex;

/// Answers each request with the next of these: a status and the pieces of a body.
fn scripted(answers: Vec<(u16, Vec<String>)>) -> (Client, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
    let service = tower::service_fn(move |request: Request<Full<Bytes>>| {
        log.lock().unwrap().push(format!("{} {}", request.method(), request.uri()));
        let next = answers.lock().unwrap().pop_front();
        async move {
            let Some((status, pieces)) = next else {
                return Err::<Response<_>, BoxError>("connection refused".into());
            };
            let frames = pieces
                .into_iter()
                .map(|piece| Ok::<_, Infallible>(http_body::Frame::data(Bytes::from(piece))));
            let body = StreamBody::new(futures::stream::iter(frames));
            Ok(Response::builder().status(status).body(body).unwrap())
        }
    });
    (Client::over(service), seen)
}

fn line(kind: &str, name: &str, version: &str) -> String {
    let object = json!({"metadata": {"name": name, "resourceVersion": version}});
    format!("{}\n", json!({"type": kind, "object": object}))
}

#[tokio::test]
async fn an_error_carries_the_words_of_the_server() {
    let status =
        json!({"kind": "Status", "reason": "NotFound", "message": "nodes \"a\" not found"});
    let (client, _) = scripted(vec![(404, vec![status.to_string()]), (502, vec!["<p>".into()])]);
    let error = client.get("/api/v1/nodes/a").await.unwrap_err();
    assert!(error.is_not_found());
    assert_eq!(
        (error.reason.as_str(), error.to_string().as_str()),
        ("NotFound", "nodes \"a\" not found")
    );
    assert_eq!(client.get("/").await.unwrap_err().message, "<p>");
    let error = client.get("/").await.unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (0, "connection refused"));
}

#[tokio::test]
async fn a_watch_is_decoded_however_its_lines_are_cut() {
    let text = line("ADDED", "a", "1") + &line("MODIFIED", "a", "2") + &line("DELETED", "a", "3");
    for size in [1, 7, 64, text.len()] {
        let pieces = text.as_bytes().chunks(size).map(|c| String::from_utf8_lossy(c).into_owned());
        let (client, _) = scripted(vec![(200, pieces.collect())]);
        let events: Vec<_> = client.watch("/x").await.unwrap().collect().await;
        let versions: Vec<_> = events
            .iter()
            .map(|event| match event.as_ref().unwrap() {
                Event::Added(o) => format!("+{}", o["metadata"]["resourceVersion"]),
                Event::Modified(o) => format!("~{}", o["metadata"]["resourceVersion"]),
                Event::Deleted(o) => format!("-{}", o["metadata"]["resourceVersion"]),
                Event::Bookmark { .. } => "b".to_owned(),
            })
            .collect();
        assert_eq!(versions, ["+\"1\"", "~\"2\"", "-\"3\""], "pieces of {size} bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn an_informer_goes_on_after_a_break_and_lists_again_after_410() {
    let list = |name: &str, version: &str| {
        json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": version},
               "items": [{"metadata": {"name": name}}]})
        .to_string()
    };
    let gone = json!({"type": "ERROR", "object": {"kind": "Status", "code": 410}}).to_string();
    let (client, seen) = scripted(vec![
        (200, vec![list("a", "5")]),
        (200, vec![line("ADDED", "b", "6")]),
        (200, vec![gone + "\n"]),
        (200, vec![list("c", "9")]),
        (200, vec![line("BOOKMARK", "", "12")]),
    ]);
    let mut informer = Informer::start(&client, "/api/v1/nodes");
    informer.ready().await;
    while informer.get("", "c").is_none() {
        informer.changed().await;
    }
    assert_eq!(informer.list().len(), 1, "what the new list lacks is gone");
    assert_eq!(informer.get("", "c").unwrap()["kind"], "Node");
    while seen.lock().unwrap().len() < 6 {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    let seen: Vec<_> = seen
        .lock()
        .unwrap()
        .iter()
        .map(|path| path.replace("allowWatchBookmarks=true&watch=true", "w"))
        .collect();
    assert_eq!(
        seen[..6],
        [
            "GET /api/v1/nodes",
            "GET /api/v1/nodes?resourceVersion=5&w",
            "GET /api/v1/nodes?resourceVersion=6&w",
            "GET /api/v1/nodes",
            "GET /api/v1/nodes?resourceVersion=9&w",
            "GET /api/v1/nodes?resourceVersion=12&w",
        ]
    );
}
