//! A project on real services for one case alone, as `tools/openstack` makes its own: whatever others do stays out of its answers.

use crate::side::{Answer, Side};
use http::Request;
use serde_json::{Value, json};
use std::time::Duration;

const PASSWORD: &str = "case-secret";
/// How long what a case left behind may take to go.
const PATIENCE: Duration = Duration::from_secs(120);

/// The project and its user, by their ids.
pub struct Home {
    project: String,
    user: String,
    /// Of the administrator.
    token: String,
}

impl Home {
    /// Makes the project with all that a case finds, and has `side` log in to it.
    pub async fn build(side: &mut Side, cluster: &str) -> Self {
        let (admin, ..) = side.log_in("admin").await;
        let name = format!("drover-{:08x}", fastrand::u32(..));
        let project = json!({"name": name, "domain_id": "default"});
        let project = made(side, &admin, "identity /v3/projects", "project", project).await;
        let user = json!({"name": name, "password": PASSWORD, "domain_id": "default",
            "default_project_id": project});
        let user = made(side, &admin, "identity /v3/users", "user", user).await;
        let roles = call(side, &admin, "GET", "identity /v3/roles?name=member", None).await;
        let role = roles.body["roles"][0]["id"].as_str().expect("a role for members");
        let grant = format!("identity /v3/projects/{project}/users/{user}/roles/{role}");
        assert_eq!(call(side, &admin, "PUT", &grant, None).await.status, 204);
        let auth = &mut side.clouds["drover"]["auth"];
        for (setting, value) in
            [("username", &name), ("project_name", &name), ("password", &PASSWORD.to_owned())]
        {
            auth[setting] = value.as_str().into();
        }
        let (own, ..) = side.log_in("drover").await;
        let credential = credential(side, &own, &user).await;
        let auth = &mut side.clouds["drover-appcred"]["auth"];
        auth["application_credential_id"] = credential["id"].clone();
        auth["application_credential_secret"] = credential["secret"].clone();
        wire_up(side, &own, cluster).await;
        Self { project, user, token: admin }
    }

    /// Takes the project away, with what the case left in it.
    pub async fn leave(self, side: &Side) {
        let end = tokio::time::Instant::now() + PATIENCE;
        // A server lets go of its ports and volumes when it is gone.
        while !self.drop_all(side, "compute /v2.1/servers?all_tenants=1&project_id=").await {
            assert!(tokio::time::Instant::now() < end, "servers of {} stay", self.project);
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let routers = "network /v2.0/routers?project_id=";
        for router in self.ids(side, routers).await {
            let path = format!("network /v2.0/routers/{router}/remove_router_interface");
            for subnet in self.ids(side, "network /v2.0/subnets?project_id=").await {
                let interface = Some(json!({"subnet_id": subnet}));
                call(side, &self.token, "PUT", &path, interface).await;
            }
        }
        for list in [
            "network /v2.0/floatingips?project_id=",
            routers,
            "network /v2.0/ports?project_id=",
            "network /v2.0/networks?project_id=",
            "network /v2.0/security-groups?project_id=",
            "volume /v3/volumes?all_tenants=1&project_id=",
        ] {
            self.drop_all(side, list).await;
        }
        let (own, ..) = side.log_in("drover").await;
        let groups = call(side, &own, "GET", "compute /v2.1/os-server-groups", None).await;
        for group in groups.body["server_groups"].as_array().into_iter().flatten() {
            let path = format!("compute /v2.1/os-server-groups/{}", text(&group["id"]));
            call(side, &own, "DELETE", &path, None).await;
        }
        for path in [format!("/v3/users/{}", self.user), format!("/v3/projects/{}", self.project)] {
            call(side, &self.token, "DELETE", &format!("identity {path}"), None).await;
        }
    }

    async fn ids(&self, side: &Side, list: &str) -> Vec<String> {
        let answer = call(side, &self.token, "GET", &format!("{list}{}", self.project), None).await;
        assert_eq!(answer.status, 200, "{list}: {}", answer.body);
        crate::script::things(&answer.body).map(|thing| text(&thing["id"])).collect()
    }

    /// Deletes all that a list shows; whether there was nothing.
    async fn drop_all(&self, side: &Side, list: &str) -> bool {
        let all = self.ids(side, list).await;
        let (path, _) = list.split_once('?').expect("a list of one project");
        for id in &all {
            call(side, &self.token, "DELETE", &format!("{path}/{id}"), None).await;
        }
        all.is_empty()
    }
}

/// An application credential of this user.
async fn credential(side: &Side, token: &str, user: &str) -> Value {
    let path = format!("identity /v3/users/{user}/application_credentials");
    let wish = json!({"name": "drover", "description": "machine manager"});
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        let body = Some(json!({"application_credential": wish}));
        let mut answer = call(side, token, "POST", &path, body).await;
        if answer.status == 201 {
            return answer.body["application_credential"].take();
        }
        // Keystone: while roles of others change, it may not find one that was granted a moment ago.
        assert!(tokio::time::Instant::now() < end, "{}", answer.body);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Network, subnet, router, security group and server group, all of one name.
async fn wire_up(side: &Side, token: &str, cluster: &str) {
    let inner =
        made(side, token, "network /v2.0/networks", "network", json!({"name": cluster})).await;
    let subnet = json!({"name": cluster, "network_id": inner, "ip_version": 4,
        "cidr": "192.168.48.0/20", "dns_nameservers": ["192.0.2.53"]});
    let subnet = made(side, token, "network /v2.0/subnets", "subnet", subnet).await;
    let external = call(side, token, "GET", "network /v2.0/networks?name=ext-net", None).await;
    let gateway = json!({"network_id": external.body["networks"][0]["id"]});
    let router = json!({"name": cluster, "external_gateway_info": gateway});
    let router = made(side, token, "network /v2.0/routers", "router", router).await;
    let path = format!("network /v2.0/routers/{router}/add_router_interface");
    let answer = call(side, token, "PUT", &path, Some(json!({"subnet_id": subnet}))).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let group = json!({"name": cluster, "description": "worker nodes"});
    made(side, token, "network /v2.0/security-groups", "security_group", group).await;
    let group = json!({"name": cluster, "policy": "soft-anti-affinity"});
    made(side, token, "compute /v2.1/os-server-groups", "server_group", group).await;
}

/// Makes a thing; its id.
async fn made(side: &Side, token: &str, to: &str, kind: &str, wish: Value) -> String {
    let answer = call(side, token, "POST", to, Some(json!({kind: wish}))).await;
    assert!(answer.status < 300, "{to}: {} {}", answer.status, answer.body);
    text(&answer.body[kind]["id"])
}

async fn call(side: &Side, token: &str, method: &str, to: &str, body: Option<Value>) -> Answer {
    let (service, path) = to.split_once(' ').expect("a service and a path");
    let mut request = Request::builder().method(method).uri(path).header("x-auth-token", token);
    if service == "compute" {
        request = request.header("openstack-api-version", "compute 2.90");
    }
    if body.is_some() {
        request = request.header("content-type", "application/json");
    }
    let body = body.map(|body| body.to_string()).unwrap_or_default();
    side.send(service, request.body(body).expect("a request")).await
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
