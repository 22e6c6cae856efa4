//! Ways into an API server: in process where it is the lab's own, else as a kubeconfig's user over TLS.

use anyhow::Context;
use bytes::Bytes;
use drover_controllers::rbac;
use drover_lab::apiserver::access::User;
use drover_lab::apiserver::{ApiServer, Peer};
use drover_lab::dial::{Answer, BoxError, Dialer};
use drover_lab::world::Plane;
use http::{Request, Response};
use http_body_util::BodyExt;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

/// How one user's requests get to an API server and its answers back.
pub type Door = BoxCloneSyncService<Request<Body>, Response<Answer>, BoxError>;

/// How long the manager's token is good: longer than any scenario takes.
const TOKEN_SECONDS: i64 = 7200;

/// The way of somebody who may do everything.
///
/// # Errors
/// When the kubeconfig cannot be used.
pub async fn admin(plane: &Plane) -> anyhow::Result<Client> {
    match in_process(plane) {
        Some(api) => {
            let user = Peer::User(User::new("admin", &["system:masters"]));
            Ok(Client::new(api.service(user), rbac::NAMESPACE))
        }
        None => dial(&plane.access().kubeconfig()).await,
    }
}

/// The way of Drover's ServiceAccount, with the rights that it is granted and no others; over TLS by a token.
///
/// # Errors
/// When there is no token to be had.
pub async fn manager(plane: &Plane, admin: &Client) -> anyhow::Result<Door> {
    if let Some(api) = in_process(plane) {
        let account =
            format!("system:serviceaccount:{}:{}", rbac::NAMESPACE, rbac::SERVICE_ACCOUNT);
        let of_namespace = format!("system:serviceaccounts:{}", rbac::NAMESPACE);
        let groups = ["system:serviceaccounts", of_namespace.as_str()];
        return Ok(boxed(api.service(Peer::User(User::new(&account, &groups)))));
    }
    let accounts = Api::<ServiceAccount>::namespaced(admin.clone(), rbac::NAMESPACE);
    let spec =
        TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let name = rbac::SERVICE_ACCOUNT;
    let answer = accounts.create_token_request(name, &PostParams::default(), &request).await?;
    let token = answer.status.context("a token request without a token")?.token;
    let mut access = plane.access();
    access.who = drover_lab::dial::Credential::Bearer(token);
    let client = dial(&access.kubeconfig()).await?;
    Ok(boxed(tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move { client.send(request).await }
    })))
}

fn in_process(plane: &Plane) -> Option<&ApiServer> {
    plane.embedded().filter(|_| matches!(plane.dialer(), Dialer::InProcess { .. }))
}

/// The client of `drover manager`: it repeats nothing by itself.
async fn dial(kubeconfig: &str) -> anyhow::Result<Client> {
    let file = Kubeconfig::from_yaml(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

fn boxed<S, B>(service: S) -> Door
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let open = |answer: Response<B>| answer.map(|body| body.map_err(Into::into).boxed_unsync());
    BoxCloneSyncService::new(service.map_response(open).map_err(Into::into))
}
