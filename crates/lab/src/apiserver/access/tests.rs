//! Who is recognised, and who may do what.

mod wire;

use super::*;
use crate::apiserver::{Config, Key, Peer};
use crate::clock::Clock;
use crate::pki::Authority;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use std::time::Duration;

fn server() -> ApiServer {
    let clock = Clock::start("2026-11-21T09:00:00Z".parse().expect("a time"));
    ApiServer::new(Config::new(clock, Arc::new(Authority::new(&clock))))
}

fn keep(server: &ApiServer, group: &str, resource: &str, object: Value) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let key = Key::new(group, resource, &text("namespace"), &text("name"));
    server.store().create(&key, object).expect("a new object");
}

fn with_token(token: &str) -> HeaderMap {
    let value = format!("Bearer {token}").parse().expect("a header");
    HeaderMap::from_iter([(AUTHORIZATION, value)])
}

fn refusal_of(server: &ApiServer, user: &User, ask: &Attributes<'_>) -> String {
    match authorize(server, user, ask) {
        Ok(()) => "allowed".to_owned(),
        Err(status) => status.message,
    }
}

fn list(resource: &str) -> Attributes<'_> {
    Attributes { verb: "list", resource, ..Attributes::default() }
}

fn bootstrap_secret(id: &str, extra: &Value) -> Value {
    use base64::Engine as _;
    let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let mut data = json!({
        "token-id": encode(id),
        "token-secret": encode("0123456789abcdef"),
        "usage-bootstrap-authentication": encode("true"),
    });
    for (key, value) in extra.as_object().into_iter().flatten() {
        data[key] = encode(value.as_str().unwrap_or_default()).into();
    }
    let name = format!("bootstrap-token-{id}");
    json!({
        "metadata": {"name": name, "namespace": "kube-system"},
        "type": "bootstrap.kubernetes.io/token",
        "data": data,
    })
}

#[tokio::test(start_paused = true)]
async fn certificates_and_nothing_identify() {
    let server = server();
    let none = HeaderMap::new();
    let anonymous = authenticate(&server, &Peer::Anonymous, &none).expect("anybody");
    assert_eq!(anonymous.name, "system:anonymous");
    assert_eq!(anonymous.groups, ["system:unauthenticated"]);
    let pair = server.pki().issue_client("admin", &["system:masters"]);
    let (_, pem) = x509_parser::pem::parse_x509_pem(pair.cert_pem.as_bytes()).expect("PEM");
    let peer = Peer::Certificate(pem.contents);
    let admin = authenticate(&server, &peer, &none).expect("the admin");
    assert_eq!(admin.groups, ["system:masters", "system:authenticated"]);
    assert!(
        admin.extra["authentication.kubernetes.io/credential-id"][0].starts_with("X509SHA256=")
    );
    let foreign = authenticate(&server, &Peer::Certificate(vec![1]), &none);
    assert_eq!(foreign.expect_err("nobody").code, 401);
    let wrong = authenticate(&server, &Peer::Anonymous, &with_token("nonsense"));
    assert_eq!(wrong.expect_err("nobody").code, 401);
}

#[tokio::test(start_paused = true)]
async fn bootstrap_tokens_are_good_until_they_expire() {
    let server = server();
    let good = json!({
        "expiration": "2026-11-21T10:00:00Z",
        "auth-extra-groups": "system:bootstrappers:worker",
    });
    keep(&server, "", "secrets", bootstrap_secret("abcdef", &good));
    let unused = json!({"usage-bootstrap-authentication": "false"});
    keep(&server, "", "secrets", bootstrap_secret("nousag", &unused));
    let stranger = json!({"auth-extra-groups": "system:masters"});
    keep(&server, "", "secrets", bootstrap_secret("master", &stranger));
    let who = |token: &str| authenticate(&server, &Peer::Anonymous, &with_token(token));
    let user = who("abcdef.0123456789abcdef").expect("known");
    assert_eq!(user.name, "system:bootstrap:abcdef");
    let groups = ["system:bootstrappers", "system:bootstrappers:worker", "system:authenticated"];
    assert_eq!(user.groups, groups);
    for token in ["abcdef.0123456789abcdeX", "nousag.0123456789abcdef", "master.0123456789abcdef"] {
        assert_eq!(who(token).expect_err(token).code, 401, "{token}");
    }
    tokio::time::advance(Duration::from_secs(3_600)).await;
    assert_eq!(who("abcdef.0123456789abcdef").expect_err("expired").code, 401);
}

#[tokio::test(start_paused = true)]
async fn a_service_account_ends_with_its_token_and_the_token_with_it() {
    let server = server();
    let account = json!({"metadata": {"name": "robot", "namespace": "default", "uid": "u1"}});
    keep(&server, "", "serviceaccounts", account);
    let claims = token::Claims {
        namespace: "default".to_owned(),
        name: "robot".to_owned(),
        uid: "u1".to_owned(),
        id: "j1".to_owned(),
        audiences: vec![token::AUDIENCE.to_owned()],
        issued: server.clock().now().as_second(),
        expires: server.clock().now().as_second() + 600,
        bound: None,
    };
    let written = token::write(&server, &claims);
    let who = |token: &str| authenticate(&server, &Peer::Anonymous, &with_token(token));
    let user = who(&written).expect("known");
    assert_eq!(user.name, "system:serviceaccount:default:robot");
    assert_eq!(user.uid, "u1");
    let forged = token::write(&self::server(), &claims);
    assert_eq!(who(&forged).expect_err("signed by another").code, 401);
    let vault = token::Claims { audiences: vec!["vault".to_owned()], ..claims };
    assert_eq!(who(&token::write(&server, &vault)).expect_err("not for us").code, 401);
    server
        .store()
        .remove(&Key::new("", "serviceaccounts", "default", "robot"), None)
        .expect("gone");
    assert_eq!(who(&written).expect_err("no account").code, 401);
}

#[tokio::test(start_paused = true)]
async fn refusals_are_in_the_words_of_kubernetes() {
    let server = server();
    let user = User::new("plain-user", &[]);
    let secrets = Attributes { namespace: "auth", ..list("secrets") };
    let text = "secrets is forbidden: User \"plain-user\" cannot list resource \"secrets\" in API group \"\" in the namespace \"auth\"";
    assert_eq!(refusal_of(&server, &user, &secrets), text);
    let scale = Attributes {
        verb: "patch",
        api_group: "apps",
        resource: "deployments",
        subresource: "scale",
        namespace: "auth",
        name: "d",
        ..Attributes::default()
    };
    let text = "deployments.apps \"d\" is forbidden: User \"plain-user\" cannot patch resource \"deployments/scale\" in API group \"apps\" in the namespace \"auth\"";
    assert_eq!(refusal_of(&server, &user, &scale), text);
    let path = |path| Attributes { verb: "get", path, ..Attributes::default() };
    let text = "forbidden: User \"plain-user\" cannot get path \"/metrics/x\"";
    assert_eq!(refusal_of(&server, &user, &path("/metrics/x")), text);
    assert_eq!(refusal_of(&server, &user, &path("/healthz")), "allowed");
    assert_eq!(refusal_of(&server, &User::new("a", &["system:masters"]), &secrets), "allowed");
}

fn grant_role_writer(server: &ApiServer) {
    let rules = json!([
        {"apiGroups": [GROUP], "resources": ["*"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
    ]);
    keep(server, GROUP, "clusterroles", json!({"metadata": {"name": "writer"}, "rules": rules}));
    let binding = json!({
        "metadata": {"name": "writer"},
        "subjects": [{"kind": "User", "name": "plain-user"}],
        "roleRef": {"kind": "ClusterRole", "name": "writer"},
    });
    keep(server, GROUP, "clusterrolebindings", binding);
}

const GROUP: &str = rbac::GROUP;

#[tokio::test(start_paused = true)]
async fn nobody_grants_what_he_does_not_hold() {
    let server = server();
    grant_role_writer(&server);
    let user = User::new("plain-user", &[]);
    let ask = Attributes {
        verb: "create",
        api_group: GROUP,
        resource: "clusterroles",
        name: "more",
        ..Attributes::default()
    };
    let more = json!({"metadata": {"name": "more"}, "rules": [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "delete"]},
    ]});
    let refused = admit(&server, &user, &ask, Some(&more), None).expect_err("too much");
    let text = "clusterroles.rbac.authorization.k8s.io \"more\" is forbidden: user \"plain-user\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\"]}\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}";
    assert_eq!(refused.message, text);
    let same = json!({"metadata": {"name": "more"}, "rules": [more["rules"][1].clone()]});
    let mut less = same;
    less["rules"][0]["verbs"] = json!(["get"]);
    admit(&server, &user, &ask, Some(&less), None).expect("no more than he holds");
    let bind = |role: &str| {
        let ask = Attributes { resource: "clusterrolebindings", ..ask };
        let role = json!({"kind": "ClusterRole", "name": role});
        admit(&server, &user, &ask, Some(&json!({"roleRef": role})), None)
    };
    assert_eq!(bind("view").expect_err("too much").code, 403);
    assert_eq!(bind("ghost").expect_err("no such role").code, 404);
    bind("writer").expect("his own role");
}

fn node_world() -> (ApiServer, User) {
    let server = server();
    let pod = |name: &str, node: &str, secret: &str| {
        json!({
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"nodeName": node, "volumes": [{"secret": {"secretName": secret}}]},
        })
    };
    keep(&server, "", "pods", pod("p1", "n1", "mine"));
    keep(&server, "", "pods", pod("p2", "n2", "notmine"));
    (server, User::new("system:node:n1", &["system:nodes"]))
}

#[tokio::test(start_paused = true)]
async fn a_node_reads_what_its_pods_need() {
    let (server, node) = node_world();
    let secret = |name| Attributes {
        verb: "get",
        resource: "secrets",
        namespace: "default",
        name,
        ..Attributes::default()
    };
    assert_eq!(refusal_of(&server, &node, &secret("mine")), "allowed");
    let text = "secrets \"notmine\" is forbidden: User \"system:node:n1\" cannot get resource \"secrets\" in API group \"\" in the namespace \"default\": no relationship found between node 'n1' and this object";
    assert_eq!(refusal_of(&server, &node, &secret("notmine")), text);
    let text = "nodes is forbidden: User \"system:node:n1\" cannot list resource \"nodes\" in API group \"\" at the cluster scope: node 'n1' cannot read all nodes, only its own Node object";
    assert_eq!(refusal_of(&server, &node, &list("nodes")), text);
    let own = Attributes { name: "n1", ..list("nodes") };
    assert_eq!(refusal_of(&server, &node, &own), "allowed");
    let own = Attributes { field_selector: Some("spec.nodeName=n1"), ..list("pods") };
    assert_eq!(refusal_of(&server, &node, &own), "allowed");
    for other in ["", "spec.nodeName=n2", "spec.nodeName!=n1"] {
        let all = Attributes { field_selector: Some(other), ..list("pods") };
        assert!(
            refusal_of(&server, &node, &all)
                .ends_with("can only list/watch pods with spec.nodeName field selector")
        );
    }
    let other = Attributes { verb: "get", name: "p2", namespace: "default", ..list("pods") };
    assert!(refusal_of(&server, &node, &other).ends_with("node 'n1' and this object"));
    let nameless = User::new("not-a-node", &["system:nodes"]);
    assert!(refusal_of(&server, &nameless, &list("nodes")).ends_with("at the cluster scope"));
}

#[tokio::test(start_paused = true)]
async fn a_node_writes_itself_and_its_pods_alone() {
    let (server, user) = node_world();
    let node = |labels: Value| json!({"metadata": {"name": "n1", "labels": labels}});
    let ask = |verb, resource, subresource, name| Attributes {
        verb,
        resource,
        subresource,
        name,
        ..Attributes::default()
    };
    let check = |ask: Attributes<'_>, new: Option<&Value>, old: Option<&Value>| {
        admit(&server, &user, &ask, new, old).err().map_or_else(
            || "fine".to_owned(),
            |status| status.message.split_once(" is forbidden: ").expect("a refusal").1.to_owned(),
        )
    };
    let create = |labels| check(ask("create", "nodes", "", "n1"), Some(&node(labels)), None);
    assert_eq!(create(json!({"kubernetes.io/hostname": "n1", "my/label": "1"})), "fine");
    let text =
        "node \"n1\" is not allowed to set the following labels: node-role.kubernetes.io/worker";
    assert_eq!(create(json!({"node-role.kubernetes.io/worker": ""})), text);
    let other = check(ask("patch", "nodes", "status", "n2"), None, None);
    assert_eq!(other, "node \"n1\" is not allowed to modify node \"n2\"");
    let new = node(json!({"foo.kubernetes.io/x": "1", "topology.kubernetes.io/zone": "z"}));
    let update = check(ask("patch", "nodes", "", "n1"), Some(&new), Some(&node(json!({}))));
    assert_eq!(update, "is not allowed to modify labels: foo.kubernetes.io/x");
    let mut tainted = node(json!({}));
    tainted["spec"] = json!({"taints": [{"key": "a", "effect": "NoSchedule"}]});
    let update = check(ask("patch", "nodes", "", "n1"), Some(&node(json!({}))), Some(&tainted));
    assert_eq!(update, "node \"n1\" is not allowed to modify taints");
    let pod = json!({"metadata": {"name": "p2"}, "spec": {"nodeName": "n2"}});
    let status = check(ask("patch", "pods", "status", "p2"), Some(&pod), Some(&pod));
    let text = "node \"n1\" can only update pod status for pods with spec.nodeName set to itself";
    assert_eq!(status, text);
    let delete = check(ask("delete", "pods", "", "p2"), None, Some(&pod));
    assert_eq!(delete, "node \"n1\" can only delete pods with spec.nodeName set to itself");
}
