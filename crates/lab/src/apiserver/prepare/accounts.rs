//! Kubernetes' ServiceAccount admission: a pod runs as an account of its namespace and finds its token in a volume.

use crate::apiserver::create::metadata;
use crate::apiserver::{ApiServer, Key, Request, Status};
use serde_json::{Value, json};

/// Where containers look for the token.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// What the volume's name begins with.
const VOLUME: &str = "kube-api-access-";
/// Seconds a token is good for: an hour, and what tells it from one that was asked for.
const LIFETIME: u64 = 3607;

/// Gives a new pod its account, the account's token and its image pull secrets.
pub(super) fn admit(
    server: &ApiServer,
    request: &Request,
    object: &mut Value,
) -> Result<(), Status> {
    let name = metadata(object, "name").to_owned();
    let refuse = |why: String| Status::forbidden("", "pods", &name, &why);
    let annotations = &object["metadata"]["annotations"];
    let is_mirror = !annotations["kubernetes.io/config.mirror"].is_null();
    let spec = &mut object["spec"];
    let given = spec["serviceAccountName"].as_str().or(spec["serviceAccount"].as_str());
    let given = given.filter(|name| !name.is_empty());
    if is_mirror {
        return match given {
            Some(_) => Err(refuse("a mirror pod may not reference service accounts".to_owned())),
            None => Ok(()),
        };
    }
    let account = given.unwrap_or("default").to_owned();
    let namespace = request.namespace.as_str();
    let key = Key::new("", "serviceaccounts", namespace, &account);
    let Some(found) = server.store().get(&key) else {
        return Err(refuse(format!(
            "error looking up service account {namespace}/{account}: serviceaccount {account:?} not found"
        )));
    };
    spec["serviceAccountName"] = account.clone().into();
    spec["serviceAccount"] = account.into();
    let automount = spec["automountServiceAccountToken"].as_bool();
    if automount.or(found["automountServiceAccountToken"].as_bool()).unwrap_or(true) {
        mount_token(server, spec);
    }
    let pulls = &found["imagePullSecrets"];
    if spec["imagePullSecrets"].as_array().is_none_or(Vec::is_empty) && pulls.is_array() {
        spec["imagePullSecrets"] = pulls.clone();
    }
    Ok(())
}

fn mount_token(server: &ApiServer, spec: &mut Value) {
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    let mut names = volumes.filter_map(|volume| volume["name"].as_str());
    let known = names.find(|name| name.starts_with(VOLUME)).map(str::to_owned);
    let volume = known.clone().unwrap_or_else(|| format!("{VOLUME}{}", server.suffix()));
    let mut is_needed = false;
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter(|one| one.is_object()) {
            let mounts = &mut container["volumeMounts"];
            let mut paths = mounts.as_array().into_iter().flatten();
            if paths.any(|mount| mount["mountPath"] == MOUNT_PATH) {
                continue;
            }
            let mount = json!({"name": volume, "readOnly": true, "mountPath": MOUNT_PATH});
            push(mounts, mount);
            is_needed = true;
        }
    }
    if is_needed && known.is_none() {
        let sources = json!([
            {"serviceAccountToken": {"expirationSeconds": LIFETIME, "path": "token"}},
            {"configMap": {
                "name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}],
            }},
            {"downwardAPI": {"items": [{
                "path": "namespace",
                "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
            }]}},
        ]);
        let projected = json!({"defaultMode": 0o644, "sources": sources});
        push(&mut spec["volumes"], json!({"name": volume, "projected": projected}));
    }
}

fn push(list: &mut Value, one: Value) {
    match list.as_array_mut() {
        Some(list) => list.push(one),
        None => *list = json!([one]),
    }
}
