//! The same asked over the wire: reviews, tokens, impersonation, bindings.

use super::{grant_role_writer, keep, server};
use crate::apiserver::access::User;
use crate::apiserver::{ApiServer, Peer};
use crate::client::{ApiError, Client};
use crate::dial::Credential;
use http::{HeaderName, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tower::ServiceExt as _;

fn admin() -> User {
    User::new("admin", &["system:masters"])
}

fn client(server: &ApiServer, user: User) -> Client {
    Client::over(server.service(Peer::User(user)))
}

fn told(error: &ApiError) -> (u16, &str) {
    (error.code, error.message.as_str())
}

#[tokio::test(start_paused = true)]
async fn reviews_say_who_may_do_what_and_why() {
    let server = server();
    grant_role_writer(&server);
    let plain = client(&server, User::new("plain-user", &[]));
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let ask = |verb: &str| {
        json!({"spec": {"resourceAttributes": {
            "namespace": "auth", "verb": verb, "resource": "pods", "version": "v1",
        }}})
    };
    let may = plain.create(path, &ask("get")).await.expect("an answer");
    let reason = "RBAC: allowed by ClusterRoleBinding \"writer\" of ClusterRole \"writer\" to User \"plain-user\"";
    assert_eq!(may["status"], json!({"allowed": true, "reason": reason}));
    let may_not = plain.create(path, &ask("delete")).await.expect("an answer");
    assert_eq!(may_not["status"], json!({"allowed": false}));

    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let refused = plain.create(path, &json!({"spec": {}})).await.expect_err("not his to ask");
    assert_eq!(refused.code, 403);
    let wrong = client(&server, admin()).create(path, &json!({"spec": {}})).await;
    let text = ".authorization.k8s.io \"\" is invalid: [spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified, spec.user: Invalid value: \"\": at least one of user or group must be specified]";
    assert_eq!(told(&wrong.expect_err("nothing is asked")), (422, text));

    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let rules = plain.create(path, &json!({"spec": {"namespace": "auth"}})).await.expect("rules");
    let pods = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
    let all = rules["status"]["resourceRules"].as_array().expect("rules");
    assert!(all.contains(&pods), "{all:?}");
}

#[tokio::test(start_paused = true)]
async fn a_requested_token_is_a_way_in() {
    let server = server();
    let account = json!({"metadata": {"name": "robot", "namespace": "default", "uid": "u1"}});
    keep(&server, "", "serviceaccounts", account);
    let admin = client(&server, admin());
    let path = "/api/v1/namespaces/default/serviceaccounts/robot/token";
    let short = admin.create(path, &json!({"spec": {"expirationSeconds": 5}})).await;
    let text = "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes";
    assert_eq!(told(&short.expect_err("too short")), (422, text));
    let given = admin.create(path, &json!({"spec": {"expirationSeconds": 600}})).await;
    let given = given.expect("a token");
    assert_eq!(given["status"]["expirationTimestamp"], "2026-11-21T09:10:00Z");
    let token = given["status"]["token"].as_str().expect("a token").to_owned();

    let robot =
        Client::over(server.service(Peer::Anonymous)).showing(&Credential::Bearer(token.clone()));
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let own = robot.create(path, &json!({})).await.expect("an answer");
    assert_eq!(own["status"]["userInfo"]["username"], "system:serviceaccount:default:robot");
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let review = admin.create(path, &json!({"spec": {"token": token}})).await.expect("an answer");
    assert_eq!(review["status"]["authenticated"], true);
    let wrong =
        admin.create(path, &json!({"spec": {"token": "nonsense"}})).await.expect("an answer");
    assert_eq!(wrong["status"], json!({"user": {}, "error": "invalid bearer token"}));
}

async fn as_other(server: &ApiServer, user: User, headers: &[(&'static str, &str)]) -> Value {
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let mut request = Request::post(path)
        .header("content-type", "application/json")
        .body(Full::<bytes::Bytes>::from("{}"))
        .expect("a request");
    for (name, value) in headers {
        request
            .headers_mut()
            .append(HeaderName::from_static(name), value.parse().expect("a value"));
    }
    let answer = server.service(Peer::User(user)).oneshot(request).await.expect("an answer");
    let body = answer.into_body().collect().await.expect("a body").to_bytes();
    serde_json::from_slice(&body).expect("JSON")
}

#[tokio::test(start_paused = true)]
async fn masters_may_be_anybody_and_others_only_themselves() {
    let server = server();
    let jane = [
        ("impersonate-user", "jane"),
        ("impersonate-group", "dev"),
        ("impersonate-extra-scopes", "view"),
    ];
    let seen = as_other(&server, admin(), &jane).await;
    assert_eq!(
        seen["status"]["userInfo"],
        json!({
            "username": "jane", "groups": ["dev", "system:authenticated"],
            "extra": {"scopes": ["view"]},
        })
    );
    let refused = as_other(&server, User::new("plain-user", &[]), &jane).await;
    let text = "users \"jane\" is forbidden: User \"plain-user\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope";
    assert_eq!(refused["message"], text);
    let nameless = as_other(&server, admin(), &[("impersonate-group", "dev")]).await;
    assert_eq!(nameless["code"], 400);
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_bound_once() {
    let server = server();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "uid": "u1"}, "spec": {},
    });
    keep(&server, "", "pods", pod);
    let admin = client(&server, admin());
    let path = "/api/v1/namespaces/default/pods/p/binding";
    let to = |kind: &str, name: &str| json!({"metadata": {"name": "p"}, "target": {"kind": kind, "name": name}});
    admin.create(path, &to("Node", "a")).await.expect("a binding");
    let text = "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"a\"";
    let again = admin.create(path, &to("Node", "b")).await.expect_err("bound");
    assert_eq!(told(&again), (409, text));
    let text = "[target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\", target.name: Required value]";
    let wrong = admin.create(path, &to("Pod", "")).await.expect_err("no node");
    assert_eq!(told(&wrong), (500, text));
}

#[tokio::test(start_paused = true)]
async fn only_who_may_sign_approves() {
    use base64::Engine as _;
    let server = server();
    let rules = json!([{"apiGroups": ["certificates.k8s.io"], "resources": ["*"], "verbs": ["*"]}]);
    let group = "rbac.authorization.k8s.io";
    let role = json!({"metadata": {"name": "approver"}, "rules": rules});
    keep(&server, group, "clusterroles", role);
    let binding = json!({
        "metadata": {"name": "approver"}, "subjects": [{"kind": "User", "name": "plain-user"}],
        "roleRef": {"kind": "ClusterRole", "name": "approver"},
    });
    keep(&server, group, "clusterrolebindings", binding);
    let narrow = json!([{
        "apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests", "certificatesigningrequests/approval"],
        "verbs": ["*"],
    }]);
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let request = |organization: &str, signer: &str| {
        let (csr, _) = crate::pki::request("jane", &[organization], &[], &[]);
        json!({"metadata": {"name": "c1"}, "spec": {
            "request": encode(&csr), "signerName": signer, "usages": ["client auth"],
        }})
    };
    let client_signer = "kubernetes.io/kube-apiserver-client";
    let user = client(&server, User::new("plain-user", &[]));
    let masters = user.create(path, &request("system:masters", client_signer)).await;
    let text = "certificatesigningrequests.certificates.k8s.io \"c1\" is forbidden: use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
    assert_eq!(told(&masters.expect_err("too much")), (403, text));
    let mut made = user.create(path, &request("dev", client_signer)).await.expect("a request");
    assert_eq!(made["spec"]["username"], "plain-user");

    let admin = client(&server, admin());
    let role = format!("/apis/{group}/v1/clusterroles/approver");
    admin
        .replace(&role, &json!({"metadata": {"name": "approver"}, "rules": narrow}))
        .await
        .expect("a role");
    made["status"]["conditions"] = json!([{"type": "Approved", "status": "True", "reason": "x"}]);
    let approval = format!("{path}/c1/approval");
    let refused = user.replace(&approval, &made).await.expect_err("no right to the signer");
    let text = "certificatesigningrequests.certificates.k8s.io \"c1\" is forbidden: user not permitted to approve requests with signerName \"kubernetes.io/kube-apiserver-client\"";
    assert_eq!(told(&refused), (403, text));
    let approved = admin.replace(&approval, &made).await.expect("an approval");
    assert_eq!(approved["status"]["conditions"][0]["lastUpdateTime"], "2026-11-21T09:00:00Z");
    made = approved;
    made["status"]["conditions"] = json!([]);
    let removed = admin.replace(&approval, &made).await.expect_err("what is decided stays");
    assert_eq!(removed.code, 422);
}
