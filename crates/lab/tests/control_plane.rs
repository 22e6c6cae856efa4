//! A real control plane starts, is hurt, and ends; without its programs one line says that this was not tried.

use drover_lab::kube::{Assets, ControlPlane, Options};
use serde_json::json;
use std::path::PathBuf;

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn a_control_plane_keeps_its_objects_through_a_restart_and_forgets_history_when_compacted() {
    let Some(assets) = Assets::for_suite("control_plane", 1) else { return };
    let folder = std::env::temp_dir().join(format!("drover-control-plane-{}", std::process::id()));
    let folder = Folder(folder);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut plane =
        ControlPlane::start(&assets, &folder.0, &Options::default()).await.expect("it starts");
    let admin = plane.admin().expect("a client");
    let maps = "/api/v1/namespaces/default/configmaps";
    let made = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}});
    let made = admin.create(maps, &made).await.expect("created");
    let version = made["metadata"]["resourceVersion"].as_str().expect("a version").to_owned();

    let later = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "later"}});
    admin.create(maps, &later).await.expect("created");
    plane.compact().await.expect("compacted");
    plane.restart_api().await.expect("it comes back");
    let kept = admin.get(&format!("{maps}/kept")).await.expect("still there");
    assert_eq!(kept["metadata"]["uid"], made["metadata"]["uid"]);
    let exact = format!("{maps}?resourceVersion={version}&resourceVersionMatch=Exact");
    let gone = admin.get(&exact).await.expect_err("the past is forgotten");
    assert!(gone.is_expired(), "{gone}");
}
