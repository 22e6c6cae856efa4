//! What goes wrong on purpose, with tokens and with everything else, and that the books tell.

use crate::fixture::{Lab, text};
use drover_lab::cloud::{Effect, Fault};
use serde_json::{Value, json};
use std::time::Duration;

const SERVERS: &str = "/compute/v2.1/servers";

#[tokio::test(start_paused = true)]
async fn a_proxy_answers_in_html_before_or_after_the_act() {
    let lab = Lab::start().await;
    let wish = lab.wish("s", json!({"networks": "none", "tags": ["t"]})).await;
    let busy = Effect::Status { code: 429, retry_after: Some(7), acted: false };
    let late = Effect::Status { code: 504, retry_after: None, acted: true };
    lab.cloud.set_faults(vec![
        Fault::on("compute POST /servers", busy).times(1),
        Fault::on("compute POST /servers", late).times(1),
    ]);
    let refused = lab.post(SERVERS, wish.clone()).await;
    assert_eq!((refused.status, &refused.headers["retry-after"]), (429, &"7".parse().unwrap()));
    assert!(text(&refused.body).contains("<html>"), "{}", refused.body);
    assert_eq!(lab.cloud.ledger().servers_made, 0);
    assert_eq!(lab.post(SERVERS, wish.clone()).await.status, 504);
    assert_eq!(lab.cloud.ledger().made["t"], 1, "the act was done");
    assert_eq!(lab.post(SERVERS, wish).await.status, 202);
    assert_eq!(lab.cloud.ledger().made["t"], 2);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_lost_or_late_and_the_act_was_done() {
    let lab = Lab::start().await;
    let wish = lab.wish("s", json!({"networks": "none"})).await;
    lab.cloud.set_faults(vec![
        Fault::on("compute POST /servers", Effect::Cut { acted: true }).times(1),
        Fault::on("compute POST /servers", Effect::Slow { millis: 90_000 }).times(1),
    ]);
    assert!(lab.post(SERVERS, wish.clone()).await.broken);
    assert_eq!(lab.cloud.ledger().servers.len(), 1);
    let slow = tokio::time::timeout(Duration::from_secs(60), lab.post(SERVERS, wish)).await;
    assert!(slow.is_err());
    assert_eq!(lab.cloud.ledger().servers.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn every_third_call_fails_when_asked_to() {
    let lab = Lab::start().await;
    lab.cloud.set_faults(vec![Fault::on("compute", Effect::status(500)).every(3)]);
    let mut statuses = Vec::new();
    for _ in 0..6 {
        statuses.push(lab.get(SERVERS).await.status);
    }
    assert_eq!(statuses, [200, 200, 500, 200, 200, 500]);
}

#[tokio::test(start_paused = true)]
async fn servers_meet_the_end_that_a_fault_decides() {
    let lab = Lab::start().await;
    let cases = [
        (Effect::StuckBuild, "BUILD"),
        (Effect::BootFailure { message: "no kvm".to_owned() }, "ERROR"),
        (Effect::Vanish { millis: 1_000 }, ""),
        (Effect::NoAddresses, "ACTIVE"),
        (Effect::StuckDeleting, "ACTIVE"),
    ];
    for (effect, status) in cases {
        lab.cloud.set_faults(vec![Fault::on("compute POST /servers", effect.clone())]);
        let id = lab.server("s", json!({})).await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        let server = lab.show(&id).await;
        assert_eq!(text(&server["status"]), status, "{effect:?}");
        lab.delete(&format!("{SERVERS}/{id}")).await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        let left = lab.get(&format!("{SERVERS}/{id}")).await;
        match effect {
            Effect::NoAddresses => assert_eq!(server["addresses"], json!({})),
            Effect::StuckDeleting => {
                assert_eq!(left.body["server"]["OS-EXT-STS:task_state"], "deleting");
                continue;
            }
            _ => {}
        }
        assert_eq!(left.status, 404, "{effect:?}");
    }
    assert_eq!(lab.cloud.ledger().servers.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn volumes_and_ports_meet_theirs() {
    let lab = Lab::start().await;
    let make = async |effect: Effect| {
        lab.cloud.set_faults(vec![Fault::on("* POST", effect)]);
        let made = lab.post("/volume/v3/volumes", json!({"volume": {"size": 1}})).await.body;
        tokio::time::sleep(Duration::from_secs(10)).await;
        format!("/volume/v3/volumes/{}", text(&made["volume"]["id"]))
    };
    let failed = make(Effect::VolumeError).await;
    assert_eq!(lab.get(&failed).await.body["volume"]["status"], "error");
    let clinging = make(Effect::VolumeErrorDeleting).await;
    lab.delete(&clinging).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(lab.get(&clinging).await.body["volume"]["status"], "error_deleting");

    lab.cloud.set_faults(vec![Fault::on("network POST /ports", Effect::PortDown)]);
    let port = lab.port("p").await;
    let id = lab.server("s", json!({"networks": [{"port": port}]})).await;
    lab.until(&id, "ACTIVE").await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(lab.cloud.ledger().ports[0].status, "DOWN");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_lags_leaves_out_what_is_young() {
    let lab = Lab::start().await;
    lab.cloud.set_faults(vec![Fault::on("compute GET", Effect::Lag { millis: 5_000 })]);
    let id = lab.server("s", json!({})).await;
    let listed = async || lab.get(SERVERS).await.body["servers"].as_array().unwrap().len();
    assert_eq!(listed().await, 0);
    assert_eq!(lab.show(&id).await["id"], json!(id), "a look at the server itself is fresh");
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(listed().await, 1);
}

#[tokio::test(start_paused = true)]
async fn tokens_expire_and_revoked_ones_live_on_where_they_were_seen() {
    let lab = Lab::start().await;
    assert_eq!(lab.get(SERVERS).await.status, 200);
    let revoke = [("x-subject-token", lab.token.as_str())];
    assert_eq!(lab.call("DELETE", "/identity/v3/auth/tokens", &revoke, None).await.status, 204);
    assert_eq!(lab.get(SERVERS).await.status, 200, "cached");
    assert_eq!(lab.get("/image/v2/images").await.status, 401, "first seen revoked");
    tokio::time::sleep(Duration::from_secs(301)).await;
    assert_eq!(lab.get(SERVERS).await.status, 401);

    let mut lab = Lab::start().await;
    tokio::time::sleep(Duration::from_hours(4)).await;
    assert_eq!(lab.get(SERVERS).await.status, 401);
    lab.log_in("drover").await;
    assert_eq!(lab.get(SERVERS).await.status, 200);
    lab.cloud.expire_tokens();
    let refused = lab.get("/network/v2.0/ports").await;
    assert_eq!(refused.status, 401);
    assert_eq!(
        refused.headers["www-authenticate"],
        "Keystone uri=\"http://cloud.lab/identity/v3\""
    );
}

#[tokio::test(start_paused = true)]
async fn a_token_without_a_project_sees_lists_without_its_own_things() {
    let mut lab = Lab::start().await;
    lab.port("p").await;
    let user = json!({"name": "drover", "domain": {"name": "Default"}, "password": "password"});
    let auth = json!({"auth": {
        "identity": {"methods": ["password"], "password": {"user": user}}, "scope": "unscoped",
    }});
    let answer = lab.post("/identity/v3/auth/tokens", auth).await;
    assert_eq!(answer.body["token"].get("project"), None);
    lab.token = answer.headers["x-subject-token"].to_str().unwrap().to_owned();
    assert_eq!(lab.get("/network/v2.0/ports").await.body, json!({"ports": []}));
    assert_eq!(
        lab.get("/network/v2.0/networks").await.body["networks"].as_array().unwrap().len(),
        1
    );
    assert_eq!(lab.get(SERVERS).await.status, 403);
}

#[tokio::test(start_paused = true)]
async fn the_inspection_page_shows_the_books_and_takes_faults() {
    let lab = Lab::start().await;
    let id = lab.server("s", json!({"tags": ["machine.1"], "metadata": {"a": "b"}})).await;
    let page = lab.get("/lab/state").await.body;
    assert_eq!(page["servers"][0]["id"], json!(id));
    assert_eq!(page["servers"][0]["metadata"], json!({"a": "b"}));
    assert_eq!(page["made_by_tag"], json!({"machine.1": 1}));
    assert_eq!(page["made"], json!({"server": 1}));
    assert_eq!(page["calls"]["compute POST /servers"], 1);
    assert_eq!(lab.cloud.ledger().count("compute POST"), 1);

    let rules = json!([{"call": "image", "effect": {"status": {"code": 503}}}]);
    let put = lab.call("PUT", "/lab/faults", &[], Some(&rules)).await;
    assert_eq!(put.status, 200, "{}", put.body);
    assert_eq!(lab.get("/image/v2/images").await.status, 503);
    let wrong = json!([{"call": "image", "effect": "nope"}]);
    assert_eq!(lab.call("PUT", "/lab/faults", &[], Some(&wrong)).await.status, 400);
}

#[tokio::test(start_paused = true)]
async fn only_an_operator_sees_user_data_and_changes_quotas() {
    let mut lab = Lab::start().await;
    let id = lab.server("s", json!({"user_data": "eA=="})).await;
    let field = "OS-EXT-SRV-ATTR:user_data";
    assert_eq!(lab.show(&id).await.get(field), None);
    let path = format!("/network/v2.0/quotas/{}", lab.project);
    let quota = json!({"quota": {"port": 3}});
    assert_eq!(lab.call("PUT", &path, &[], Some(&quota)).await.status, 403);
    lab.log_in("admin").await;
    assert_eq!(lab.show(&id).await[field], "eA==");
    assert_eq!(lab.call("PUT", &path, &[], Some(&quota)).await.body["quota"]["port"], 3);
}

#[tokio::test]
async fn a_cloud_behind_a_listener_answers_until_stopped_and_ends_with_its_last_clone() {
    let lab = Lab::start().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut power = lab.cloud.power();
    let stop = tokio_util::sync::CancellationToken::new();
    let serving = tokio::spawn(lab.cloud.clone().serve(listener, stop.clone()));
    let connection = tokio::net::TcpStream::connect(address).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(connection);
    let (mut sender, driver) = hyper::client::conn::http1::handshake(io).await.unwrap();
    let driver = tokio::spawn(driver);
    let request = http::Request::get("/compute/").header("host", "x").body(String::new()).unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
    stop.cancel();
    drop(sender);
    serving.await.unwrap().unwrap();
    driver.await.unwrap().unwrap();
    drop(lab);
    assert!(power.recv().await.is_none(), "nobody is left to tell");
}

#[tokio::test(start_paused = true)]
async fn unknown_paths_are_refused_by_each_service_in_its_way() {
    let lab = Lab::start().await;
    for (path, field) in [
        ("/compute/v2.1/nope", "message"),
        ("/network/v2.0/nope", "NeutronError"),
        ("/image/v2/nope", "message"),
        ("/volume/v3/nope", "message"),
    ] {
        let answer = lab.get(path).await;
        assert_eq!(answer.status, 404, "{path}");
        assert_ne!(answer.body[field], Value::Null, "{path}");
    }
    assert!(text(&lab.get("/identity/v3/nope").await.body).contains("<!doctype html>"));
    assert_eq!(lab.post("/compute/v2.1/servers/x/action", json!({})).await.status, 404);
    let id = lab.server("s", json!({})).await;
    let answer = lab.post(&format!("{SERVERS}/{id}/action"), json!({"resize": {}})).await;
    assert_eq!(answer.status, 501, "what a real one has and this one has not");
}
